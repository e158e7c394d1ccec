//! The model under training.

use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::nn::thaw;
use burn_gguf::store::{GgufStore, LoadProfile, NameMap};
use burn_gguf_models::decoder::DenseDecoder;
use burn_gguf_models::families::qwen3vl;
use burn_gguf_models::layers::CacheDtype;
use burn_gguf_models::vision::mmproj::Mmproj;
use burn_gguf_models::vision::towers::Qwen3VlTower;
use burn_gguf_models::{LoadOptions, LogitsOf, ModelInput, TextModel};
use burn_store::{IdentityAdapter, ModuleSnapshot};
use std::path::Path;

use super::batch::{Batch, IMAGE, Words, caption_rows};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Weight of the loss on cells beside that on captions.
const CELL_WEIGHT: f32 = 1.0;

/// Text model and tower as one module, for one optimizer.
#[derive(Module, Debug)]
pub struct Learner {
    /// The text model.
    pub text: DenseDecoder,
    /// The tower.
    pub tower: Qwen3VlTower,
}

impl Learner {
    /// Loads both files on the CPU, with weights in floats that can be trained.
    ///
    /// # Errors
    /// If the files do not make up the model.
    pub fn load(text: &Gguf, mmproj: &Gguf) -> Result<Self, Error> {
        let device = Device::flex();
        let options = || LoadOptions {
            profile: LoadProfile::Dense(FloatDType::F32),
            ..LoadOptions::default()
        };
        let (text, _) = qwen3vl::load_text(text, &device, options())?;
        let mmproj = Mmproj::from_gguf(mmproj.clone())?;
        let (tower, _) = Qwen3VlTower::load(&mmproj, &device, options())?;
        Ok(thaw(Self { text, tower }).train())
    }

    /// Writes both files, with the metadata of those the model was loaded from.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save(&self, from: [&Gguf; 2], to: [&Path; 2]) -> Result<(), Error> {
        let store = |gguf: &Gguf, path: &Path, names: NameMap| {
            GgufStore::create(path)
                .metadata_of(gguf)
                .with_name_map(names)
                .with_to_adapter(IdentityAdapter)
                .overwrite(true)
        };
        let names = qwen3vl::bindings()
            .iter()
            .fold(NameMap::default(), |map, table| map.with(table));
        let Self { text, tower } = self.valid();
        text.save_into(&mut store(from[0], to[0], names))?;
        let deepstack = Qwen3VlTower::deepstack_bindings(tower.tower_config());
        let deepstack: Vec<(&str, &str)> = deepstack
            .iter()
            .map(|(file, module)| (file.as_str(), module.as_str()))
            .collect();
        let names = NameMap::default()
            .with(Qwen3VlTower::bindings())
            .with(&deepstack);
        tower.save_into(&mut store(from[1], to[1], names))?;
        restore_shapes(from[1], to[1])
    }

    fn device(&self) -> Device {
        self.text.output_norm.weight.val().device()
    }

    /// Log-probabilities of the rows of the image and of the caption, each `[rows, vocabulary]`.
    fn log_probabilities(&self, batch: &Batch, words: &Words) -> [Tensor<2>; 2] {
        let device = self.device();
        let hidden = self.text.hidden_size();
        let seen = self.tower.forward(&[batch.pixels(&device)], &batch.patches);
        let [len, _, width] = seen.dims();
        let part = |i: usize| {
            seen.clone()
                .slice([0..len, 0..IMAGE, i * hidden..(i + 1) * hidden])
        };
        let tokens = self.text.embed(batch.tokens(words, &device));
        let (first, all) = (words.before.len(), tokens.dims()[1]);
        let before = tokens.clone().slice([0..len, 0..first, 0..hidden]);
        let behind = tokens.slice([0..len, first..all, 0..hidden]);
        let nothing = |rows: usize| Tensor::<3>::zeros([len, rows, hidden], &device);
        let deepstack = (1..width / hidden)
            .map(|i| Tensor::cat(vec![nothing(first), part(i), nothing(all - first)], 1))
            .collect();
        let embeddings = Tensor::cat(vec![before, part(0), behind], 1);
        let input = ModelInput {
            deepstack,
            ..ModelInput::new(embeddings, batch.positions(words))
        };
        let mut cache = self.text.new_cache(all + IMAGE, CacheDtype::F32);
        let logits = self.text.forward_input(input, &mut cache, LogitsOf::All);
        let vocabulary = self.text.vocab_size();
        [first..first + IMAGE, caption_rows(words, batch.prompt)].map(|rows| {
            let count = rows.len();
            let rows = logits.clone().slice([0..len, rows, 0..vocabulary]);
            log_softmax(rows.reshape([len * count, vocabulary]), 1)
        })
    }

    /// What to minimize: how unlikely the captions are, and, at each row of the image, the colour and the shape that
    /// stand there. The latter is never asked for later; it tells the tower early what there is to see.
    ///
    /// Returns the sum and the share of the captions.
    pub fn loss(&self, batch: &Batch, words: &Words) -> (Tensor<1>, Tensor<1>) {
        let device = self.device();
        let [image, caption] = self.log_probabilities(batch, words);
        let (ids, counts) = batch.captions(&device);
        let total = counts.clone().sum();
        let captions = (caption.gather(1, ids) * counts).sum().neg() / total;
        let [colours, shapes] = batch.cells(&device);
        let cells = (image.clone().gather(1, colours) + image.gather(1, shapes)).mean() * -0.5;
        (captions.clone() + cells * CELL_WEIGHT, captions)
    }

    /// Of each picture, the place of the first wrong word when words are chosen greedily: up to it the answer is what the
    /// model would have read had it written it itself, so one pass decides.
    ///
    /// # Errors
    /// If the device fails.
    pub fn mistakes(&self, batch: &Batch, words: &Words) -> Result<Vec<Option<usize>>, Error> {
        let [_, caption] = self.log_probabilities(batch, words);
        let best: Vec<i32> = caption.argmax(1).into_data().iter::<i32>().collect();
        Ok(batch.mistakes(&best).collect())
    }
}

/// Gives the tensors of a saved file the shapes they had: patches are matrices in the module and pictures in the file.
fn restore_shapes(original: &Gguf, path: &Path) -> Result<(), Error> {
    let saved = Gguf::open(path)?;
    let mut file = GgufWriter::new();
    file.copy_metadata(saved.metadata());
    for tensor in saved.tensors() {
        let shape = original.require(tensor.name())?.shape();
        file.tensor(tensor.name(), shape, GgmlType::F32, tensor.bytes());
    }
    file.write_file(path)?;
    Ok(())
}
