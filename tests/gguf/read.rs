//! Valid files: tensors, alignments, unusual shapes and types, zero copy.

use std::fs;

use burn_gguf::gguf::Gguf;
use burn_gguf_kernels::GgmlType;
use tempfile::TempDir;

use crate::builder::*;

fn on_disk(bytes: &[u8]) -> (TempDir, Gguf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    fs::write(&path, bytes).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    (dir, gguf)
}

#[test]
fn sample_opens() {
    let bytes = sample().bytes();
    let (dir, gguf) = on_disk(&bytes);
    let path = dir.path().join("m.gguf");
    assert_eq!(gguf.path(), Some(&*path));
    assert_eq!(gguf.shards().collect::<Vec<_>>(), [&*path]);
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.alignment(), 32);
    assert_eq!(gguf.file_size(), bytes.len() as u64);
    let names: Vec<_> = gguf.tensors().map(|t| t.name()).collect();
    assert_eq!(names, ["first", "second"]);

    let second = gguf.require("second").unwrap();
    assert_eq!(second.shape(), [8]);
    assert_eq!(second.type_id(), 0);
    assert_eq!(second.ggml_type(), Some(GgmlType::F32));
    assert_eq!(second.usable_type().unwrap(), GgmlType::F32);
    assert_eq!((second.n_elements(), second.byte_len()), (8, 32));
    assert_eq!(second.shard(), 0);
    let expected: Vec<u8> = (0..8)
        .flat_map(|i| (i as f32 + 0.5).to_le_bytes())
        .collect();
    assert_eq!(second.data(), expected);
    assert_eq!(bytes[second.byte_range()], expected);
    assert!(gguf.tensor("third").is_none());
}

#[test]
fn from_memory_equals_from_disk() {
    let bytes = sample().bytes();
    let (_dir, disk) = on_disk(&bytes);
    let memory = Gguf::from_bytes(bytes.into()).unwrap();
    assert_eq!(memory.path(), None);
    assert_eq!(memory.shards().count(), 0);
    assert_eq!(memory.metadata(), disk.metadata());
    for (a, b) in memory.tensors().zip(disk.tensors()) {
        assert_eq!(
            (a.name(), a.shape(), a.data()),
            (b.name(), b.shape(), b.data())
        );
    }
}

#[test]
fn tensors_outlive_the_file_handle() {
    let (_dir, gguf) = on_disk(&sample().bytes());
    let bytes = gguf.require("second").unwrap().bytes();
    let info = gguf.require("first").unwrap().clone();
    drop(gguf);
    assert_eq!(bytes[..4], 0.5f32.to_le_bytes());
    assert_eq!(info.data()[..4], 0.5f32.to_le_bytes());
}

#[test]
fn bytes_are_the_map() {
    let (_dir, gguf) = on_disk(&sample().bytes());
    for tensor in gguf.tensors() {
        let bytes = tensor.bytes();
        assert_eq!(tensor.data().as_ptr(), bytes.as_ptr());
        assert_eq!(tensor.clone().bytes().as_ptr(), bytes.as_ptr());
        assert_eq!(bytes.as_ptr() as usize % 32, 0);
        if cfg!(target_os = "linux") {
            let at = bytes.as_ptr() as usize;
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let inside = maps.lines().any(|line| {
                let (start, rest) = line.split_once('-').unwrap();
                let (end, rest) = rest.split_once(' ').unwrap();
                let range = usize::from_str_radix(start, 16).unwrap()
                    ..usize::from_str_radix(end, 16).unwrap();
                rest.ends_with("m.gguf") && range.contains(&at)
            });
            assert!(inside, "{at:x} is not in the mapped file");
        } else {
            println!("skipped: no /proc/self/maps to look the address up in");
        }
    }
}

#[test]
fn bytes_are_the_callers_memory() {
    let bytes = bytes::Bytes::from(sample().bytes());
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let tensor = gguf.require("first").unwrap();
    assert_eq!(tensor.bytes().as_ptr(), bytes[tensor.byte_range()].as_ptr());
}

#[test]
fn padded_bytes_reach_into_padding_only() {
    // Q8_0 block: 34 bytes, padded to 64 in the file.
    let file = Builder::new()
        .tensor("a", &[32], 8, 0)
        .tensor("b", &[32], 8, 64)
        .data([1; 34])
        .data([0; 30])
        .data([2; 34]);
    let gguf = Gguf::from_bytes(file.bytes().into()).unwrap();
    let a = gguf.require("a").unwrap();
    assert_eq!(a.padded_bytes(1).unwrap(), a.bytes());
    assert_eq!(a.padded_bytes(2).unwrap().len(), 34);
    let padded = a.padded_bytes(4).unwrap();
    assert_eq!(padded.len(), 36);
    assert_eq!(padded.as_ptr(), a.data().as_ptr());
    assert_eq!(padded[34..], [0, 0]);
    assert_eq!(a.padded_bytes(64).unwrap().len(), 64);
    // Beyond the padding is the next tensor.
    assert!(a.padded_bytes(128).is_none());
    assert!(a.padded_bytes(0).is_none());
    // The file ends right after the last tensor.
    let b = gguf.require("b").unwrap();
    assert!(b.padded_bytes(4).is_none());
    assert_eq!(b.padded_bytes(2).unwrap().len(), 34);
}

#[test]
fn alignments_are_honoured() {
    for alignment in [1usize, 8, 32, 64, 1024, 4 << 20] {
        let mut file = Builder::new().key("general.alignment", u32v(alignment as u32));
        file.alignment = alignment;
        let gguf = file.f32("a", 3).f32("b", 5).open().unwrap();
        assert_eq!(gguf.alignment() as usize, alignment);
        for (name, n) in [("a", 3), ("b", 5)] {
            let tensor = gguf.require(name).unwrap();
            assert_eq!(tensor.byte_range().start % alignment, 0);
            assert_eq!(tensor.byte_len(), 4 * n);
            assert_eq!(tensor.data()[..4], 0.5f32.to_le_bytes());
        }
    }
}

#[test]
fn an_alignment_of_any_integer_width() {
    let mut file = Builder::new().key("general.alignment", u64v(64));
    file.alignment = 64;
    assert_eq!(file.f32("a", 3).open().unwrap().alignment(), 64);
}

#[test]
fn no_tensors_and_no_keys() {
    let gguf = Builder::new().open().unwrap();
    assert_eq!(gguf.tensors().len(), 0);
    assert!(gguf.metadata().is_empty());
    let vocabulary = Builder::new()
        .key("tokenizer.ggml.tokens", arrayv(8, 1, string("a")))
        .open()
        .unwrap();
    assert_eq!(vocabulary.tensors().len(), 0);
    let tokens: Vec<&str> = vocabulary.metadata().get("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens, ["a"]);
}

#[test]
fn a_scalar_has_no_dimensions() {
    let gguf = Builder::new()
        .tensor("s", &[], 0, 0)
        .data(2.5f32.to_le_bytes())
        .open()
        .unwrap();
    let scalar = gguf.require("s").unwrap();
    assert!(scalar.shape().is_empty());
    assert_eq!(scalar.n_elements(), 1);
    assert_eq!(scalar.data(), 2.5f32.to_le_bytes());
}

#[test]
fn dimensions_of_zero() {
    let gguf = Builder::new()
        .tensor("a", &[0], 8, 0)
        .tensor("b", &[32, 0], 8, 0)
        .tensor("c", &[8], 0, 0)
        .tensor("d", &[4, 0, 7], 0, 32)
        .data([1; 32])
        .open()
        .unwrap();
    for (name, shape) in [("a", &[0][..]), ("b", &[32, 0]), ("d", &[4, 0, 7])] {
        let tensor = gguf.require(name).unwrap();
        assert_eq!(tensor.shape(), shape);
        assert_eq!((tensor.n_elements(), tensor.byte_len()), (0, 0));
        assert!(tensor.data().is_empty() && tensor.bytes().is_empty());
        assert!(tensor.padded_bytes(4).unwrap().is_empty());
    }
    assert_eq!(gguf.require("c").unwrap().byte_len(), 32);
}

#[test]
fn a_last_tensor_of_no_bytes_may_lie_past_the_end() {
    // The writer left out the padding that would put `z` inside the file.
    let gguf = Builder::new()
        .tensor("a", &[3], 0, 0)
        .tensor("z", &[0], 0, 32)
        .data([1; 12])
        .open()
        .unwrap();
    assert!(gguf.require("z").unwrap().data().is_empty());
}

#[test]
fn every_type_opens() {
    for ty in GgmlType::ALL {
        let row = ty.block_len() as u64;
        let size = 2 * ty.block_bytes();
        let gguf = Builder::new()
            .tensor("t", &[row, 2], ty.id(), 0)
            .data(vec![3; size])
            .open()
            .unwrap();
        let tensor = gguf.require("t").unwrap();
        assert_eq!(tensor.ggml_type(), Some(*ty));
        assert_eq!(tensor.data(), vec![3; size]);
        assert_eq!(tensor.usable_type().is_ok(), !ty.is_removed());
    }
}

#[test]
fn tensors_of_unknown_size_end_at_the_next() {
    // 139 is a fork's type; 36 was removed and is used by forks with another size.
    for id in [139, 36] {
        let gguf = Builder::new()
            .tensor("a", &[8], 0, 0)
            .tensor("odd", &[7, 3], id, 32)
            .tensor("b", &[8], 0, 128)
            .tensor("last", &[9], id, 160)
            .data([1; 32])
            .data([2; 96])
            .data([3; 32])
            .data([4; 50])
            .open()
            .unwrap();
        assert_eq!(gguf.require("odd").unwrap().data(), [2; 96]);
        assert_eq!(gguf.require("odd").unwrap().n_elements(), 21);
        assert_eq!(gguf.require("b").unwrap().data(), [3; 32]);
        assert_eq!(gguf.require("last").unwrap().data(), [4; 50]);
        assert!(gguf.require("b").unwrap().usable_type().is_ok());
    }
    // A removed type whose old size agrees with the offsets has that size, without padding.
    let gguf = Builder::new()
        .tensor("old", &[32], 36, 0)
        .tensor("b", &[8], 0, 32)
        .data([1; 18])
        .data([0; 14])
        .data([3; 32])
        .open()
        .unwrap();
    assert_eq!(gguf.require("old").unwrap().data(), [1; 18]);
}

#[test]
fn bytes_after_the_last_tensor_are_ignored() {
    let mut bytes = sample().bytes();
    bytes.extend([7; 1000]);
    let gguf = Gguf::from_bytes(bytes.into()).unwrap();
    assert_eq!(gguf.tensors().len(), 2);
}
