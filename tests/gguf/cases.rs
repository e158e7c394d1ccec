//! The files of the shared cases, and their listings (made by gguf-py) where they have one.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use burn_gguf::gguf::{Array, Gguf, GgufWriter, StringArray, Value, ValueType};

/// The shared cases, if they are here.
fn cases() -> Option<PathBuf> {
    let shared = std::env::var_os("BURN_GGUF_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let cases = shared.join("cases");
    if !cases.is_dir() {
        println!("skipped: no {}", cases.display());
        return None;
    }
    Some(cases)
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "gguf") {
            out.push(path);
        }
    }
}

#[test]
fn all_open_and_equal_their_listings() {
    let Some(cases) = cases() else { return };
    let mut paths = Vec::new();
    files(&cases, &mut paths);
    paths.sort();
    let mut listings = 0;
    for path in &paths {
        let gguf = Gguf::open(path).unwrap();
        for tensor in gguf.tensors() {
            tensor.usable_type().unwrap();
            let rounded = tensor.byte_len().next_multiple_of(4);
            assert_eq!(tensor.padded_bytes(4).unwrap().len(), rounded);
        }
        if let Ok(expected) = fs::read_to_string(path.with_extension("txt")) {
            let found = listing(&gguf);
            for (found, expected) in found.lines().zip(expected.lines()) {
                assert_eq!(found, expected, "{}", path.display());
            }
            assert_eq!(found.lines().count(), expected.lines().count());
            listings += 1;
        }
    }
    println!("{} files opened, {listings} listings compared", paths.len());
    assert!(paths.len() > 60 && listings > 30);
}

#[test]
fn all_survive_a_copy() {
    let Some(cases) = cases() else { return };
    let mut paths = Vec::new();
    files(&cases, &mut paths);
    for path in paths {
        let gguf = Gguf::open(&path).unwrap();
        let copy = GgufWriter::new().copy_from(&gguf).to_bytes().unwrap();
        let original = fs::read(&path).unwrap();
        // llama.cpp and gguf-py lay files out as we do; theirs may have padding after a header without tensors.
        assert!(
            original.starts_with(&copy) && original.len() - copy.len() < 32,
            "{}",
            path.display()
        );
    }
}

/// The listing as the cases' generator prints it: Python's `repr` of each value, long ones shortened.
fn listing(gguf: &Gguf) -> String {
    let mut out = String::new();
    for (key, value) in gguf.metadata().iter() {
        let shown = match value {
            Value::Array(array) if array.len() > 64 => {
                let head = python_list(array, 3);
                python_string(&format!("[{} values] {head} ...", array.len()))
            }
            Value::String(s) if s.to_str().unwrap().chars().count() > 200 => {
                let text = s.to_str().unwrap();
                let head: String = text.chars().take(80).collect();
                python_string(&format!("{head}... ({} characters)", text.chars().count()))
            }
            other => python(other),
        };
        writeln!(out, "{key} = {shown}   ({})", gguf_py_name(value)).unwrap();
    }
    out.push('\n');
    for tensor in gguf.tensors() {
        let ty = tensor.ggml_type().unwrap();
        writeln!(out, "{}  {ty}  {:?}", tensor.name(), tensor.shape()).unwrap();
    }
    out
}

fn gguf_py_name(value: &Value) -> &'static str {
    match value.value_type() {
        ValueType::U8 => "uint8",
        ValueType::I8 => "int8",
        ValueType::U16 => "uint16",
        ValueType::I16 => "int16",
        ValueType::U32 => "uint32",
        ValueType::I32 => "int32",
        ValueType::F32 => "float32",
        ValueType::Bool => "bool",
        ValueType::String => "string",
        ValueType::Array => "array",
        ValueType::U64 => "uint64",
        ValueType::I64 => "int64",
        ValueType::F64 => "float64",
    }
}

fn python(value: &Value) -> String {
    match value {
        Value::F32(v) => python_float(f64::from(*v)),
        Value::F64(v) => python_float(*v),
        Value::Bool(v) => python_bool(*v).to_owned(),
        Value::String(v) => python_string(v.to_str().unwrap()),
        Value::Array(v) => python_list(v, usize::MAX),
        other => other.as_int().unwrap().to_string(),
    }
}

fn python_list(array: &Array, limit: usize) -> String {
    fn join<T>(items: impl Iterator<Item = T>, show: impl Fn(T) -> String) -> String {
        format!("[{}]", items.map(show).collect::<Vec<_>>().join(", "))
    }
    fn strings(array: &StringArray, limit: usize) -> String {
        join(array.iter().take(limit), |s| {
            python_string(std::str::from_utf8(s).unwrap())
        })
    }
    match array {
        Array::U8(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::I8(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::U16(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::I16(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::U32(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::I32(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::F32(v) => join(v.iter().take(limit), |x| python_float(f64::from(*x))),
        Array::Bool(v) => join(v.iter().take(limit), |x| python_bool(*x).to_owned()),
        Array::String(v) => strings(v, limit),
        Array::Array(v) => join(v.iter().take(limit), |x| python_list(x, limit)),
        Array::U64(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::I64(v) => join(v.iter().take(limit), |x| x.to_string()),
        Array::F64(v) => join(v.iter().take(limit), |x| python_float(*x)),
    }
}

fn python_bool(v: bool) -> &'static str {
    if v { "True" } else { "False" }
}

/// Shortest digits that read back equal, as Python lays them out.
fn python_float(v: f64) -> String {
    let scientific = format!("{v:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    if (-4..16).contains(&exponent) {
        format!("{v:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

/// Python's `repr` of a string.
fn python_string(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() || c == '\u{ad}' => write!(out, "\\x{:02x}", c as u32).unwrap(),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}
