//! Errors of the file itself and its header.

use std::fs;

use burn_gguf::gguf::{Gguf, GgufError, GgufWriter};
use burn_gguf_kernels::GgmlType;
use tempfile::TempDir;

use super::assert_error;
use crate::builder::*;

const MEMORY: &str = "<GGUF in memory>";

#[test]
fn not_found() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("absent.gguf");
    assert_error!(
        Gguf::open(path).unwrap_err(),
        GgufError::NotFound { .. },
        "absent.gguf: no such file"
    );
}

#[test]
fn not_a_file() {
    let dir = TempDir::new().unwrap();
    assert_error!(
        Gguf::open(dir.path()).unwrap_err(),
        GgufError::NotAFile { .. },
        "is a directory"
    );
    #[cfg(unix)]
    assert_error!(
        Gguf::open("/dev/null").unwrap_err(),
        GgufError::NotAFile { .. },
        "/dev/null: is a device or pipe"
    );
    assert_error!(
        GgufWriter::new().write_file("/").unwrap_err(),
        GgufError::NotAFile { .. },
        "is a directory"
    );
}

#[test]
fn empty_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("empty.gguf");
    fs::write(&path, []).unwrap();
    assert_error!(
        Gguf::open(path).unwrap_err(),
        GgufError::EmptyFile { .. },
        "empty.gguf: the file is empty"
    );
    assert_error!(
        Gguf::from_bytes(bytes::Bytes::new()).unwrap_err(),
        GgufError::EmptyFile { .. },
        MEMORY
    );
}

#[test]
fn io() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, sample().bytes()).unwrap();
    // A file used as a directory.
    assert_error!(
        GgufWriter::new()
            .write_file(file.join("x.gguf"))
            .unwrap_err(),
        GgufError::Io { .. },
        "x.gguf: cannot create a temporary file beside it"
    );
    // A sink that is full.
    assert_error!(
        GgufWriter::new().write_to(&mut [0u8; 5][..]).unwrap_err(),
        GgufError::Io {
            action: "write",
            ..
        },
        "cannot write"
    );
    // A producer that fails.
    assert_error!(
        GgufWriter::new()
            .tensor_with("t", &[1], GgmlType::F32, |_| Err(std::io::Error::other(
                "producer broke"
            )))
            .to_bytes()
            .unwrap_err(),
        GgufError::Io { .. },
        "producer broke"
    );
}

#[test]
fn bad_magic() {
    let mut file = sample();
    file.magic = *b"GGML";
    assert_error!(
        file.error(),
        GgufError::BadMagic { .. },
        MEMORY,
        "starts with \"GGML\""
    );
    let open = |bytes: &'static [u8]| Gguf::from_bytes(bytes.into()).unwrap_err();
    assert_error!(
        open(b"PK\x03\x04 and more"),
        GgufError::BadMagic { .. },
        "\"PK\\x03\\x04\"",
        "zip"
    );
    assert_error!(
        open(b"\x10\0\0\0\0\0\0\0{\"a\": 1}"),
        GgufError::BadMagic { .. },
        "safetensors"
    );
    assert_error!(
        open(b"version https://git-lfs.github.com/spec/v1\noid sha256:0"),
        GgufError::BadMagic { .. },
        "Git LFS",
        "git lfs pull"
    );
    assert_error!(open(b"x"), GgufError::BadMagic { .. }, "\"x\"");
}

#[test]
fn big_endian() {
    let mut file = sample();
    file.magic = *b"FUGG";
    assert_error!(
        file.error(),
        GgufError::BigEndian { .. },
        "big-endian GGUF",
        "FUGG"
    );
    for version in [2u32, 3] {
        let mut file = sample();
        file.version = version.swap_bytes();
        assert_error!(
            file.error(),
            GgufError::BigEndian { .. },
            "big-endian GGUF",
            "gguf-convert-endian"
        );
    }
}

#[test]
fn unsupported_version() {
    for version in [0, 1, 4, 70000] {
        let mut file = sample();
        file.version = version;
        assert_error!(
            file.error(),
            GgufError::UnsupportedVersion { version: v, .. } if *v == version,
            &format!("version {version} ")
        );
    }
    for version in [2, 3] {
        let mut file = sample();
        file.version = version;
        assert_eq!(file.open().unwrap().version(), version);
    }
}

#[test]
fn truncated_header() {
    let bytes = Builder::new().key("some.key", u64v(7)).bytes();
    let cut = bytes[..bytes.len() - 3].to_vec();
    assert_error!(
        Gguf::from_bytes(cut.into()).unwrap_err(),
        GgufError::TruncatedHeader {
            need: 8,
            have: 5,
            ..
        },
        MEMORY,
        "the value of key `some.key`",
        "needs 8 bytes, 5 are left"
    );
}

#[test]
fn too_many_keys() {
    for count in [1u64 << 61, u64::MAX, 1000] {
        let mut file = Builder::new().key("k", u8v(0));
        file.n_keys = Some(count);
        assert_error!(
            file.error(),
            GgufError::TooManyKeys { count: c, .. } if *c == count,
            &format!("counts {count} metadata keys"),
            "only 14 bytes follow"
        );
    }
}

#[test]
fn too_many_tensors() {
    for count in [1u64 << 61, u64::MAX, 1000] {
        let mut file = sample();
        file.n_tensors = Some(count);
        assert_error!(
            file.error(),
            GgufError::TooManyTensors { count: c, .. } if *c == count,
            &format!("counts {count} tensors")
        );
    }
}

#[test]
fn string_too_long() {
    for length in [1u64 << 40, u64::MAX] {
        let file = Builder::new().key("text", (8, length.to_le_bytes().to_vec()));
        assert_error!(
            file.error(),
            GgufError::StringTooLong { length: l, .. } if *l == length,
            "the value of key `text`",
            &format!("{length} bytes"),
            "only 0 bytes follow"
        );
        let file = Builder::new().key("texts", arrayv(8, 1, length.to_le_bytes()));
        assert_error!(
            file.error(),
            GgufError::StringTooLong { .. },
            "the value of key `texts`"
        );
    }
    // The name of a key.
    let mut file = Builder::new().header();
    file[16] = 1;
    file.extend((1u64 << 40).to_le_bytes());
    file.extend([0; 20]);
    assert_error!(
        Gguf::from_bytes(file.into()).unwrap_err(),
        GgufError::StringTooLong { .. },
        "metadata key 0"
    );
}

#[test]
fn array_too_long() {
    // Every element type, at lengths where length * size overflows and where it does not.
    for element in 0..=12 {
        for length in [1u64 << 60, u64::MAX, 1 << 40] {
            let file = Builder::new().key("list", arrayv(element, length, [0; 9]));
            assert_error!(
                file.error(),
                GgufError::ArrayTooLong { length: l, .. } if *l == length,
                "key `list`",
                &length.to_string(),
                "only 9 bytes follow"
            );
        }
    }
}

#[test]
fn array_too_deep() {
    let nest = |levels: usize| {
        let outer = arrayv(9, 1, []).1.repeat(levels - 1);
        let value = (9, [outer, arrayv(0, 1, [5]).1].concat());
        Builder::new().key("deep", value)
    };
    assert!(nest(4).open().is_ok());
    assert_error!(
        nest(5).error(),
        GgufError::ArrayTooDeep { .. },
        "key `deep`",
        "deeper than 4"
    );
    // A file of nothing but nesting must not use up the stack.
    assert_error!(
        nest(100_000).error(),
        GgufError::ArrayTooDeep { .. },
        "key `deep`"
    );
    // The writer refuses what the reader would.
    let mut value = burn_gguf::gguf::Array::U8(vec![1]);
    for _ in 0..4 {
        value = burn_gguf::gguf::Array::Array(vec![value]);
    }
    assert_error!(
        GgufWriter::new()
            .metadata("deep", value)
            .to_bytes()
            .unwrap_err(),
        GgufError::ArrayTooDeep { .. },
        "key `deep`"
    );
}

#[test]
fn name_not_utf8() {
    let file = Builder::new().key("ok", u8v(0)).key(b"bad\xff", u8v(0));
    assert_error!(
        file.error(),
        GgufError::NameNotUtf8 { .. },
        "metadata key 1 is not UTF-8",
        "bad\u{fffd}"
    );
    let file = Builder::new().tensor(b"\xc3(", &[1], 0, 0).data([0; 32]);
    assert_error!(
        file.error(),
        GgufError::NameNotUtf8 { .. },
        "the name of tensor 0 is not UTF-8"
    );
}

#[test]
fn empty_key() {
    let file = Builder::new().key("a", u8v(0)).key("", u8v(0));
    assert_error!(
        file.error(),
        GgufError::EmptyKey { index: 1, .. },
        "metadata key 1 is empty"
    );
    assert_error!(
        GgufWriter::new().metadata("", 1u8).to_bytes().unwrap_err(),
        GgufError::EmptyKey { .. },
        "being written"
    );
}

#[test]
fn duplicate_key() {
    let file = Builder::new().key("twice", u8v(0)).key("twice", u8v(0));
    assert_error!(
        file.error(),
        GgufError::DuplicateKey { .. },
        "`twice` occurs twice"
    );
    assert_error!(
        GgufWriter::new()
            .metadata("twice", 1u8)
            .metadata("twice", 1u8)
            .to_bytes()
            .unwrap_err(),
        GgufError::DuplicateKey { .. },
        "`twice` occurs twice"
    );
}

#[test]
fn unknown_value_type() {
    for id in [13, u32::MAX] {
        assert_error!(
            Builder::new().key("odd", (id, vec![0; 8])).error(),
            GgufError::UnknownValueType { type_id, .. } if *type_id == id,
            "key `odd`",
            &format!("value type {id}")
        );
        assert_error!(
            Builder::new().key("odd", arrayv(id, 0, [])).error(),
            GgufError::UnknownValueType { .. },
            "key `odd`"
        );
    }
}

#[test]
fn invalid_bool() {
    assert_error!(
        Builder::new().key("flag", boolv(2)).error(),
        GgufError::InvalidBool { value: 2, .. },
        "key `flag` holds the boolean 2"
    );
    assert_error!(
        Builder::new()
            .key("flags", arrayv(7, 3, [0, 1, 255]))
            .error(),
        GgufError::InvalidBool { value: 255, .. },
        "key `flags`"
    );
}

#[test]
fn bad_alignment() {
    for value in [0, 3, 33, 1 << 23, 1 << 31] {
        assert_error!(
            Builder::new()
                .key("general.alignment", u32v(value))
                .f32("t", 1)
                .error(),
            GgufError::BadAlignment { value: v, .. } if *v == u64::from(value),
            &format!("`general.alignment` is {value};"),
            "power of two"
        );
        assert_error!(
            GgufWriter::new().alignment(value).to_bytes().unwrap_err(),
            GgufError::BadAlignment { .. },
            &value.to_string()
        );
    }
    assert_error!(
        Builder::new()
            .key("general.alignment", u64v(1 << 40))
            .error(),
        GgufError::BadAlignment { .. },
        "1099511627776"
    );
}
