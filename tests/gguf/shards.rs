//! Split models.

use std::fs;
use std::path::{Path, PathBuf};

use burn_gguf::gguf::{Gguf, GgufError, GgufWriter};
use tempfile::TempDir;

use crate::builder::*;

/// A model of three shards: the first with all metadata and no tensors, the others with nothing but the split's keys.
struct Split {
    dir: TempDir,
}

fn shard(no: u16, count: u16, total: i32) -> Builder {
    Builder::new()
        .key("split.no", u16v(no))
        .key("split.count", u16v(count))
        .key("split.tensors.count", i32v(total))
}

impl Split {
    fn new() -> Self {
        let split = Split {
            dir: TempDir::new().unwrap(),
        };
        let first = shard(0, 3, 4)
            .key("general.architecture", strv("split"))
            .key("general.name", strv("one"));
        split.put(1, first);
        split.put(2, shard(1, 3, 4).f32("a", 3).f32("b", 8));
        split.put(3, shard(2, 3, 4).f32("c", 5).f32("d", 2));
        split
    }

    fn path(&self, number: u32) -> PathBuf {
        self.dir.path().join(format!("m-{number:05}-of-00003.gguf"))
    }

    fn put(&self, number: u32, builder: Builder) {
        fs::write(self.path(number), builder.bytes()).unwrap();
    }

    /// The error of opening through shard `number`.
    fn error(&self, number: u32) -> GgufError {
        Gguf::open(self.path(number)).expect_err("must not open")
    }
}

#[track_caller]
fn assert_message(error: &GgufError, texts: &[&str]) {
    let message = error.to_string();
    for text in texts {
        assert!(message.contains(text), "{text:?} not in {message:?}");
    }
}

#[test]
fn any_shard_opens_the_whole_model() {
    let split = Split::new();
    for number in 1..=3 {
        let gguf = Gguf::open(split.path(number)).unwrap();
        assert_eq!(gguf.path(), Some(&*split.path(number)));
        assert_eq!(gguf.metadata().architecture().unwrap(), "split");
        let names: Vec<_> = gguf.tensors().map(|t| (t.name(), t.shard())).collect();
        assert_eq!(names, [("a", 1), ("b", 1), ("c", 2), ("d", 2)]);
        let shards: Vec<_> = gguf.shards().map(Path::to_owned).collect();
        assert_eq!(shards, [split.path(1), split.path(2), split.path(3)]);
        let size: u64 = shards.iter().map(|p| fs::metadata(p).unwrap().len()).sum();
        assert_eq!(gguf.file_size(), size);
        let d = gguf.require("d").unwrap();
        assert_eq!(d.data()[..4], 0.5f32.to_le_bytes());
        assert_eq!(d.file().path(), Some(&*split.path(3)));
    }
}

#[test]
fn a_relative_path_opens() {
    let split = Split::new();
    match from_here(&split.path(2)) {
        Some(path) => assert_eq!(Gguf::open(path).unwrap().tensors().len(), 4),
        None => println!("skipped: no relative path leads to the temporary directory"),
    }
}

/// `path` relative to the working directory, through `..`.
fn from_here(path: &Path) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(path.strip_prefix("/").ok()?);
    relative.exists().then_some(relative)
}

#[test]
fn names_of_another_width() {
    let dir = TempDir::new().unwrap();
    for no in 0..14u16 {
        let path = dir.path().join(format!("big-{:03}-of-014.gguf", no + 1));
        let file = shard(no, 14, 14).f32(&format!("t{no}"), 1);
        fs::write(path, file.bytes()).unwrap();
    }
    let gguf = Gguf::open(dir.path().join("big-012-of-014.gguf")).unwrap();
    assert_eq!(gguf.tensors().len(), 14);
    assert_eq!(gguf.shards().count(), 14);
}

#[test]
fn integer_widths_and_a_missing_total_do_not_matter() {
    let split = Split::new();
    let mixed = Builder::new()
        .key("split.no", u64v(1))
        .key("split.count", i32v(3))
        .f32("a", 3)
        .f32("b", 8);
    split.put(2, mixed);
    assert_eq!(Gguf::open(split.path(2)).unwrap().tensors().len(), 4);
}

#[test]
fn a_split_of_one_is_a_plain_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("any-name.gguf");
    fs::write(&path, shard(0, 1, 1).f32("a", 1).bytes()).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 1);
    // So is a file that only has the name of a shard.
    let path = dir.path().join("m-00001-of-00002.gguf");
    fs::write(&path, Builder::new().f32("a", 1).bytes()).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 1);
}

#[test]
fn shards_keep_their_own_alignment() {
    let split = Split::new();
    let mut file = shard(2, 3, 4).key("general.alignment", u32v(256));
    file.alignment = 256;
    split.put(3, file.f32("c", 5).f32("d", 2));
    let gguf = Gguf::open(split.path(1)).unwrap();
    assert_eq!(gguf.require("d").unwrap().byte_range().start % 256, 0);
    assert_eq!(gguf.require("d").unwrap().data()[..4], 0.5f32.to_le_bytes());
}

#[test]
fn a_copy_is_one_file() {
    let split = Split::new();
    let gguf = Gguf::open(split.path(2)).unwrap();
    let merged = GgufWriter::new().copy_from(&gguf).to_bytes().unwrap();
    let merged = Gguf::from_bytes(merged).unwrap();
    assert_eq!(merged.tensors().len(), 4);
    assert!(!merged.metadata().contains("split.count"));
    for (a, b) in merged.tensors().zip(gguf.tensors()) {
        assert_eq!((a.name(), a.data()), (b.name(), b.data()));
    }
}

#[test]
fn split_name() {
    let split = Split::new();
    let path = split.dir.path().join("renamed.gguf");
    fs::rename(split.path(2), &path).unwrap();
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(error, GgufError::SplitName { count: 3, .. }));
    assert_message(
        &error,
        &["renamed.gguf", "one of 3 shards", "-NNNNN-of-NNNNN"],
    );
}

#[test]
fn split_in_memory() {
    let error = shard(0, 3, 4).f32("a", 1).error();
    assert!(matches!(error, GgufError::SplitInMemory { count: 3, .. }));
    assert_message(&error, &["one of 3 shards", "open it by path"]);
}

#[test]
fn missing_shard() {
    let split = Split::new();
    fs::remove_file(split.path(3)).unwrap();
    let error = split.error(2);
    assert!(matches!(error, GgufError::MissingShard { number: 3, .. }));
    assert_message(
        &error,
        &[
            "m-00002-of-00003.gguf: shard 3 of 3 is missing",
            "m-00003-of-00003.gguf",
        ],
    );
}

#[test]
fn shard_number() {
    let split = Split::new();
    split.put(2, shard(2, 3, 4).f32("a", 1));
    for opened in 1..=3 {
        let error = split.error(opened);
        assert!(
            matches!(
                error,
                GgufError::ShardNumber {
                    named: 2,
                    stored: 3,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_message(&error, &["m-00002-of-00003.gguf", "named as shard 2"]);
    }
    // A name with a number that no shard of the set has.
    fs::rename(split.path(2), split.path(9)).unwrap();
    let error = split.error(9);
    assert!(
        matches!(error, GgufError::ShardNumber { named: 9, .. }),
        "{error:?}"
    );
}

#[test]
fn shard_count() {
    let split = Split::new();
    split.put(2, shard(1, 4, 4).f32("a", 1));
    for opened in 1..=3 {
        let error = split.error(opened);
        assert!(
            matches!(
                error,
                GgufError::ShardCount {
                    stored: 4,
                    expected: 3,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_message(
            &error,
            &["m-00002-of-00003.gguf", "`split.count` is 4, expected 3"],
        );
    }
}

#[test]
fn foreign_shard() {
    let split = Split::new();
    let other = shard(2, 3, 4).key("general.name", strv("two"));
    split.put(3, other.f32("c", 5).f32("d", 2));
    let error = split.error(1);
    assert!(
        matches!(
            error,
            GgufError::ForeignShard {
                key: "general.name",
                ..
            }
        ),
        "{error:?}"
    );
    assert_message(
        &error,
        &[
            "m-00003-of-00003.gguf: belongs to another model",
            "\"two\"",
            "\"one\"",
        ],
    );
    // A file that is no shard at all.
    split.put(3, Builder::new().f32("c", 5).f32("d", 2));
    assert_message(
        &split.error(1),
        &["m-00003-of-00003.gguf", "`split.count` is missing"],
    );
}

#[test]
fn duplicate_tensor_in_shards() {
    let split = Split::new();
    split.put(3, shard(2, 3, 4).f32("c", 5).f32("a", 2));
    let error = split.error(1);
    assert!(matches!(error, GgufError::DuplicateTensorInShards { .. }));
    assert_message(
        &error,
        &[
            "m-00003-of-00003.gguf: tensor `a` is also in ",
            "m-00002-of-00003.gguf",
        ],
    );
}

#[test]
fn split_tensor_count() {
    let split = Split::new();
    split.put(3, shard(2, 3, 4).f32("c", 5));
    let error = split.error(1);
    assert!(matches!(
        error,
        GgufError::SplitTensorCount {
            stored: 4,
            found: 3,
            shards: 3,
            ..
        }
    ));
    assert_message(&error, &["`split.tensors.count` is 4", "hold 3 tensors"]);
}

#[test]
fn a_broken_shard_is_named() {
    let split = Split::new();
    let bytes = fs::read(split.path(3)).unwrap();
    fs::write(split.path(3), &bytes[..bytes.len() - 40]).unwrap();
    assert_message(
        &split.error(1),
        &["m-00003-of-00003.gguf: truncated", "tensor `d`"],
    );
}
