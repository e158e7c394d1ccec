//! Files with queries, keys and values in one tensor.

mod common;

use burn::tensor::FloatDType;
use burn_gguf::Arithmetic;
use burn_gguf::gguf::{Gguf, GgufError, GgufWriter};
use burn_gguf::store::LoadProfile;
use burn_gguf_models::{AutoModel, LoadOptions, ModelError, SessionOptions};
use common::{case, devices};

/// `gguf` with `attn_q`, `attn_k` and `attn_v` of each layer in one tensor; the first `skip` bytes of key weights are left out.
fn fused(gguf: &Gguf, skip: usize) -> Gguf {
    let mut writer = GgufWriter::new();
    writer.copy_metadata(gguf.metadata());
    for info in gguf.tensors() {
        let name = info.name();
        if name.contains(".attn_k.") || name.contains(".attn_v.") {
            continue;
        }
        if !name.contains(".attn_q.") {
            writer.copy_tensor(info);
            continue;
        }
        let parts = ["attn_q", "attn_k", "attn_v"].map(|part| {
            let info = gguf.tensor(&name.replace("attn_q", part)).unwrap();
            assert_eq!(info.ggml_type(), gguf.tensor(name).unwrap().ggml_type());
            info
        });
        let mut bytes = parts[0].data().to_vec();
        let skip = if name.ends_with(".weight") { skip } else { 0 };
        bytes.extend(&parts[1].data()[skip..]);
        bytes.extend(parts[2].data());
        let mut shape = info.shape().to_vec();
        let rows = shape.len() - 1;
        let row = info.byte_len() / shape[rows] as usize;
        shape[rows] = (bytes.len() / row) as u64;
        let name = name.replace("attn_q", "attn_qkv");
        writer.tensor(name, &shape, info.ggml_type().unwrap(), bytes);
    }
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

#[test]
fn one_tensor_gives_the_logits_of_three() {
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + 5) % 200).collect();
    let mut seen = 0;
    // With biases, with rows of few bytes, with a gate in the queries, and beside tensors of that name in other layers.
    for file in [
        "qwen2/model-bf16.gguf",
        "qwen3/model-q4_0.gguf",
        "qwen3/model-q8_0.gguf",
        "qwen35/model-bf16.gguf",
        "minimax-m3/model-bf16.gguf",
    ] {
        let Some(path) = case(file) else { continue };
        let gguf = Gguf::open(path).unwrap();
        let fused = fused(&gguf, 0);
        assert!(fused.tensors().all(|t| !t.name().contains(".attn_q.")));
        seen += 1;
        for (name, device) in devices() {
            for profile in [LoadProfile::Packed, LoadProfile::Dense(FloatDType::F32)] {
                let [three, one] = [&gguf, &fused].map(|gguf| {
                    let options = LoadOptions {
                        arithmetic: Arithmetic::Exact,
                        profile,
                        ..LoadOptions::default()
                    };
                    let model = AutoModel::load(gguf.clone(), &device, options).unwrap();
                    let unused = &model.report().unused;
                    assert!(unused.is_empty(), "{file} on {name}: {unused:?}");
                    let mut session = model.session(&SessionOptions::default());
                    session.feed_all(&tokens).unwrap()
                });
                assert_eq!(three, one, "{file} on {name}, {profile:?}");
            }
        }
    }
    assert!(seen > 0, "some of these files are in the repository");
}

#[test]
fn rows_that_do_not_add_up_are_named() {
    let Some(path) = case("qwen2/model-bf16.gguf") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let row = gguf.tensor("blk.0.attn_k.weight").unwrap();
    let row = row.byte_len() / row.shape()[1] as usize;
    let device = devices().remove(0).1;
    let error = AutoModel::load(fused(&gguf, row), &device, LoadOptions::default()).err();
    let Some(ModelError::Gguf(error @ GgufError::RowSplit { .. })) = error else {
        panic!("{error:?}");
    };
    let text = error.to_string();
    for part in ["blk.0.attn_qkv", "blk.0.attn_v"] {
        assert!(text.contains(part), "{text}");
    }
}
