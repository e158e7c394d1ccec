//! What is wrong with a model or a request is said by name.

mod common;

use std::path::PathBuf;

use burn::tensor::Device;
use burn_gguf::gguf::{Gguf, GgufError, GgufWriter, Value};
use burn_gguf::store::GgufStoreError;
use burn_gguf::{Arithmetic, GgmlType};
use burn_gguf_models::{AutoModel, LoadOptions, ModelError, SessionOptions};
use common::case;

fn fixture(path: &str) -> Gguf {
    Gguf::open(case(path).expect("the fixture is in the repository")).unwrap()
}

fn qwen2() -> Gguf {
    fixture("qwen2/model-bf16.gguf")
}

/// What another file says when it is loaded on the CPU.
fn refused(writer: &GgufWriter<'_>) -> ModelError {
    let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    match AutoModel::load(gguf, &Device::flex(), LoadOptions::default()) {
        Ok(_) => panic!("the file was loaded"),
        Err(error) => error,
    }
}

/// All of `gguf` but the tensors `leave_out` names.
fn without<'a>(gguf: &Gguf, leave_out: impl Fn(&str) -> bool) -> GgufWriter<'a> {
    let mut writer = GgufWriter::new();
    writer.copy_metadata(gguf.metadata());
    for tensor in gguf.tensors().filter(|t| !leave_out(t.name())) {
        writer.copy_tensor(tensor);
    }
    writer
}

fn floats(n: usize) -> Vec<u8> {
    vec![0; n * 4]
}

#[test]
fn missing_files_and_foreign_files() {
    let error = |path: PathBuf| {
        AutoModel::open(path, &Device::flex())
            .err()
            .expect("no model")
    };
    let missing = error("no/such/model.gguf".into());
    assert!(
        matches!(missing, ModelError::Gguf(GgufError::NotFound { .. })),
        "{missing:?}"
    );
    let foreign = error(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    assert!(
        matches!(foreign, ModelError::Gguf(GgufError::BadMagic { .. })),
        "{foreign:?}"
    );
    assert!(foreign.to_string().contains("Cargo.toml"), "{foreign}");
}

#[test]
fn a_vocabulary_is_no_model() {
    let error = refused(&without(&qwen2(), |_| true));
    assert!(matches!(error, ModelError::NoTensors { .. }), "{error:?}");
    assert!(error.to_string().contains("vocabulary-only"), "{error}");
}

#[test]
fn an_unknown_architecture_lists_the_supported_ones() {
    let mut writer = without(&qwen2(), |_| false);
    writer.set_metadata("general.architecture", "gpt9");
    let error = refused(&writer);
    let ModelError::UnknownArchitecture {
        architecture,
        supported,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(architecture, "gpt9");
    for name in ["qwen2", "qwen3", "gemma3"] {
        assert!(supported.contains(name), "{supported}");
    }
    writer.remove_metadata("general.architecture");
    let error = refused(&writer);
    assert!(
        matches!(&error, ModelError::Gguf(GgufError::MissingKey { key, .. }) if key == "general.architecture"),
        "{error:?}"
    );
}

#[test]
fn every_missing_tensor_is_named() {
    let gone = [
        "blk.1.attn_k.weight",
        "blk.2.ffn_norm.weight",
        "blk.0.attn_q.bias",
        "output_norm.weight",
    ];
    for name in gone {
        let error = refused(&without(&qwen2(), |tensor| tensor == name));
        assert!(error.to_string().contains(name), "without {name}: {error}");
    }
    let error = refused(&without(&qwen2(), |tensor| gone[..2].contains(&tensor)));
    let ModelError::Store {
        architecture,
        source,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(architecture, "qwen2");
    let GgufStoreError::Missing { names, .. } = &**source else {
        panic!("{source:?}")
    };
    let mut names = names.clone();
    names.sort();
    assert_eq!(names, &gone[..2]);
    let error = refused(&without(&qwen2(), |tensor| tensor == "token_embd.weight"));
    assert!(error.to_string().contains("token_embd.weight"), "{error}");
}

#[test]
fn a_wrong_shape_is_named_with_both_shapes() {
    for (name, shape, expected, found) in [
        (
            "blk.1.attn_q.weight",
            vec![128, 64],
            "[128, 128]",
            "[64, 128]",
        ),
        ("blk.1.ffn_norm.weight", vec![96], "[128]", "[96]"),
        ("blk.0.attn_k.bias", vec![128], "[64]", "[128]"),
    ] {
        let mut writer = without(&qwen2(), |tensor| tensor == name);
        let n = shape.iter().product::<u64>() as usize;
        writer.tensor(name, &shape, GgmlType::F32, floats(n));
        let error = refused(&writer);
        let ModelError::Store { source, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(
            matches!(&**source, GgufStoreError::Mismatch { .. }),
            "{source:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.contains(found),
            "{name}: {text}"
        );
    }
}

#[test]
fn an_unused_tensor_is_reported_and_harmless() {
    let mut writer = without(&qwen2(), |_| false);
    writer.tensor("blk.0.extra.weight", &[4], GgmlType::F32, floats(4));
    let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    let model = AutoModel::load(gguf, &Device::flex(), LoadOptions::default()).unwrap();
    assert_eq!(model.report().unused, ["blk.0.extra.weight"]);
}

#[test]
fn an_array_per_layer_needs_one_value_a_layer() {
    for key in ["qwen2.attention.head_count", "qwen2.feed_forward_length"] {
        let mut writer = without(&qwen2(), |_| false);
        writer.set_metadata(key, vec![4u32, 4]);
        let error = refused(&writer);
        let ModelError::Gguf(GgufError::LayerCount {
            key: named,
            layers,
            found,
            ..
        }) = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!((named.as_str(), *layers, *found), (key, 3, 2));
    }
    // The right number works.
    let mut writer = without(&qwen2(), |_| false);
    writer.set_metadata("qwen2.attention.head_count", vec![4u32, 4, 4]);
    let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    AutoModel::load(gguf, &Device::flex(), LoadOptions::default()).unwrap();
}

#[test]
fn senseless_values_are_refused_by_key() {
    let values: [(&str, Value); 6] = [
        ("qwen2.attention.head_count_kv", 3u32.into()),
        ("qwen2.attention.head_count", 0u32.into()),
        ("qwen2.attention.head_count_kv", 0u32.into()),
        ("qwen2.block_count", 0u32.into()),
        ("qwen2.rope.scaling.type", "spiral".into()),
        ("qwen2.attention.value_length", 16u32.into()),
    ];
    for (key, value) in values {
        let mut writer = without(&qwen2(), |_| false);
        writer.set_metadata(key, value.clone());
        let error = refused(&writer);
        assert!(
            matches!(error, ModelError::InvalidValue { .. }),
            "{key} = {value:?}: {error:?}"
        );
        let named = [
            "head_count",
            "block_count",
            "rope.scaling.type",
            "value_length",
        ];
        assert!(
            named
                .iter()
                .any(|n| key.contains(n) && error.to_string().contains(n)),
            "{key}: {error}"
        );
    }
    for key in [
        "qwen2.embedding_length",
        "qwen2.context_length",
        "qwen2.attention.layer_norm_rms_epsilon",
    ] {
        let mut writer = without(&qwen2(), |_| false);
        writer.remove_metadata(key);
        let error = refused(&writer);
        assert!(
            matches!(&error, ModelError::Gguf(GgufError::MissingKey { key: k, .. }) if k == key),
            "{error:?}"
        );
    }
}

/// Values that pass as numbers but describe no model must end in an error, never in a panic or a huge allocation.
#[test]
fn hostile_sizes_end_in_an_error() {
    let values: [(&str, Value); 8] = [
        ("qwen2.block_count", u32::MAX.into()),
        ("qwen2.embedding_length", 0u32.into()),
        ("qwen2.embedding_length", u64::MAX.into()),
        ("qwen2.feed_forward_length", u64::MAX.into()),
        ("qwen2.attention.head_count", u64::MAX.into()),
        ("qwen2.attention.key_length", u64::MAX.into()),
        ("qwen2.attention.key_length", 0u32.into()),
        ("qwen2.rope.dimension_count", u64::MAX.into()),
    ];
    let mut panicked = Vec::new();
    for (key, value) in values {
        let mut writer = without(&qwen2(), |_| false);
        writer.set_metadata(key, value.clone());
        let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
        let loaded = std::panic::catch_unwind(|| {
            AutoModel::load(gguf, &Device::flex(), LoadOptions::default()).is_ok()
        });
        match loaded {
            Ok(true) => panicked.push(format!("{key} = {value:?} was accepted")),
            Ok(false) => {}
            Err(_) => panicked.push(format!("{key} = {value:?} panicked")),
        }
    }
    assert!(panicked.is_empty(), "{}", panicked.join("\n"));
}

#[test]
fn a_removed_block_type_is_named_with_its_tensor() {
    let name = "blk.1.ffn_up.weight";
    let mut writer = without(&fixture("qwen3/model-f32.gguf"), |tensor| tensor == name);
    let info = fixture("qwen3/model-f32.gguf")
        .require(name)
        .unwrap()
        .clone();
    let bytes = GgmlType::Q4_2
        .row_bytes(info.n_elements() as usize)
        .unwrap();
    writer.tensor(name, info.shape(), GgmlType::Q4_2, vec![0u8; bytes]);
    let text = refused(&writer).to_string();
    assert!(
        text.contains(name) && text.contains("Q4_2") && text.contains("removed"),
        "{text}"
    );
}

#[test]
fn a_scale_without_its_weight_is_named() {
    let mut writer = without(&fixture("qwen3/model-f32.gguf"), |_| false);
    writer.tensor("blk.0.attn_qq.scale", &[1], GgmlType::F32, floats(1));
    let error = refused(&writer);
    assert!(matches!(error, ModelError::StrayScale { .. }), "{error:?}");
    assert!(error.to_string().contains("blk.0.attn_qq.scale"), "{error}");
}

#[test]
fn session_errors_leave_the_session_usable() {
    let path = case("qwen2/model-bf16.gguf").expect("the fixture is in the repository");
    let model = common::load(&path, &Device::flex(), Arithmetic::Exact).unwrap();
    let options = SessionOptions {
        context: Some(8),
        ..SessionOptions::default()
    };
    let mut session = model.session(&options);
    assert!(matches!(session.feed(&[]), Err(ModelError::EmptyPrompt)));
    assert!(matches!(
        session.feed_all(&[]),
        Err(ModelError::EmptyPrompt)
    ));
    let vocab = model.model().vocab_size();
    let error = session.feed(&[1, vocab as u32, 2]).unwrap_err();
    assert!(
        matches!(error, ModelError::TokenOutOfRange { token, vocab: v } if token as usize == vocab && v == vocab)
    );
    let error = session.feed(&[1; 9]).unwrap_err();
    assert!(
        matches!(
            error,
            ModelError::ContextFull {
                tokens: 9,
                used: 0,
                limit: 8
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        session.cache().len(),
        0,
        "a refused call leaves nothing behind"
    );
    let fresh = session.feed(&[1, 2, 3, 4, 5]).unwrap();
    let error = session.feed(&[6, 7, 8, 9]).unwrap_err();
    assert!(
        matches!(
            error,
            ModelError::ContextFull {
                tokens: 4,
                used: 5,
                limit: 8
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains('8'), "{error}");
    session.feed(&[6, 7, 8]).unwrap();
    assert!(matches!(
        session.feed(&[1]),
        Err(ModelError::ContextFull { .. })
    ));
    session.cache_mut().reset();
    assert_eq!(
        session.feed(&[1, 2, 3, 4, 5]).unwrap(),
        fresh,
        "a reset session starts anew"
    );
}

/// `gguf` with a key changed.
fn with_key<'a>(gguf: &Gguf, key: &str, value: impl Into<Value>) -> GgufWriter<'a> {
    let mut writer = GgufWriter::new();
    writer.copy_from(gguf);
    writer.set_metadata(key, value);
    writer
}

#[test]
fn blocks_that_predict_further_tokens_are_told_by_their_tensors() {
    let gguf = fixture("qwen35/model-q4_k_m.gguf");
    for (count, block) in [(0u32, "block 2 has tensors"), (2, "block 1 has no tensors")] {
        let error = refused(&with_key(&gguf, "qwen35.nextn_predict_layers", count));
        assert!(
            matches!(&error, ModelError::InvalidValue { key, .. } if key == "qwen35.nextn_predict_layers"),
            "{error:?}"
        );
        assert!(error.to_string().contains(block), "{error}");
    }
}

#[test]
fn a_shared_expert_that_one_layer_lacks_is_missed() {
    let gguf = fixture("minimax-m3/model-bf16.gguf");
    let shared = |name: &str| name.ends_with("ffn_gate_shexp.weight");
    let layers: Vec<&str> = gguf
        .tensors()
        .map(|t| t.name())
        .filter(|n| shared(n))
        .collect();
    assert!(layers.len() > 1);
    for layer in layers {
        let error = refused(&without(&gguf, |name| name == layer)).to_string();
        assert!(error.contains(layer), "{layer}: {error}");
    }
}

#[test]
fn shares_of_experts_are_scaled_by_a_number() {
    let gguf = fixture("minimax-m3/model-bf16.gguf");
    for scale in [f32::NAN, f32::INFINITY] {
        let error = refused(&with_key(&gguf, "minimax-m3.expert_weights_scale", scale));
        assert!(
            matches!(&error, ModelError::InvalidValue { key, .. } if key.ends_with("expert_weights_scale")),
            "{error:?}"
        );
    }
}
