//! One test per rule, named after its variant (see `every_variant_has_a_test`).

use std::fs;
use std::io::Write;

use burn_gguf::gguf::{Gguf, GgufError, GgufWriter, TensorData, Value};
use burn_gguf_kernels::GgmlType;
use tempfile::TempDir;

use crate::builder::*;

/// Asserts the variant (and fields), and that the message holds each text.
macro_rules! assert_error {
    ($error:expr, $pattern:pat $(if $guard:expr)?, $($text:expr),+) => {{
        let error: GgufError = $error;
        assert!(matches!(&error, $pattern $(if $guard)?), "{error:?}");
        let message = error.to_string();
        $(assert!(message.contains($text), "{:?} not in {message:?}", $text);)+
    }};
}

const MEMORY: &str = "<GGUF in memory>";

#[test]
fn every_variant_has_a_test() {
    let source = include_str!("../../src/gguf/error.rs");
    let body = source.split("pub enum GgufError").nth(1).unwrap();
    let body = &body[..body.find("\n}").unwrap()];
    let tests = concat!(
        include_str!("errors.rs"),
        include_str!("shards.rs"),
        include_str!("../../src/gguf/mmap.rs")
    );
    let mut variants = 0;
    for line in body.lines() {
        let Some(name) = line
            .strip_prefix("    ")
            .and_then(|l| l.split_once(" {"))
            .map(|(name, _)| name)
            .filter(|n| n.starts_with(|c: char| c.is_ascii_uppercase()))
        else {
            continue;
        };
        let mut snake = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        assert!(
            tests.contains(&format!("fn {snake}()")),
            "no test named {snake}"
        );
        variants += 1;
    }
    assert!(variants > 40, "only {variants} variants found");
}

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

#[test]
fn duplicate_tensor() {
    assert_error!(
        Builder::new().f32("t", 8).f32("t", 8).error(),
        GgufError::DuplicateTensor { .. },
        "tensor `t` occurs twice"
    );
    assert_error!(
        GgufWriter::new()
            .tensor("t", &[0], GgmlType::F32, vec![])
            .tensor("t", &[0], GgmlType::F32, vec![])
            .to_bytes()
            .unwrap_err(),
        GgufError::DuplicateTensor { .. },
        "tensor `t`"
    );
}

#[test]
fn too_many_dimensions() {
    assert_error!(
        Builder::new()
            .tensor("t", &[1; 5], 0, 0)
            .data([0; 32])
            .error(),
        GgufError::TooManyDimensions { n_dims: 5, .. },
        "tensor `t` has 5 dimensions"
    );
    // A count that no dimensions follow.
    let mut bytes = Builder::new().tensor("t", &[], 0, 0).bytes();
    let at = 24 + 8 + 1;
    bytes[at..at + 4].copy_from_slice(&1_000_000u32.to_le_bytes());
    assert_error!(
        Gguf::from_bytes(bytes.into()).unwrap_err(),
        GgufError::TooManyDimensions {
            n_dims: 1_000_000,
            ..
        },
        "1000000 dimensions"
    );
    assert_error!(
        GgufWriter::new()
            .tensor("t", &[1; 5], GgmlType::F32, vec![0; 4])
            .to_bytes()
            .unwrap_err(),
        GgufError::TooManyDimensions { .. },
        "tensor `t`"
    );
}

#[test]
fn element_count_overflow() {
    for dims in [
        vec![u64::MAX],
        vec![1 << 63],
        vec![1 << 32, 1 << 32],
        vec![1 << 32, 1 << 31],
        vec![0, 1 << 62, 1 << 62],
    ] {
        assert_error!(
            Builder::new().tensor("t", &dims, 24, 0).data([0; 32]).error(),
            GgufError::ElementCountOverflow { shape, .. } if *shape == dims,
            "tensor `t`",
            &format!("{dims:?}")
        );
    }
}

#[test]
fn byte_size_overflow() {
    // 2^62 F64 values.
    assert_error!(
        Builder::new()
            .tensor("t", &[1 << 62], 28, 0)
            .data([0; 32])
            .error(),
        GgufError::ByteSizeOverflow { .. },
        "tensor `t`",
        "F64"
    );
    // Fits in itself, but not behind the header.
    assert_error!(
        Builder::new()
            .tensor("t", &[(1 << 61) - 1], 28, 0)
            .data([0; 32])
            .error(),
        GgufError::ByteSizeOverflow { .. },
        "tensor `t`"
    );
}

#[test]
fn partial_block() {
    for (row, ty) in [(4304, 8), (16, 8), (128, 14), (1, 12)] {
        let file = Builder::new()
            .tensor("t", &[row, 2], ty, 0)
            .data([0; 20000]);
        assert_error!(
            file.error(),
            GgufError::PartialBlock { row: r, .. } if *r == row,
            "tensor `t`",
            &format!("rows of {row} values")
        );
    }
    // A scalar has a row of one.
    assert_error!(
        Builder::new().tensor("t", &[], 8, 0).data([0; 64]).error(),
        GgufError::PartialBlock { row: 1, .. },
        "Q8_0"
    );
    assert_error!(
        GgufWriter::new()
            .tensor("t", &[16], GgmlType::Q8_0, vec![0; 17])
            .to_bytes()
            .unwrap_err(),
        GgufError::PartialBlock { .. },
        "32 values in a Q8_0 block"
    );
}

#[test]
fn offset_mismatch() {
    let two = |first: u64, second: u64| {
        Builder::new()
            .tensor("a", &[4], 0, first)
            .tensor("b", &[4], 0, second)
            .data([0; 256])
    };
    assert!(two(0, 32).open().is_ok());
    for (first, second, offset, expected) in [
        (0, 16, 16, 32), // packed tight
        (0, 0, 0, 32),   // overlapping
        (0, 64, 64, 32), // a gap
        (32, 0, 32, 0),  // out of order
        (32, 64, 32, 0), // not at the start
        (0, u64::MAX - 31, u64::MAX - 31, 32),
    ] {
        assert_error!(
            two(first, second).error(),
            GgufError::OffsetMismatch { offset: o, expected: e, .. } if (*o, *e) == (offset, expected),
            &format!("data offset {offset}, expected {expected}")
        );
    }
    // Two tensors of unknown size cannot share an offset.
    assert_error!(
        Builder::new()
            .tensor("a", &[4], 139, 0)
            .tensor("b", &[4], 139, 0)
            .data([0; 64])
            .error(),
        GgufError::OffsetMismatch { .. },
        "tensor `b`"
    );
}

#[test]
fn misaligned_offset() {
    let file = Builder::new()
        .tensor("a", &[4], 139, 0)
        .tensor("b", &[4], 0, 40)
        .data([0; 256]);
    assert_error!(
        file.error(),
        GgufError::MisalignedOffset { offset: 40, .. },
        "tensor `b`",
        "multiple of the alignment 32"
    );
}

#[test]
fn truncated_data() {
    let file = Builder::new()
        .tensor("a", &[8], 0, 0)
        .tensor("big", &[100], 0, 32)
        .data([0; 32 + 399]);
    let have = file.bytes().len();
    assert_error!(
        file.error(),
        GgufError::TruncatedData { .. },
        "tensor `big`",
        &format!("{} bytes, it has {have}", have + 1)
    );
    // Far beyond the end.
    assert_error!(
        Builder::new()
            .tensor("a", &[1 << 40], 0, 0)
            .data([0; 32])
            .error(),
        GgufError::TruncatedData { .. },
        "tensor `a`"
    );
    // Tensors of unknown size, one that has no byte and one whose successor is beyond the end.
    assert_error!(
        Builder::new().tensor("a", &[4], 139, 0).error(),
        GgufError::TruncatedData { .. },
        "tensor `a`"
    );
    for beyond in [1 << 40, u64::MAX - 31] {
        assert_error!(
            Builder::new()
                .tensor("a", &[4], 139, 0)
                .tensor("b", &[4], 0, beyond)
                .data([0; 32])
                .error(),
            GgufError::TruncatedData { .. },
            "tensor `a`"
        );
    }
}

#[test]
fn truncated_padding() {
    let full = Builder::new().f32("t", 3).bytes();
    let data_end = full.len() - 20;
    for cut in data_end + 1..full.len() {
        assert_error!(
            Gguf::from_bytes(full[..cut].to_vec().into()).unwrap_err(),
            GgufError::TruncatedPadding { .. },
            "the padding after the last tensor",
            &cut.to_string()
        );
    }
    // Some writers leave the last padding out altogether.
    let gguf = Gguf::from_bytes(full[..data_end].to_vec().into()).unwrap();
    assert_eq!(gguf.require("t").unwrap().data().len(), 12);
}

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
