//! Errors of asking for what is not there, or not of that kind; and what only the writer refuses.

use std::fs;
use std::io::Write;

use burn_gguf::gguf::{Gguf, GgufError, GgufWriter, TensorData, Value};
use burn_gguf_kernels::GgmlType;
use tempfile::TempDir;

use super::assert_error;
use crate::builder::*;

const MEMORY: &str = "<GGUF in memory>";

#[test]
fn missing_key() {
    let gguf = sample().open().unwrap();
    assert_error!(
        gguf.metadata().get::<u32>("absent").unwrap_err(),
        GgufError::MissingKey { .. },
        MEMORY,
        "`absent` is missing"
    );
    assert_error!(
        gguf.metadata().per_layer::<u32>("absent", 2).unwrap_err(),
        GgufError::MissingKey { .. },
        "`absent`"
    );
}

#[test]
fn wrong_type() {
    let gguf = sample().open().unwrap();
    let m = gguf.metadata();
    assert_error!(
        m.get::<u32>("f32").unwrap_err(),
        GgufError::WrongType { .. },
        "`f32` is f32, expected an integer"
    );
    assert_error!(
        m.get::<bool>("u8").unwrap_err(),
        GgufError::WrongType { .. },
        "expected a bool"
    );
    assert_error!(
        m.get::<String>("strings").unwrap_err(),
        GgufError::WrongType { .. },
        "is array of string, expected a string"
    );
    assert_error!(
        m.get::<Vec<u32>>("strings").unwrap_err(),
        GgufError::WrongType { .. },
        "expected an array, each element an integer"
    );
    assert_error!(
        m.get_or("f32", 3usize).unwrap_err(),
        GgufError::WrongType { .. },
        "`f32`"
    );
    assert_error!(
        m.get_optional::<&str>("bools").unwrap_err(),
        GgufError::WrongType { .. },
        "`bools`"
    );
    assert_error!(
        m.per_layer::<u32>("bools", 3).unwrap_err(),
        GgufError::WrongType { .. },
        "`bools`"
    );
    // An alignment that is no number.
    assert_error!(
        Builder::new().key("general.alignment", strv("32")).error(),
        GgufError::WrongType { .. },
        "`general.alignment` is string"
    );
}

#[test]
fn out_of_range() {
    let gguf = sample().open().unwrap();
    let m = gguf.metadata();
    assert_error!(
        m.get::<u32>("i32").unwrap_err(),
        GgufError::OutOfRange { .. },
        "`i32` holds -5, which does not fit u32"
    );
    assert_error!(
        m.get::<i64>("u64").unwrap_err(),
        GgufError::OutOfRange { .. },
        "18446744073709551615"
    );
    assert_error!(
        m.get::<f32>("u32")
            .err()
            .unwrap_or(m.get::<f32>("u64").unwrap_err()),
        GgufError::OutOfRange { .. },
        "does not fit f32"
    );
    let gguf = Builder::new()
        .key(
            "list",
            arrayv(4, 2, [1u32.to_le_bytes(), 300u32.to_le_bytes()].concat()),
        )
        .key("huge", (12, 1e300f64.to_le_bytes().to_vec()))
        .open()
        .unwrap();
    assert_error!(
        gguf.metadata().get::<Vec<u8>>("list").unwrap_err(),
        GgufError::OutOfRange { .. },
        "`list` holds 300, which does not fit u8"
    );
    assert_error!(
        gguf.metadata().get::<f32>("huge").unwrap_err(),
        GgufError::OutOfRange { .. },
        "does not fit f32"
    );
}

#[test]
fn string_not_utf8() {
    let strings = [string("fine"), string(b"\xff\xfe")].concat();
    let gguf = Builder::new()
        .key("text", strv(b"\x80abc"))
        .key("tokens", arrayv(8, 2, strings))
        .open()
        .unwrap();
    let m = gguf.metadata();
    assert_error!(
        m.get::<String>("text").unwrap_err(),
        GgufError::StringNotUtf8 { index: None, .. },
        "`text` is not UTF-8"
    );
    assert_error!(
        m.get::<Vec<String>>("tokens").unwrap_err(),
        GgufError::StringNotUtf8 { index: Some(1), .. },
        "`tokens` is not UTF-8 in entry 1"
    );
    assert_eq!(m.get::<&[u8]>("text").unwrap(), b"\x80abc");
    assert_eq!(
        m.get::<Vec<&[u8]>>("tokens").unwrap(),
        [&b"fine"[..], b"\xff\xfe"]
    );
}

#[test]
fn layer_count() {
    let gguf = sample().open().unwrap();
    for layers in [1, 3, 0] {
        assert_error!(
            gguf.metadata()
                .per_layer::<u32>("numbers", layers)
                .unwrap_err(),
            GgufError::LayerCount { found: 2, .. },
            "`numbers` has 2 entries",
            &format!("each of {layers} layers")
        );
    }
}

#[test]
fn missing_tensor() {
    let gguf = sample().open().unwrap();
    assert_error!(
        gguf.require("third").unwrap_err(),
        GgufError::MissingTensor { .. },
        MEMORY,
        "tensor `third` is missing"
    );
    let vocabulary = Builder::new().key("a", u8v(1)).open().unwrap();
    assert_error!(
        vocabulary.require("third").unwrap_err(),
        GgufError::MissingTensor { tensors: 0, .. },
        "vocabulary only"
    );
}

#[test]
fn removed_type() {
    for id in [4, 5, 31, 32, 33, 36, 37, 38] {
        let gguf = Builder::new()
            .tensor("old", &[64], id, 0)
            .data([1; 64])
            .open()
            .unwrap();
        let name = GgmlType::from_id(id).unwrap().name();
        assert_error!(
            gguf.require("old").unwrap().usable_type().unwrap_err(),
            GgufError::RemovedType { type_id, .. } if *type_id == id,
            "tensor `old`",
            &format!("type {id} ({name})")
        );
    }
}

#[test]
fn unknown_type() {
    for id in [43, 139, u32::MAX] {
        let gguf = Builder::new()
            .tensor("new", &[5], id, 0)
            .data([1; 64])
            .open()
            .unwrap();
        assert_error!(
            gguf.require("new").unwrap().usable_type().unwrap_err(),
            GgufError::UnknownType { type_id, .. } if *type_id == id,
            "tensor `new`",
            &format!("unknown type id {id}")
        );
    }
}

#[test]
fn name_too_long() {
    let write = |length: usize| {
        GgufWriter::new()
            .tensor("n".repeat(length), &[1], GgmlType::F32, vec![0; 4])
            .to_bytes()
    };
    assert!(write(63).is_ok());
    assert_error!(
        write(64).unwrap_err(),
        GgufError::NameTooLong { length: 64, .. },
        "64 bytes",
        "at most 63"
    );
}

#[test]
fn data_size() {
    assert_error!(
        GgufWriter::new()
            .tensor("t", &[2], GgmlType::F32, vec![0; 7])
            .to_bytes()
            .unwrap_err(),
        GgufError::DataSize {
            need: 8,
            have: 7,
            ..
        },
        "tensor `t` needs 8 bytes, 7 were given"
    );
    for produced in [0usize, 7, 9, 100] {
        let mut writer = GgufWriter::new();
        writer.tensor_with("t", &[2], GgmlType::F32, move |out| {
            (0..produced).try_for_each(|_| out.write_all(&[1]))
        });
        // Too much is noticed at the first byte too many.
        let have = produced.min(9) as u64;
        assert_error!(
            writer.to_bytes().unwrap_err(),
            GgufError::DataSize { need: 8, have: h, .. } if *h == have,
            "tensor `t` needs 8 bytes"
        );
    }
}

#[test]
fn total_size_overflow() {
    let huge = [i64::MAX as u64];
    let nothing = || TensorData::Produced(Box::new(|_: &mut dyn Write| Ok(())));
    let mut writer = GgufWriter::new();
    for name in ["a", "b", "c"] {
        writer.tensor(name, &huge, GgmlType::I8, nothing());
    }
    assert_error!(
        writer.to_bytes().unwrap_err(),
        GgufError::TotalSizeOverflow { .. },
        "tensor `b`"
    );
}

#[test]
fn errors_name_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("named.gguf");
    fs::write(&path, sample().bytes()).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let missing = gguf.metadata().get::<u32>("absent").unwrap_err();
    assert!(missing.to_string().contains("named.gguf: "), "{missing}");
    let missing = gguf.require("absent").unwrap_err();
    assert!(missing.to_string().contains("named.gguf: "), "{missing}");
    let bad = GgufWriter::new()
        .metadata("", Value::U8(0))
        .write_file(&path)
        .unwrap_err();
    assert!(bad.to_string().contains("named.gguf: "), "{bad}");
    // The failed write left the file as it was, and nothing beside it.
    assert_eq!(fs::read(&path).unwrap(), sample().bytes());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
