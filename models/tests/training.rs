//! A loaded model under autodiff: its weights train, packed ones stay, and what was trained is a GGUF file again.
#![cfg(all(feature = "autodiff", feature = "flex"))]

mod common;

use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_gguf::gguf::Gguf;
use burn_gguf::nn::thaw;
use burn_gguf::store::{GgufStore, NameMap};
use burn_gguf::{Arithmetic, GgmlType};
use burn_gguf_models::decoder::DenseDecoder;
use burn_gguf_models::families::qwen3vl;
use burn_gguf_models::layers::{CacheDtype, Positions};
use burn_gguf_models::vision::mmproj::Mmproj;
use burn_gguf_models::vision::towers::Qwen3VlTower;
use burn_gguf_models::{LoadOptions, LogitsOf, ModelInput, TextModel};
use burn_optim::{AdamWConfig, GradientsParams};
use burn_store::{IdentityAdapter, ModuleSnapshot};
use common::{case, nmse};

fn options() -> LoadOptions {
    LoadOptions {
        arithmetic: Arithmetic::Exact,
        ..LoadOptions::default()
    }
}

const TOKENS: [i32; 6] = [3, 14, 15, 92, 65, 35];

fn ids(device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(
        TensorData::new(TOKENS.to_vec(), [1, 6]),
        (device, DType::I32),
    )
}

/// Mean negative log-likelihood of each next token.
fn loss(model: &DenseDecoder, input: ModelInput) -> Tensor<1> {
    let mut cache = model.new_cache(16, CacheDtype::F32);
    let logits = model.forward_input(input, &mut cache, LogitsOf::All);
    let [_, seq, vocab] = logits.dims();
    let device = logits.device();
    let logits = logits.reshape([seq, vocab]).slice([seq - 5..seq, 0..vocab]);
    let next = TensorData::new(TOKENS[1..].to_vec(), [5, 1]);
    let next = Tensor::<2, Int>::from_data(next, (&device, DType::I32));
    let log = burn::tensor::activation::log_softmax(logits, 1);
    log.gather(1, next).mean().neg()
}

fn text_input(model: &DenseDecoder, device: &Device) -> ModelInput {
    ModelInput::new(model.embed(ids(device)), Positions::run(0, 6))
}

fn value(loss: &Tensor<1>) -> f32 {
    loss.clone().into_scalar::<f32>()
}

#[test]
fn thawed_text_weights_train_and_are_saved() {
    let Some(path) = case("qwen3vl/model-bf16.gguf") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let device = Device::flex();
    let (packed, _) = qwen3vl::load_text(&gguf, &device, options()).unwrap();
    let before = value(&loss(&packed, text_input(&packed, &device)));

    let mut model = thaw(packed).train();
    let device = device.autodiff();
    let first = loss(&model, text_input(&model, &device));
    assert!(
        (value(&first) - before).abs() < 1e-4,
        "thawing changed the model"
    );
    let mut optimizer = AdamWConfig::new().init();
    for _ in 0..5 {
        let loss = loss(&model, text_input(&model, &device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
    }
    let after = value(&loss(&model, text_input(&model, &device)));
    assert!(
        after < before - 0.5,
        "the loss went from {before} to {after}"
    );

    // The file of a trained model is a plain GGUF file.
    let folder = tempfile::tempdir().unwrap();
    let trained = folder.path().join("trained.gguf");
    let names = qwen3vl::bindings();
    let names = names
        .iter()
        .fold(NameMap::default(), |map, table| map.with(table));
    let mut store = GgufStore::create(&trained)
        .metadata_of(&gguf)
        .with_to_adapter(IdentityAdapter)
        .with_name_map(names);
    model.valid().save_into(&mut store).unwrap();
    let gguf = Gguf::open(&trained).unwrap();
    let q = gguf.tensor("blk.0.attn_q.weight").unwrap();
    assert_eq!(q.ggml_type(), Some(GgmlType::F32));
    let device = Device::flex();
    let (again, _) = qwen3vl::load_text(&gguf, &device, options()).unwrap();
    let loaded = value(&loss(&again, text_input(&again, &device)));
    assert!(
        (loaded - after).abs() < 1e-4,
        "{after} became {loaded} in the file"
    );
}

#[test]
fn every_weight_of_a_tower_has_a_gradient() {
    let (Some(text), Some(mmproj)) = (
        case("qwen3vl/model-bf16.gguf"),
        case("qwen3vl/mmproj-bf16.gguf"),
    ) else {
        return;
    };
    let device = Device::flex();
    let mmproj = Mmproj::open(mmproj).unwrap();
    let (tower, _) = Qwen3VlTower::load(&mmproj, &device, options()).unwrap();
    let (model, _) = qwen3vl::load_text(&Gguf::open(text).unwrap(), &device, options()).unwrap();
    let positions: Vec<[u32; 2]> = vec![[0, 0], [0, 1], [1, 0], [1, 1]];
    let pixels = |device: &Device| {
        let values: Vec<f32> = (0..4 * 768)
            .map(|i| ((i * 7919) % 255) as f32 / 127.5 - 1.0)
            .collect();
        Tensor::<3>::from_data(TensorData::new(values, [1, 4, 768]), device)
    };
    let plain = tower.forward(&[pixels(&device)], &positions);
    let tower = thaw(tower).train();
    let device = device.autodiff();
    let rows = tower.forward(&[pixels(&device)], &positions);
    let floats = |t: Tensor<3>| t.into_data().try_into_vec::<f32>().unwrap();
    assert!(nmse(&floats(rows.clone()), &floats(plain)) < 1e-8);

    let hidden = model.hidden_size();
    let slice = |i: usize| {
        rows.clone()
            .slice([0..1, 0..1, i * hidden..(i + 1) * hidden])
    };
    let model = model.train();
    let zeros = Tensor::<3>::zeros([1, 6, hidden], &device);
    let text = model.embed(ids(&device));
    let mut thw = vec![[0, 0, 0]];
    thw.extend(Positions::run(1, 6).thw());
    let embeddings = Tensor::cat(vec![slice(0), text], 1);
    let input = ModelInput {
        deepstack: (1..3)
            .map(|i| Tensor::cat(vec![slice(i), zeros.clone()], 1))
            .collect(),
        ..ModelInput::new(embeddings, Positions::from_thw(thw))
    };
    let gradients = GradientsParams::from_grads(loss(&model, input).backward(), &tower);
    let parameters = tower.collect(None, None, false).len();
    assert_eq!(
        gradients.len(),
        parameters,
        "a parameter of the tower has no gradient"
    );
}
