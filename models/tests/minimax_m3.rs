//! MiniMax-M3 beyond what all families are tested for: its choice of blocks, and what its files may say.

mod common;

use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::Arithmetic;
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf_models::layers::{CacheDtype, CacheLimits, LayerCache};
use burn_gguf_models::{AutoModel, LoadOptions, ModelError, SessionOptions};
use common::{Npy, case, devices, load, nmse, say};

const MODEL: &str = "minimax-m3/model-bf16.gguf";

/// The tiny model with other values of some keys; it has blocks of 8 keys, of which a token sees 3.
fn with_keys(keys: &[(&str, u32)]) -> Option<Gguf> {
    let source = Gguf::open(case(MODEL)?).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_from(&source);
    for (key, value) in keys {
        writer.set_metadata(&format!("minimax-m3.{key}"), *value);
    }
    Some(Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap())
}

fn loaded(gguf: Gguf, device: &Device) -> Result<AutoModel, ModelError> {
    let options = LoadOptions {
        arithmetic: Arithmetic::Exact,
        ..LoadOptions::default()
    };
    AutoModel::load(gguf, device, options)
}

fn logits(model: &AutoModel, tokens: &[u32], options: &SessionOptions) -> Vec<f32> {
    model.session(options).feed_all(tokens).unwrap()
}

/// llama.cpp, which the other tests compare with, computes part of this attention in f16.
#[test]
fn logits_are_those_of_the_original_model() {
    let (Some(path), Some(dir)) = (case(MODEL), case("minimax-m3/text")) else {
        return;
    };
    let tokens = Npy::read(&dir.join("tokens.npy")).ids();
    let want = Npy::read(&dir.join("hf_logits.npy")).floats();
    for (name, device) in devices() {
        let model = load(&path, &device, Arithmetic::Exact).unwrap();
        let e = nmse(&logits(&model, &tokens, &SessionOptions::default()), &want);
        say(&format!("{MODEL} on {name}: NMSE {e:.1e}"));
        assert!(e <= 1e-9, "{name}: NMSE {e:.1e}");
    }
}

#[test]
fn tokens_behind_as_many_blocks_as_they_see_leave_some_out() {
    let (Some(sparse), Some(dense)) = (
        with_keys(&[]),
        with_keys(&[("attention.indexer.top_k", 99)]),
    ) else {
        return;
    };
    let device = Device::flex();
    let [sparse, dense] = [sparse, dense].map(|gguf| loaded(gguf, &device).unwrap());
    let tokens: Vec<u32> = (0..150).map(|i| (i * 37 + i / 7) % 300).collect();
    let vocab = sparse.model().vocab_size();
    let all = [&sparse, &dense].map(|model| logits(model, &tokens, &SessionOptions::default()));
    // Three blocks of 8 are all that the first 24 tokens have.
    let at = |all: &[f32], from: usize, to: usize| all[from * vocab..to * vocab].to_vec();
    let first = nmse(&at(&all[0], 0, 24), &at(&all[1], 0, 24));
    let later = nmse(&at(&all[0], 24, 150), &at(&all[1], 24, 150));
    assert!(first <= 1e-10, "{first}");
    assert!(later >= 1e-4, "{later}");
}

/// Long enough for a second word of blocks, on every device, in chunks of every size.
#[test]
fn long_prompts_are_the_same_on_every_device_and_in_any_chunks() {
    let Some(path) = case(MODEL) else { return };
    let tokens: Vec<u32> = (0..300).map(|i| (i * 53 + i / 11) % 300).collect();
    let model = load(&path, &Device::flex(), Arithmetic::Exact).unwrap();
    let want = logits(&model, &tokens, &SessionOptions::default());
    for (name, device) in devices() {
        let model = load(&path, &device, Arithmetic::Exact).unwrap();
        for chunk in [300, 64, 7] {
            let got = logits(&model, &tokens, &common::chunked(chunk));
            let e = nmse(&got, &want);
            assert!(e <= 1e-9, "{name} in chunks of {chunk}: {e}");
        }
    }
}

/// The keys that are compared for the choice keep their digits, so that it stays the same.
#[test]
fn a_half_precision_cache_keeps_an_indexers_keys_in_full() {
    let device = Device::flex();
    let limits = CacheLimits {
        max_len: 64,
        dtype: CacheDtype::F16,
    };
    let mut cache = LayerCache::default();
    let values = [1.0f32 + f32::EPSILON, -1e-30, 1e30, 0.1];
    let rows = |n: usize| {
        let data = TensorData::new(values.repeat(n), [1, n, 1, 4]);
        Tensor::<4>::from_data(data, &device)
    };
    cache.append_index(rows(2), 0, limits);
    let keys = cache.append_index(rows(3), 2, limits);
    assert_eq!(keys.dims(), [1, 1, 64, 4]);
    assert_eq!(cache.bytes(), 64 * 4 * 4);
    let keys = keys.into_data().try_into_vec::<f32>().unwrap();
    assert_eq!(keys[..20], values.repeat(5));
}

/// A saved state has the keys of the indexer too.
#[test]
fn a_saved_state_chooses_as_if_it_had_read_on() {
    let Some(path) = case(MODEL) else { return };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.gguf");
    let tokens: Vec<u32> = (0..120).map(|i| (i * 59 + i / 3) % 300).collect();
    for (name, device) in devices() {
        let model = load(&path, &device, Arithmetic::Exact).unwrap();
        let want = logits(&model, &tokens, &SessionOptions::default());
        let want = &want[100 * model.model().vocab_size()..];
        let mut first = model.session(&SessionOptions::default());
        first.feed(&tokens[..100]).unwrap();
        first.save_state(&state).unwrap();
        let mut session = model.session(&SessionOptions::default());
        assert_eq!(session.load_state(&state).unwrap(), 100);
        let e = nmse(&session.feed_all(&tokens[100..]).unwrap(), want);
        assert!(e <= 1e-10, "{name}: NMSE {e:.1e}");
        // Cut back, and a fork that goes on by itself.
        first.feed(&[1, 2, 3]).unwrap();
        assert_eq!(first.cache_mut().truncate(100), 100);
        let mut fork = first.fork();
        first.feed(&[4, 5]).unwrap();
        let e = nmse(&fork.feed_all(&tokens[100..]).unwrap(), want);
        assert!(e <= 1e-10, "the fork on {name}: NMSE {e:.1e}");
    }
}

#[test]
fn contradictions_are_named() {
    for (key, value, reason) in [
        ("attention.indexer.head_count", 3, "2 key/value heads"),
        ("attention.indexer.key_length", 16, "indexer.k_proj.weight"),
        ("attention.indexer.top_k", 0, "at least 1"),
        ("attention.indexer.block_size", 0, "at least 1"),
        ("attention.indexer.local_blocks", 4, "3 blocks"),
        ("leading_dense_block_count", 5, "4 layers"),
        ("expert_gating_func", 1, "sigmoid"),
    ] {
        let Some(gguf) = with_keys(&[(key, value)]) else {
            return;
        };
        match loaded(gguf, &Device::flex()).err() {
            Some(ModelError::InvalidValue {
                key: found,
                reason: why,
                ..
            }) => {
                assert_eq!(found, format!("minimax-m3.{key}"));
                assert!(why.contains(reason), "{key}: {why}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
}

/// Converters disagree on which of the widths a key means; the tensors do not.
#[test]
fn widths_are_those_of_the_tensors() {
    let keys = [
        ("feed_forward_length", 32),
        ("expert_feed_forward_length", 192),
        ("expert_shared_count", 7),
    ];
    let (Some(other), Some(gguf)) = (with_keys(&keys), with_keys(&[])) else {
        return;
    };
    let [a, b] = [other, gguf].map(|gguf| {
        let model = loaded(gguf, &Device::flex()).unwrap();
        logits(&model, &[1, 2, 3, 4], &SessionOptions::default())
    });
    assert_eq!(a, b);
}
