//! Writing, and reading back what was written.

use std::borrow::Cow;
use std::fs;

use burn_gguf::gguf::{Array, Gguf, GgufString, GgufWriter, StringArray, TensorData, Value};
use burn_gguf_kernels::GgmlType;
use tempfile::TempDir;

use crate::builder::sample;

fn every_kind_of_value(writer: &mut GgufWriter<'_>) {
    let nested = Array::Array(vec![
        Array::U8(vec![1]),
        Array::String(StringArray::default()),
    ]);
    writer
        .metadata("general.architecture", "test")
        .metadata("u8", 1u8)
        .metadata("i8", -1i8)
        .metadata("u16", 2u16)
        .metadata("i16", -2i16)
        .metadata("u32", 3u32)
        .metadata("i32", -3i32)
        .metadata("f32", 0.1f32)
        .metadata("bool", true)
        .metadata("string", String::from("ünï\0code"))
        .metadata("raw", GgufString::new(&b"\xff\x00"[..]))
        .metadata("u64", u64::MAX)
        .metadata("i64", i64::MIN)
        .metadata("f64", f64::MIN_POSITIVE)
        .metadata("u8s", vec![1u8, 2])
        .metadata("i8s", vec![-1i8, 2])
        .metadata("u16s", vec![1u16, 2])
        .metadata("i16s", vec![-1i16, 2])
        .metadata("u32s", vec![1u32, 2])
        .metadata("i32s", &[-1i32, 2][..])
        .metadata("f32s", vec![1f32, 2.0])
        .metadata("bools", vec![true, false])
        .metadata("strings", vec!["a", "", "ü"])
        .metadata("owned strings", vec![String::from("x")])
        .metadata("u64s", vec![1u64, 2])
        .metadata("i64s", vec![-1i64, 2])
        .metadata("f64s", vec![1f64, 2.0])
        .metadata("empty", Vec::<f32>::new())
        .metadata("nested", nested);
}

/// Bytes that differ between tensors and positions.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + seed * 31 + 1) as u8).collect()
}

#[test]
fn what_is_written_is_read() {
    for alignment in [None, Some(1), Some(32), Some(64), Some(1024)] {
        let mut writer = GgufWriter::new();
        every_kind_of_value(&mut writer);
        if let Some(alignment) = alignment {
            writer.alignment(alignment);
        }
        for ty in GgmlType::ALL {
            let row = ty.block_len() as u64;
            let data = pattern(ty.id() as usize, 6 * ty.block_bytes());
            writer.tensor(format!("t{}", ty.id()), &[2 * row, 3], *ty, data);
        }
        writer
            .tensor("scalar", &[], GgmlType::F32, vec![1; 4])
            .tensor("none", &[32, 0], GgmlType::Q8_0, vec![])
            .tensor("four", &[1, 2, 3, 4], GgmlType::I8, pattern(9, 24));
        let bytes = writer.to_bytes().unwrap();
        let gguf = Gguf::from_bytes(bytes.clone()).unwrap();

        assert_eq!(gguf.version(), 3);
        let expected = alignment.unwrap_or(32);
        assert_eq!(gguf.alignment(), expected);
        assert_eq!(bytes.len() % expected as usize, 0);
        assert_eq!(gguf.tensors().len(), GgmlType::ALL.len() + 3);
        for ty in GgmlType::ALL {
            let tensor = gguf.require(&format!("t{}", ty.id())).unwrap();
            assert_eq!(tensor.shape(), [2 * ty.block_len() as u64, 3]);
            assert_eq!(tensor.ggml_type(), Some(*ty));
            assert_eq!(tensor.byte_range().start % expected as usize, 0);
            let data = pattern(ty.id() as usize, 6 * ty.block_bytes());
            assert_eq!(tensor.data(), data, "{ty}");
        }
        assert!(gguf.require("scalar").unwrap().shape().is_empty());
        assert_eq!(gguf.require("none").unwrap().shape(), [32, 0]);
        assert_eq!(gguf.require("four").unwrap().data(), pattern(9, 24));

        let m = gguf.metadata();
        assert_eq!(m.value("u8"), Some(&Value::U8(1)));
        assert_eq!(m.value("i16s"), Some(&Value::from(vec![-1i16, 2])));
        assert_eq!(m.value("f32"), Some(&Value::F32(0.1)));
        assert_eq!(m.get::<&str>("string").unwrap(), "ünï\0code");
        assert_eq!(m.get::<&[u8]>("raw").unwrap(), b"\xff\x00");
        assert_eq!(m.get::<Vec<&str>>("strings").unwrap(), ["a", "", "ü"]);
        assert_eq!(m.value("empty"), Some(&Value::from(Vec::<f32>::new())));

        // A copy is the same file, byte for byte.
        let copy = GgufWriter::new().copy_from(&gguf).to_bytes().unwrap();
        assert!(copy == bytes, "alignment {alignment:?}");
        assert_eq!(Gguf::from_bytes(copy).unwrap().metadata(), m);
    }
}

#[test]
fn a_copy_of_a_hand_made_file_is_the_same_file() {
    let bytes = sample().bytes();
    let gguf = Gguf::from_bytes(bytes.clone().into()).unwrap();
    let copy = GgufWriter::new().copy_from(&gguf).to_bytes().unwrap();
    assert_eq!(copy, bytes);
}

#[test]
fn types_of_unknown_size_are_copied() {
    for id in [139, 36] {
        let bytes = sample()
            .tensor("odd", &[7, 3], id, 64)
            .data([5; 96])
            .bytes();
        let gguf = Gguf::from_bytes(bytes.clone().into()).unwrap();
        let copy = GgufWriter::new().copy_from(&gguf).to_bytes().unwrap();
        assert_eq!(copy, bytes);
    }
}

#[test]
fn data_may_be_owned_borrowed_shared_or_produced() {
    let borrowed = pattern(2, 16);
    let shared = bytes::Bytes::from(pattern(3, 16));
    let mut writer = GgufWriter::new();
    writer
        .tensor("owned", &[4], GgmlType::F32, pattern(1, 16))
        .tensor("borrowed", &[4], GgmlType::F32, &borrowed[..])
        .tensor("shared", &[4], GgmlType::F32, shared.clone())
        .tensor("cow", &[4], GgmlType::F32, Cow::Borrowed(&borrowed[..]))
        .tensor_with("produced", &[4], GgmlType::F32, |out| {
            borrowed
                .chunks(3)
                .try_for_each(|piece| out.write_all(piece))
        })
        .tensor(
            "boxed",
            &[4],
            GgmlType::F32,
            TensorData::Produced(Box::new(|out| out.write_all(&[9; 16]))),
        );
    // Written twice, the producers run twice.
    let first = writer.to_bytes().unwrap();
    assert_eq!(writer.to_bytes().unwrap(), first);
    let gguf = Gguf::from_bytes(first).unwrap();
    let data = |name: &str| gguf.require(name).unwrap().data().to_vec();
    assert_eq!(data("owned"), pattern(1, 16));
    assert_eq!(data("borrowed"), borrowed);
    assert_eq!(data("shared"), shared);
    assert_eq!(data("cow"), borrowed);
    assert_eq!(data("produced"), borrowed);
    assert_eq!(data("boxed"), [9; 16]);
}

#[test]
fn metadata_can_be_replaced_and_removed() {
    let gguf = sample().open().unwrap();
    let bytes = GgufWriter::new()
        .copy_from(&gguf)
        .set_metadata("general.architecture", "other")
        .set_metadata("new", 1u8)
        .remove_metadata("u8")
        .remove_metadata("absent")
        .to_bytes()
        .unwrap();
    let edited = Gguf::from_bytes(bytes).unwrap();
    let m = edited.metadata();
    assert_eq!(m.architecture().unwrap(), "other");
    assert_eq!(m.get::<u8>("new").unwrap(), 1);
    assert!(!m.contains("u8"));
    assert_eq!(m.len(), gguf.metadata().len());
}

#[test]
fn the_last_alignment_holds() {
    let bytes = GgufWriter::new()
        .alignment(64)
        .alignment(128)
        .tensor("t", &[1], GgmlType::F32, vec![0; 4])
        .to_bytes()
        .unwrap();
    assert_eq!(Gguf::from_bytes(bytes).unwrap().alignment(), 128);
}

#[test]
fn write_to_says_how_much_it_wrote() {
    for tensors in [0, 1, 5] {
        let mut writer = GgufWriter::new();
        writer.metadata("a", "b");
        for i in 0..tensors {
            writer.tensor(format!("{i}"), &[3], GgmlType::F32, vec![0; 12]);
        }
        let mut out = Vec::new();
        assert_eq!(writer.write_to(&mut out).unwrap(), out.len() as u64);
    }
}

#[test]
fn a_file_is_replaced_under_an_open_map() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    fs::write(&path, sample().bytes()).unwrap();
    let old = Gguf::open(&path).unwrap();
    let size = GgufWriter::new()
        .copy_from(&old)
        .set_metadata("new", 1u8)
        .write_file(&path)
        .unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let new = Gguf::open(&path).unwrap();
    assert!(new.metadata().contains("new") && !old.metadata().contains("new"));
    for (a, b) in old.tensors().zip(new.tensors()) {
        assert_eq!(a.data(), b.data());
    }
    // Nothing else is left in the directory.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_empty_file_of_nothing() {
    let bytes = GgufWriter::new().to_bytes().unwrap();
    assert_eq!(bytes.len(), 24);
    assert_eq!(Gguf::from_bytes(bytes).unwrap().tensors().len(), 0);
}
