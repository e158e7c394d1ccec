//! Prompt states on disk: what is refused, and what windows keep.

mod common;

use std::path::Path;

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf::gguf::{Gguf, GgufWriter, Value};
use burn_gguf_models::layers::CacheDtype;
use burn_gguf_models::{AutoModel, SessionOptions, StateError};
use common::{case, chunked, load, nmse};

const TOKENS: [u32; 12] = [5, 3, 8, 1, 9, 2, 7, 4, 6, 10, 11, 12];

fn model(file: &str) -> Option<AutoModel> {
    load(&case(file)?, &Device::flex(), Arithmetic::Exact).ok()
}

/// A state file of `model`, changed by `edit`.
fn edited(model: &AutoModel, path: &Path, edit: impl Fn(&mut GgufWriter<'_>)) {
    let mut session = model.session(&SessionOptions::default());
    session.feed(&TOKENS).unwrap();
    session.save_state(path).unwrap();
    let gguf = Gguf::open(path).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_from(&gguf);
    edit(&mut writer);
    writer.write_file(path).unwrap();
}

#[test]
fn damaged_files_are_named_and_leave_the_session_as_it_was() {
    let Some(model) = model("qwen3/model-q4_k_m.gguf") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.gguf");
    type Edit = fn(&mut GgufWriter<'_>);
    let edits: [(Edit, &str); 8] = [
        (
            |w| {
                w.set_metadata("state.first_rows", vec![0u64; 1]);
            },
            "1 layers",
        ),
        (
            |w| {
                w.set_metadata("state.first_rows", vec![3u64; 2]);
            },
            "layer.0",
        ),
        (
            |w| {
                w.set_metadata("state.next_positions", vec![1u32; 3]);
            },
            "next_positions",
        ),
        (
            |w| {
                w.set_metadata("state.next_positions", vec![4_000_000_000u32; 12]);
            },
            "next_positions",
        ),
        (
            |w| {
                w.set_metadata("state.row_images", vec![0i32; 12]);
            },
            "rows",
        ),
        (
            |w| {
                w.set_metadata("state.images", vec!["zz"]);
            },
            "rows",
        ),
        (
            |w| {
                let bytes = vec![0u8; 8];
                w.tensor("layer.99.k", &[2], burn_gguf::GgmlType::F32, bytes);
            },
            "no layer",
        ),
        (
            |w| {
                w.set_metadata("state.version", 99u32);
            },
            "version 99",
        ),
    ];
    for (edit, says) in edits {
        edited(&model, &path, edit);
        let mut session = model.session(&SessionOptions::default());
        session.feed(&[1, 2]).unwrap();
        let error = session.load_state(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{error:?} says nothing of {says:?}");
        assert!(error.contains("state.gguf"), "{error}");
        assert_eq!(session.cache().len(), 2);
    }
}

#[test]
fn other_files_and_other_models_are_refused() {
    let (Some(model), Some(path)) = (
        model("qwen3/model-q4_k_m.gguf"),
        case("qwen3/model-q4_k_m.gguf"),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.gguf");
    let mut session = model.session(&SessionOptions::default());
    assert!(matches!(
        session.load_state(&path),
        Err(StateError::NotAState { .. })
    ));
    assert!(matches!(
        session.load_state(folder.path().join("absent")),
        Err(StateError::Gguf(_))
    ));
    edited(&model, &state, |w| {
        w.set_metadata("state.model", Value::from("another"));
    });
    assert!(matches!(
        session.load_state(&state),
        Err(StateError::OtherModel { .. })
    ));
    edited(&model, &state, |_| {});
    let small = SessionOptions {
        context: Some(8),
        ..SessionOptions::default()
    };
    assert!(matches!(
        model.session(&small).load_state(&state),
        Err(StateError::ContextFull {
            rows: 12,
            limit: 8,
            ..
        })
    ));
    assert_eq!(session.load_state(&state).unwrap(), TOKENS.len());
}

#[test]
fn an_empty_state_and_another_element_type() {
    let Some(model) = model("qwen3/model-q4_k_m.gguf") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.gguf");
    let empty = model.session(&SessionOptions::default());
    empty.save_state(&path).unwrap();
    let mut session = model.session(&SessionOptions::default());
    session.feed(&TOKENS).unwrap();
    assert_eq!(session.load_state(&path).unwrap(), 0);
    assert!(session.cache().is_empty());
    session.feed(&TOKENS).unwrap();
    session.save_state(&path).unwrap();
    let half = SessionOptions {
        cache_dtype: CacheDtype::F16,
        ..SessionOptions::default()
    };
    let mut session = model.session(&half);
    session.load_state(&path).unwrap();
    let last = session.feed(&[3]).unwrap();
    let mut exact = model.session(&SessionOptions::default());
    exact.feed(&TOKENS).unwrap();
    let e = nmse(&last, &exact.feed(&[3]).unwrap());
    assert!(e > 0.0 && e < 1e-6, "NMSE {e:.1e}");
}

/// Only full layers grow with the text.
#[test]
fn windows_keep_their_rows_only() {
    let Some(model) = model("gemma3/model-bf16.gguf") else {
        return;
    };
    let read = |tokens: usize| {
        let mut session = model.session(&chunked(16));
        let text: Vec<u32> = (0..tokens as u32).map(|i| i % 100).collect();
        session.feed(&text).unwrap();
        session.cache().bytes()
    };
    let layers = model.model().cache_layers();
    let (short, long) = (read(250), read(500));
    let grown = long - short;
    // Each full layer doubles from 256 to 512 rows; were there no windows, all would.
    assert!(grown > 0 && grown < short, "{short} then {long} bytes");
    assert!(layers > 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.gguf");
    let mut session = model.session(&chunked(16));
    session.feed(&TOKENS.repeat(40)).unwrap();
    session.save_state(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let rows = |layer: usize| gguf.require(&format!("layer.{layer}.k")).unwrap().shape()[1];
    let kept: Vec<u64> = (0..layers).map(rows).collect();
    assert!(kept.contains(&480), "no full layer: {kept:?}");
    assert!(kept.iter().any(|&n| n < 100), "no window: {kept:?}");
}

#[test]
fn values_that_changed_on_disk_are_noticed() {
    let Some(model) = model("qwen3/model-q4_k_m.gguf") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.gguf");
    let mut session = model.session(&SessionOptions::default());
    session.feed(&TOKENS).unwrap();
    session.save_state(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    let values = Gguf::open(&path).unwrap();
    let at = values.require("layer.0.v").unwrap().byte_range().start;
    let mut bad = good.clone();
    bad[at] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let error = session.load_state(&path).unwrap_err().to_string();
    assert!(error.contains("not those that were written"), "{error}");
    std::fs::write(&path, &good).unwrap();
    assert_eq!(session.load_state(&path).unwrap(), TOKENS.len());
}

/// The same tensors under another key, or other values far into one, are another model.
#[test]
fn models_are_told_apart() {
    let Some(path) = case("qwen3/model-f32.gguf") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let gguf = Gguf::open(&path).unwrap();
    let mut rope = GgufWriter::new();
    rope.copy_from(&gguf);
    rope.set_metadata("qwen3.rope.freq_base", 10.0f32);
    rope.write_file(at("rope.gguf")).unwrap();
    let mut tail = GgufWriter::new();
    tail.copy_metadata(gguf.metadata());
    for tensor in gguf.tensors() {
        match tensor.name() {
            "blk.0.attn_v.weight" => {
                let mut bytes = tensor.data().to_vec();
                bytes[64..].fill(0);
                tail.tensor(
                    tensor.name(),
                    tensor.shape(),
                    tensor.ggml_type().unwrap(),
                    bytes,
                );
            }
            _ => {
                tail.copy_tensor(tensor);
            }
        }
    }
    tail.write_file(at("tail.gguf")).unwrap();
    let state = at("state.gguf");
    let open = |path: &Path| load(path, &Device::flex(), Arithmetic::Exact).unwrap();
    let model = open(&path);
    let mut session = model.session(&SessionOptions::default());
    session.feed(&TOKENS).unwrap();
    session.save_state(&state).unwrap();
    for other in ["rope.gguf", "tail.gguf"] {
        let other = open(&at(other));
        let mut session = other.session(&SessionOptions::default());
        let error = session.load_state(&state).unwrap_err();
        assert!(matches!(error, StateError::OtherModel { .. }), "{error}");
    }
}
