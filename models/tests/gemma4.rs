//! What Gemma 4 files may not say, and what they may.

mod common;

use burn::tensor::Device;
use burn_gguf::gguf::{Array, Gguf, GgufError, GgufWriter, Value};
use burn_gguf::{Arithmetic, GgmlType};
use burn_gguf_models::generation::SamplingParams;
use burn_gguf_models::{AutoModel, GenerateOptions, LoadOptions, ModelError, SessionOptions};
use common::{Npy, argmax, case, nmse};

fn fixture() -> Gguf {
    let path = case("gemma4-e/model-bf16.gguf");
    Gguf::open(path.expect("the fixture is in the repository")).unwrap()
}

fn load(writer: &GgufWriter<'_>) -> Result<AutoModel, ModelError> {
    let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    let options = LoadOptions {
        arithmetic: Arithmetic::Exact,
        ..LoadOptions::default()
    };
    AutoModel::load(gguf, &Device::flex(), options)
}

/// The fixture with some keys set.
fn with<'a>(values: &[(&str, Value)]) -> GgufWriter<'a> {
    let mut writer = GgufWriter::new();
    writer.copy_from(&fixture());
    for (key, value) in values {
        writer.set_metadata(key, value.clone());
    }
    writer
}

#[test]
fn contradictions_are_refused_by_key() {
    let bools = |list: &[bool]| Value::Array(Array::Bool(list.to_vec()));
    let numbers = |list: &[u32]| Value::Array(Array::U32(list.to_vec()));
    for (key, value) in [
        ("attention.sliding_window", 0u32.into()),
        ("attention.key_length_swa", 0u32.into()),
        ("attention.key_length_swa", u64::MAX.into()),
        ("attention.value_length_swa", 16u32.into()),
        ("attention.shared_kv_layers", 4u32.into()),
        ("attention.shared_kv_layers", u64::MAX.into()),
        // The only layer with keys of its own slides; two that share do not.
        ("attention.shared_kv_layers", 3u32.into()),
        ("attention.head_count_kv", numbers(&[2, 2, 1, 2])),
        ("embedding_length_per_layer_input", u64::MAX.into()),
        ("embedding_length_per_layer_input", (1u64 << 40).into()),
        ("final_logit_softcapping", f32::NAN.into()),
        ("final_logit_softcapping", (-1.0f32).into()),
        ("rope.dimension_count", 32u32.into()),
        ("rope.dimension_count_swa", 31u32.into()),
        ("rope.dimension_count_swa", 64u32.into()),
        ("rope.freq_base_swa", 0.0f32.into()),
    ] {
        let value: Value = value;
        let key = format!("gemma4.{key}");
        match load(&with(&[(&key, value.clone())])) {
            Ok(_) => panic!("{key} = {value:?} was accepted"),
            Err(ModelError::InvalidValue { key: named, .. }) => assert_eq!(named, key),
            Err(error) => panic!("{key} = {value:?}: {error}"),
        }
    }
    for list in [&[true, false][..], &[]] {
        let key = "gemma4.attention.sliding_window_pattern";
        let error = load(&with(&[(key, bools(list))])).err().expect("no model");
        let ModelError::Gguf(GgufError::LayerCount { key: named, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(named, key);
    }
}

#[test]
fn what_must_be_there_is_named() {
    for key in [
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.key_length_swa",
        "attention.value_length_swa",
        "embedding_length_per_layer_input",
    ] {
        let key = format!("gemma4.{key}");
        let mut writer = with(&[]);
        writer.remove_metadata(&key);
        let error = load(&writer).err().expect("no model");
        let ModelError::Gguf(GgufError::MissingKey { key: named, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*named, key);
    }
    let source = fixture();
    for name in [
        "rope_freqs.weight",
        "per_layer_token_embd.weight",
        "blk.2.inp_gate.weight",
        "blk.0.attn_k.weight",
        "blk.3.post_ffw_norm.weight",
    ] {
        let mut writer = GgufWriter::new();
        writer.copy_metadata(source.metadata());
        for tensor in source.tensors().filter(|t| t.name() != name) {
            writer.copy_tensor(tensor);
        }
        let error = load(&writer).err().expect("no model").to_string();
        assert!(error.contains(name), "without {name}: {error}");
    }
}

#[test]
fn divisors_of_frequencies_are_checked() {
    let source = fixture();
    let bad = |ty, shape: &[u64], bytes: Vec<u8>| {
        let mut writer = GgufWriter::new();
        writer.copy_metadata(source.metadata());
        let kept = source.tensors().filter(|t| t.name() != "rope_freqs.weight");
        kept.for_each(|tensor| {
            writer.copy_tensor(tensor);
        });
        writer.tensor("rope_freqs.weight", shape, ty, bytes);
        load(&writer).err().expect("no model").to_string()
    };
    for (ty, shape, bytes) in [
        (GgmlType::F32, 32, vec![0; 128]),
        (GgmlType::F32, 16, vec![63; 64]),
        (GgmlType::F16, 32, vec![60; 64]),
        (GgmlType::F32, 32, f32::NAN.to_le_bytes().repeat(32)),
    ] {
        let error = bad(ty, &[shape], bytes);
        assert!(error.contains("rope_freqs.weight"), "{error}");
    }
}

#[test]
fn logits_are_capped_at_30_unless_the_file_says_otherwise() {
    let dir = case("gemma4-e/text").expect("the fixture is in the repository");
    let tokens = Npy::read(&dir.join("tokens.npy")).ids();
    let want = Npy::read(&dir.join("logits.npy")).floats();
    let logits = |writer: &GgufWriter<'_>| {
        let model = load(writer).unwrap();
        let mut session = model.session(&SessionOptions::default());
        session.feed_all(&tokens).unwrap()
    };
    let mut absent = with(&[]);
    absent.remove_metadata("gemma4.final_logit_softcapping");
    assert!(nmse(&logits(&absent), &want) < 1e-9);
    let off = logits(&with(&[("gemma4.final_logit_softcapping", 0.0f32.into())]));
    let capped: Vec<f32> = off.iter().map(|v| 30.0 * (v / 30.0).tanh()).collect();
    assert!(nmse(&off, &want) > 1e-6 && nmse(&capped, &want) < 1e-9);
}

#[test]
fn suppressed_tokens_are_not_generated() {
    let dir = case("gemma4-e/text").expect("the fixture is in the repository");
    let tokens = Npy::read(&dir.join("tokens.npy")).ids();
    let logits = Npy::read(&dir.join("logits.npy")).floats();
    let generate = |writer: &GgufWriter<'_>| {
        let options = GenerateOptions {
            max_tokens: Some(8),
            sampling: SamplingParams::greedy(),
            ..GenerateOptions::default()
        };
        let model = load(writer).unwrap();
        let pieces = model.generate(&tokens[..], options).unwrap();
        pieces.map(|piece| piece.unwrap().token).collect::<Vec<_>>()
    };
    let free = generate(&with(&[]));
    let vocab = logits.len() / tokens.len();
    assert_eq!(free[0], argmax(&logits[logits.len() - vocab..]));
    let listed = Value::Array(Array::I32(free.iter().map(|&id| id as i32).collect()));
    let other = generate(&with(&[("tokenizer.ggml.suppress_tokens", listed)]));
    assert!(!other.is_empty());
    assert!(
        other.iter().all(|id| !free.contains(id)),
        "{free:?}, {other:?}"
    );
}
