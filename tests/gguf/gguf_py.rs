//! gguf-py as the other side: it reads what we write, and we read what it writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use burn_gguf::gguf::{Gguf, GgufError, GgufWriter};
use burn_gguf_kernels::GgmlType;
use serde_json::{Value, json};
use tempfile::TempDir;

fn python(arguments: &[&std::ffi::OsStr]) -> Option<std::process::Output> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    Command::new(python).args(arguments).output().ok()
}

/// The type names gguf-py knows; `None` (with a reason printed) if it is not installed.
fn known_types() -> Option<Vec<String>> {
    let names = "import gguf; print(*[t.name for t in gguf.GGMLQuantizationType])";
    match python(&["-c".as_ref(), names.as_ref()]) {
        Some(output) if output.status.success() => {
            let text = String::from_utf8(output.stdout).unwrap();
            Some(text.split_whitespace().map(str::to_owned).collect())
        }
        _ => {
            println!(
                "skipped: python3 with the `gguf` package is not installed (PYTHON=... names another)"
            );
            None
        }
    }
}

fn check(mode: &str, path: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gguf/check.py");
    let output = python(&[script.as_ref(), mode.as_ref(), path.as_ref()]).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn gguf_py_reads_what_we_write() {
    let Some(known) = known_types() else { return };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ours.gguf");
    for alignment in [32u32, 64, 1024] {
        let mut writer = GgufWriter::new();
        writer
            .metadata("general.architecture", "test")
            .alignment(alignment)
            .metadata("u8", 1u8)
            .metadata("i8", -1i8)
            .metadata("u16", 2u16)
            .metadata("i16", -2i16)
            .metadata("u32", 3u32)
            .metadata("i32", -3i32)
            .metadata("f32", 0.5f32)
            .metadata("bool", true)
            .metadata("string", "ünï")
            .metadata("u64", u64::MAX)
            .metadata("i64", i64::MIN)
            .metadata("f64", 0.1f64)
            .metadata("strings", vec!["a", "", "ü"])
            .metadata("i16s", vec![-1i16, 2, 3])
            .metadata("f32s", vec![0.5f32, 1.5])
            .metadata("bools", vec![true, false]);
        let mut expected = Vec::new();
        for ty in GgmlType::ALL {
            if !known.iter().any(|n| n == ty.name()) {
                println!("not compared: this gguf-py does not know {ty}");
                continue;
            }
            let data: Vec<u8> = (0..4 * ty.block_bytes()).map(|i| (i % 61) as u8).collect();
            let shape = [2 * ty.block_len() as u64, 2];
            writer.tensor(format!("t.{ty}"), &shape, *ty, data.clone());
            expected.push((ty, shape, data));
        }
        writer.write_file(&path).unwrap();

        let found: Value = serde_json::from_str(&check("read", &path)).unwrap();
        assert_eq!(found["alignment"], alignment);
        let fields = &found["fields"];
        for (key, value) in [
            ("general.architecture", json!(["STRING", "test"])),
            ("general.alignment", json!(["UINT32", alignment])),
            ("u8", json!(["UINT8", 1])),
            ("i8", json!(["INT8", -1])),
            ("u16", json!(["UINT16", 2])),
            ("i16", json!(["INT16", -2])),
            ("u32", json!(["UINT32", 3])),
            ("i32", json!(["INT32", -3])),
            ("f32", json!(["FLOAT32", 0.5])),
            ("bool", json!(["BOOL", true])),
            ("string", json!(["STRING", "ünï"])),
            ("u64", json!(["UINT64", u64::MAX])),
            ("i64", json!(["INT64", i64::MIN])),
            ("f64", json!(["FLOAT64", 0.1])),
            ("strings", json!(["ARRAY", ["a", "", "ü"]])),
            ("i16s", json!(["ARRAY", [-1, 2, 3]])),
            ("f32s", json!(["ARRAY", [0.5, 1.5]])),
            ("bools", json!(["ARRAY", [true, false]])),
        ] {
            assert_eq!(fields[key], value, "{key}");
        }
        let tensors = found["tensors"].as_array().unwrap();
        assert_eq!(tensors.len(), expected.len());
        let ours = Gguf::open(&path).unwrap();
        for (tensor, (ty, shape, data)) in tensors.iter().zip(&expected) {
            assert_eq!(tensor["type"], ty.name());
            assert_eq!(tensor["shape"], json!(shape));
            let found = tensor["bytes"].as_array().unwrap();
            // gguf-py counts 40 bytes in a Q8_1 block and reads on into the padding; ggml's block has 36.
            let end = if **ty == GgmlType::Q8_1 {
                data.len()
            } else {
                found.len()
            };
            assert_eq!(json!(found[..end]), json!(data), "{ty}");
            let info = ours.require(tensor["name"].as_str().unwrap()).unwrap();
            assert_eq!(tensor["offset"], info.byte_range().start);
        }
    }
}

#[test]
fn we_read_what_gguf_py_writes() {
    if known_types().is_none() {
        return;
    }
    let dir = TempDir::new().unwrap();
    check("write", dir.path());
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    for (name, alignment, shards) in [
        ("plain.gguf", 32, 1),
        ("aligned.gguf", 1024, 1),
        ("split-00002-of-00002.gguf", 32, 2),
        ("small-00003-of-00003.gguf", 32, 3),
    ] {
        let gguf = Gguf::open(path(name)).unwrap();
        assert_eq!(gguf.alignment(), alignment, "{name}");
        assert_eq!(gguf.shards().count(), shards, "{name}");
        let m = gguf.metadata();
        assert_eq!(m.architecture().unwrap(), "test");
        assert_eq!(m.get::<u32>("test.u32").unwrap(), 7);
        assert_eq!(m.get::<f32>("test.f32").unwrap(), 0.5);
        assert!(m.get::<bool>("test.bool").unwrap());
        assert_eq!(m.get::<&str>("test.string").unwrap(), "ünï");
        assert_eq!(
            m.get::<Vec<&str>>("test.strings").unwrap(),
            ["a", "b ", "ü"]
        );
        assert_eq!(m.get::<Vec<i64>>("test.ints").unwrap(), [1, -2, 3]);
        let f32 = gguf.require("f32").unwrap();
        assert_eq!(f32.shape(), [4, 3]);
        let values: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
        assert_eq!(f32.data(), values);
        assert_eq!(
            gguf.require("f16").unwrap().ggml_type(),
            Some(GgmlType::F16)
        );
        assert_eq!(gguf.require("i8").unwrap().data(), [0, 1, 2, 3, 4, 5, 6]);
        let q8_0 = gguf.require("q8_0").unwrap();
        assert_eq!(q8_0.shape(), [32, 2]);
        assert_eq!(q8_0.data(), (0..68).collect::<Vec<u8>>());
    }
    let big = Gguf::open(path("big.gguf")).unwrap_err();
    assert!(matches!(big, GgufError::BigEndian { .. }), "{big}");
}
