//! Header fields to bytes, the mirror of `parse`.

use std::io::{self, Write};

use super::value::{Array, Value};

/// Magic, version, counts and metadata.
pub(super) fn start(n_tensors: usize, entries: &[(String, Value)]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((n_tensors as u64).to_le_bytes());
    out.extend((entries.len() as u64).to_le_bytes());
    for (key, value) in entries {
        string(&mut out, key.as_bytes());
        out.extend(value.value_type().id().to_le_bytes());
        self::value(&mut out, value);
    }
    out
}

/// One line of the tensor table.
pub(super) fn tensor(out: &mut Vec<u8>, name: &str, dims: &[u64], type_id: u32, offset: u64) {
    string(out, name.as_bytes());
    out.extend((dims.len() as u32).to_le_bytes());
    for dim in dims {
        out.extend(dim.to_le_bytes());
    }
    out.extend(type_id.to_le_bytes());
    out.extend(offset.to_le_bytes());
}

/// `count` zero bytes.
pub(super) fn pad(out: &mut dyn Write, count: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), count), out)?;
    Ok(())
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.extend(v.to_le_bytes()),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => string(out, v.as_bytes()),
        Value::Array(v) => array(out, v),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
    }
}

fn array(out: &mut Vec<u8>, array: &Array) {
    out.extend(array.element_type().id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend(v),
        Array::I8(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
        Array::String(v) => out.extend(v.encoded()),
        Array::Array(v) => {
            for inner in v {
                self::array(out, inner);
            }
        }
        Array::U64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
    }
}
