//! Prompt states on disk: what a session has read, so that another need not read it again.
//!
//! The file is a GGUF: tensors `layer.{n}.{part}`, and in the metadata what was read and of which model.

use std::path::Path;

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_gguf::GgmlType;
use burn_gguf::gguf::{FileName, Gguf, GgufError, GgufWriter, TensorInfo};

use crate::fingerprint::Fingerprint;
use crate::layers::{KvCache, LayerCache, LayerParts, PART_NAMES, PartError, Positions};
use crate::model::{LogitsOf, ModelInput};
use crate::prompt::PromptRow;
use crate::session::Session;
use crate::vision::Vision;
use crate::vision::image::ContentHash;

/// `general.architecture` of a state file.
const ARCHITECTURE: &str = "burn-gguf-state";
const VERSION: u32 = 1;
const VERSION_KEY: &str = "state.version";
const MODEL_KEY: &str = "state.model";
/// Of each row the token, or its number within its image.
const ROWS_KEY: &str = "state.rows";
/// Of each row its image, or -1.
const ROW_IMAGES_KEY: &str = "state.row_images";
/// Hashes of the images.
const IMAGES_KEY: &str = "state.images";
/// Of each row the text position that follows.
const NEXT_KEY: &str = "state.next_positions";
/// Of each layer the position of its first row.
const FIRST_KEY: &str = "state.first_rows";
/// The tower that the rows of images come from, where there are any.
const VISION_KEY: &str = "state.vision";
/// A hash of the rows and of all values.
const CHECKSUM_KEY: &str = "state.checksum";

/// What can go wrong with a state file.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file is at fault, or cannot be written.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Another kind of GGUF file.
    #[error("{file} is no prompt state: its architecture is \"{architecture}\"")]
    NotAState {
        /// The file.
        file: FileName,
        /// Its `general.architecture`.
        architecture: String,
    },
    /// A format of another time.
    #[error("{file} has state version {found}, this program reads {VERSION}; make it anew")]
    Version {
        /// The file.
        file: FileName,
        /// Its version.
        found: u32,
    },
    /// The state of another model.
    #[error("{file} is the state of another model; make it anew or remove it")]
    OtherModel {
        /// The file.
        file: FileName,
    },
    /// The rows of images come from another tower.
    #[error("{file} holds images as another vision file sees them; make it anew or remove it")]
    OtherTower {
        /// The file.
        file: FileName,
    },
    /// The state has more rows than the context.
    #[error("{file} holds {rows} tokens, the context {limit}; raise the context")]
    ContextFull {
        /// The file.
        file: FileName,
        /// Rows of the state.
        rows: usize,
        /// Most rows.
        limit: usize,
    },
    /// Contradictory contents.
    #[error("{file} is damaged: {reason}; make it anew")]
    Damaged {
        /// The file.
        file: FileName,
        /// What is wrong.
        reason: String,
    },
}

impl Session<'_> {
    /// Writes what the session has read to a file, from which [`load_state`](Self::load_state) goes on, and returns the
    /// file's size in bytes. Sliding windows save the rows they show.
    ///
    /// # Errors
    /// If the file cannot be written; what was at `path` is then as it was.
    pub fn save_state(&self, path: impl AsRef<Path>) -> Result<u64, StateError> {
        let (cache, history) = self.state();
        let mut images: Vec<String> = Vec::new();
        let (mut rows, mut row_images) = (Vec::<u32>::new(), Vec::<i32>::new());
        for row in history {
            match row {
                PromptRow::Token(token) => {
                    rows.push(*token);
                    row_images.push(-1);
                }
                PromptRow::Image { hash, row } => {
                    let hash = hash.to_string();
                    let known = images.iter().position(|image| *image == hash);
                    row_images.push(known.unwrap_or(images.len()) as i32);
                    if known.is_none() {
                        images.push(hash);
                    }
                    rows.push(*row);
                }
            }
        }
        let parts: Vec<LayerParts> = cache.layers().iter().map(LayerCache::parts).collect();
        let mut checksum = Fingerprint::default();
        add_rows(&mut checksum, &rows, &row_images, cache.next_positions());
        // Read twice, so that no two layers are on the host at once.
        for (_, tensor) in parts.iter().flat_map(|layer| &layer.tensors) {
            checksum.add_bytes(&bytes_of(tensor));
        }
        let vision = match images.is_empty() {
            true => String::new(),
            false => self.vision_source(),
        };
        let first: Vec<u64> = parts.iter().map(|layer| layer.first as u64).collect();
        let mut writer = GgufWriter::new();
        writer
            .metadata("general.architecture", ARCHITECTURE)
            .metadata(VERSION_KEY, VERSION)
            .metadata(MODEL_KEY, self.model_source()?)
            .metadata(VISION_KEY, vision)
            .metadata(CHECKSUM_KEY, checksum.finish())
            .metadata(ROWS_KEY, rows)
            .metadata(ROW_IMAGES_KEY, row_images)
            .metadata(IMAGES_KEY, images)
            .metadata(NEXT_KEY, cache.next_positions())
            .metadata(FIRST_KEY, first);
        for (n, layer) in parts.into_iter().enumerate() {
            for (name, tensor) in layer.tensors {
                let ty = match tensor.dtype() {
                    DType::F16 => GgmlType::F16,
                    _ => GgmlType::F32,
                };
                let mut shape = tensor.dims().map(|n| n as u64);
                shape.reverse();
                // One tensor at a time comes to the host.
                writer.tensor_with(format!("layer.{n}.{name}"), &shape, ty, move |out| {
                    out.write_all(&bytes_of(&tensor))
                });
            }
        }
        Ok(writer.write_file(path)?)
    }

    /// Goes on from a state that [`save_state`](Self::save_state) wrote, on whatever device, and returns how many rows
    /// it holds. What the session had read is forgotten.
    ///
    /// # Errors
    /// A file that is no state, belongs to another model, does not fit the context, or is damaged. The session is then
    /// unchanged.
    pub fn load_state(&mut self, path: impl AsRef<Path>) -> Result<usize, StateError> {
        let gguf = Gguf::open(path)?;
        let (cache, history) = self.read_state(&gguf)?;
        let rows = cache.len();
        self.set_state(cache, history);
        Ok(rows)
    }

    fn read_state(&self, gguf: &Gguf) -> Result<(KvCache, Vec<PromptRow>), StateError> {
        let file = || gguf.file().clone();
        let metadata = gguf.metadata();
        let architecture = metadata.architecture()?;
        if architecture != ARCHITECTURE {
            return Err(StateError::NotAState {
                file: file(),
                architecture: architecture.to_owned(),
            });
        }
        let found: u32 = metadata.get(VERSION_KEY)?;
        if found != VERSION {
            return Err(StateError::Version {
                file: file(),
                found,
            });
        }
        let model: String = metadata.get(MODEL_KEY)?;
        if model != self.model_source()? {
            return Err(StateError::OtherModel { file: file() });
        }
        let damaged = |reason: String| StateError::Damaged {
            file: file(),
            reason,
        };
        let next: Vec<u32> = metadata.get(NEXT_KEY)?;
        let history = read_history(gguf)?.ok_or_else(|| damaged("its rows contradict".into()))?;
        let vocab = self.model().vocab_size();
        let unknown = |row: &&PromptRow| matches!(row, PromptRow::Token(t) if *t as usize >= vocab);
        if let Some(row) = history.iter().find(unknown) {
            return Err(damaged(format!(
                "{row:?} is outside the vocabulary of {vocab}"
            )));
        }
        let images = history
            .iter()
            .any(|row| matches!(row, PromptRow::Image { .. }));
        let vision: String = metadata.get(VISION_KEY)?;
        if images && vision != self.vision_source() {
            return Err(StateError::OtherTower { file: file() });
        }
        // A row takes at most one position.
        let counts = next.iter().enumerate().all(|(i, &p)| p as usize <= i + 1);
        if !counts || !next.is_sorted() || history.len() != next.len() {
            return Err(damaged(format!("\"{NEXT_KEY}\" does not fit its rows")));
        }
        let (rows, limits) = (next.len(), self.cache().limits());
        if rows > limits.max_len {
            return Err(StateError::ContextFull {
                file: file(),
                rows,
                limit: limits.max_len,
            });
        }
        let first: Vec<usize> = metadata.get(FIRST_KEY)?;
        let kinds = match rows {
            0 => self.cache().layers().to_vec(),
            _ => self.one_token(),
        };
        if first.len() != kinds.len() {
            let reason = format!("{} layers, the model has {}", first.len(), kinds.len());
            return Err(damaged(reason));
        }
        if rows == 0 {
            let empty = KvCache::new(kinds.len(), limits.max_len, limits.dtype);
            return Ok((empty, history));
        }
        let mut known = 0;
        let mut layers = Vec::with_capacity(kinds.len());
        for (n, (kind, first)) in kinds.iter().zip(first).enumerate() {
            let device = kind.device().unwrap_or_else(|| self.model().device());
            let mut tensors = Vec::new();
            for name in PART_NAMES {
                if let Some(tensor) = gguf.tensor(&format!("layer.{n}.{name}")) {
                    let dtype = kind.dtype(name).unwrap_or(DType::F32);
                    let reason = || damaged(format!("\"{}\" is no cache", tensor.name()));
                    tensors.push((name, read(tensor, dtype, &device).ok_or_else(reason)?));
                    known += 1;
                }
            }
            let parts = LayerParts { first, tensors };
            let layer = kind.with_parts(parts, rows);
            layers.push(layer.map_err(|error| damaged(describe(n, error)))?);
        }
        if known != gguf.tensors().len() {
            return Err(damaged("it has tensors of no layer".into()));
        }
        let checksum: String = metadata.get(CHECKSUM_KEY)?;
        if checksum != checksum_of(gguf)? {
            return Err(damaged("its values are not those that were written".into()));
        }
        Ok((KvCache::from_layers(layers, next, limits), history))
    }

    /// What tells the model.
    fn model_source(&self) -> Result<String, GgufError> {
        let Some(source) = &self.source else {
            return Ok(String::new());
        };
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(source.gguf);
        for lora in source.lora {
            fingerprint.add_bytes(&lora.scale.to_le_bytes());
            fingerprint.add(&Gguf::open(&lora.path)?);
        }
        Ok(fingerprint.finish())
    }

    /// What tells the tower.
    fn vision_source(&self) -> String {
        let vision = self.source.as_ref().and_then(|source| source.vision);
        vision.and_then(Vision::identity).unwrap_or_default()
    }

    /// The caches after one token, which tell what each layer keeps.
    fn one_token(&self) -> Vec<LayerCache> {
        let limits = self.cache().limits();
        let mut cache = self.model().new_cache(1, limits.dtype);
        let input = ModelInput {
            embeddings: Tensor::zeros([1, 1, self.model().hidden_size()], &self.model().device()),
            deepstack: Vec::new(),
            positions: Positions::run(0, 1),
            tokens: None,
            whole_image: false,
        };
        self.model()
            .forward_input(input, &mut cache, LogitsOf::Last);
        cache.layers().to_vec()
    }
}

/// What was read; `None` if the lists contradict each other.
fn read_history(gguf: &Gguf) -> Result<Option<Vec<PromptRow>>, GgufError> {
    let metadata = gguf.metadata();
    let rows: Vec<u32> = metadata.get(ROWS_KEY)?;
    let row_images: Vec<i32> = metadata.get(ROW_IMAGES_KEY)?;
    let images: Vec<&str> = metadata.get(IMAGES_KEY)?;
    let Some(images) = images
        .into_iter()
        .map(parse_hash)
        .collect::<Option<Vec<_>>>()
    else {
        return Ok(None);
    };
    if rows.len() != row_images.len() {
        return Ok(None);
    }
    let row = |(row, image): (u32, i32)| match usize::try_from(image) {
        Ok(image) => images
            .get(image)
            .map(|&hash| PromptRow::Image { hash, row }),
        Err(_) => (image == -1).then_some(PromptRow::Token(row)),
    };
    Ok(rows.into_iter().zip(row_images).map(row).collect())
}

fn parse_hash(text: &str) -> Option<ContentHash> {
    let bytes: Option<Vec<u8>> = (text.len() == 64 && text.is_ascii())
        .then_some(())
        .and_then(|()| {
            (0..32)
                .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok())
                .collect()
        });
    bytes?.try_into().ok().map(ContentHash::from_bytes)
}

/// A tensor of a state on the device; `None` if it has no cache's shape or type.
fn read(tensor: &TensorInfo, dtype: DType, device: &Device) -> Option<Tensor<4>> {
    let stored = match tensor.ggml_type()? {
        GgmlType::F32 => DType::F32,
        GgmlType::F16 => DType::F16,
        _ => return None,
    };
    let mut shape = [1; 4];
    for (to, &from) in shape.iter_mut().rev().zip(tensor.shape()) {
        *to = usize::try_from(from).ok()?;
    }
    let data = TensorData::from_bytes_vec(tensor.data().to_vec(), shape, stored);
    Some(Tensor::from_data(
        data.convert_dtype(dtype),
        (device, dtype),
    ))
}

fn describe(layer: usize, error: PartError) -> String {
    match error {
        PartError::Shape {
            name,
            found: Some(found),
            expected,
        } => format!("\"layer.{layer}.{name}\" is {found:?}, the model has {expected:?}"),
        PartError::Shape { name, .. } => format!("\"layer.{layer}.{name}\" is missing"),
        PartError::Extra(name) => format!("the model has no \"layer.{layer}.{name}\""),
        PartError::First(row) => format!("the rows of layer {layer} start at {row}"),
    }
}

/// The values as they are written.
fn bytes_of(tensor: &Tensor<4>) -> Vec<u8> {
    let data = tensor.clone().into_data();
    match tensor.dtype() {
        DType::F16 => data.as_bytes().to_vec(),
        _ => data.convert::<f32>().as_bytes().to_vec(),
    }
}

fn add_rows(to: &mut Fingerprint, rows: &[u32], row_images: &[i32], next: &[u32]) {
    for row in rows.iter().chain(next) {
        to.add_bytes(&row.to_le_bytes());
    }
    for image in row_images {
        to.add_bytes(&image.to_le_bytes());
    }
}

/// What the checksum of a file should be.
fn checksum_of(gguf: &Gguf) -> Result<String, GgufError> {
    let metadata = gguf.metadata();
    let rows: Vec<u32> = metadata.get(ROWS_KEY)?;
    let row_images: Vec<i32> = metadata.get(ROW_IMAGES_KEY)?;
    let next: Vec<u32> = metadata.get(NEXT_KEY)?;
    let mut checksum = Fingerprint::default();
    add_rows(&mut checksum, &rows, &row_images, &next);
    for tensor in gguf.tensors() {
        checksum.add_bytes(tensor.data());
    }
    Ok(checksum.finish())
}
