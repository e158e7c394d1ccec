//! From header bytes to keys, values and the raw tensor table.
//!
//! Layout (little endian; versions 2 and 3 are the same):
//! `"GGUF"`, version u32, tensor count u64, key count u64; per key: name (u64 length, bytes), type id u32, value;
//! per tensor: name, dimension count u32, dimensions u64 each (contiguous one first), type id u32, offset u64 into the
//! data section, which starts at the next multiple of the alignment.
//!
//! No count or length of the file sizes an allocation before it is compared with the bytes that remain.

use super::cursor::{Cursor, Item};
use super::error::{FileName, GgufError};
use super::magic;
use super::value::{Array, GgufString, StringArray, Value, ValueType};

use bytes::Bytes;

/// Arrays of arrays followed this deep; real files have none.
pub(super) const MAX_ARRAY_DEPTH: usize = 4;
/// An empty key and the smallest value: length, type id, one byte.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
/// An empty name and no dimensions: length, dimension count, type id, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// A header as read, before [`validate`](super::validate).
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) entries: Vec<(String, Value)>,
    pub(super) tensors: Vec<RawTensor>,
    /// Bytes up to the end of the tensor table.
    pub(super) end: u64,
}

/// One line of the tensor table.
pub(super) struct RawTensor {
    pub(super) name: String,
    pub(super) n_dims: usize,
    /// Dimensions past `n_dims` are 1.
    pub(super) dims: [u64; 4],
    pub(super) type_id: u32,
    pub(super) offset: u64,
}

/// Reads the header at the start of `bytes`.
pub(super) fn parse(bytes: &Bytes, file: &FileName) -> Result<Header, GgufError> {
    let mut cursor = Cursor::new(bytes, file);
    let version = magic_and_version(&mut cursor, bytes)?;

    let n_tensors = cursor.u64(Item::Header("the tensor count"))?;
    let n_keys = cursor.u64(Item::Header("the key count"))?;
    let remaining = cursor.remaining();
    if n_keys > remaining / MIN_KEY_BYTES {
        return Err(GgufError::TooManyKeys {
            file: file.clone(),
            count: n_keys,
            remaining,
        });
    }
    if n_tensors > remaining / MIN_TENSOR_BYTES {
        return Err(GgufError::TooManyTensors {
            file: file.clone(),
            count: n_tensors,
            remaining,
        });
    }

    // Grown by what is really there: a file can claim 2^30 keys and have them invalid from the first on.
    let mut entries = Vec::new();
    for index in 0..n_keys {
        entries.push(entry(&mut cursor, index)?);
    }
    let mut tensors = Vec::new();
    for index in 0..n_tensors {
        tensors.push(tensor(&mut cursor, index)?);
    }
    Ok(Header {
        version,
        entries,
        tensors,
        end: cursor.position(),
    })
}

fn magic_and_version(cursor: &mut Cursor<'_>, bytes: &Bytes) -> Result<u32, GgufError> {
    let file = cursor.file();
    let head = &bytes[..bytes.len().min(64)];
    if head.starts_with(b"FUGG") {
        return Err(GgufError::BigEndian {
            file: file.clone(),
            found: "magic `FUGG`".to_owned(),
        });
    }
    // A file of fewer than four bytes is cut off only if those are right.
    if !head.starts_with(b"GGUF") && !b"GGUF".starts_with(head) {
        return Err(GgufError::BadMagic {
            file: file.clone(),
            first: magic::show(head),
            hint: magic::recognise(head),
        });
    }
    cursor.take(4, Item::Header("the magic"))?;
    let version = cursor.u32(Item::Header("the version"))?;
    match version {
        2 | 3 => Ok(version),
        // Small versions stored the other way round.
        _ if version != 0 && version & 0xFFFF == 0 => Err(GgufError::BigEndian {
            file: file.clone(),
            found: format!("version field {version:#010x}"),
        }),
        _ => Err(GgufError::UnsupportedVersion {
            file: file.clone(),
            version,
        }),
    }
}

fn entry(cursor: &mut Cursor<'_>, index: u64) -> Result<(String, Value), GgufError> {
    let key = cursor.name(Item::Key(index))?;
    if key.is_empty() {
        return Err(GgufError::EmptyKey {
            file: cursor.file().clone(),
            index,
        });
    }
    let ty = value_type(cursor, &key)?;
    let value = value(cursor, &key, ty)?;
    Ok((key, value))
}

fn value_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, GgufError> {
    let type_id = cursor.u32(Item::Value(key))?;
    ValueType::from_id(type_id).ok_or_else(|| GgufError::UnknownValueType {
        file: cursor.file().clone(),
        key: key.to_owned(),
        type_id,
    })
}

fn value(cursor: &mut Cursor<'_>, key: &str, ty: ValueType) -> Result<Value, GgufError> {
    let item = Item::Value(key);
    Ok(match ty {
        ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array(item)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array(item)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array(item)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array(item)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(cursor.array(item)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array(item)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array(item)?)),
        ValueType::U64 => Value::U64(u64::from_le_bytes(cursor.array(item)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array(item)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array(item)?)),
        ValueType::Bool => {
            let [byte] = cursor.array(item)?;
            Value::Bool(boolean(cursor, key, byte)?)
        }
        ValueType::String => {
            let length = cursor.string(item)?.len() as u64;
            Value::String(GgufString::new(cursor.since(cursor.position() - length)))
        }
        ValueType::Array => Value::Array(array(cursor, key, 1)?),
    })
}

fn boolean(cursor: &Cursor<'_>, key: &str, value: u8) -> Result<bool, GgufError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(GgufError::InvalidBool {
            file: cursor.file().clone(),
            key: key.to_owned(),
            value,
        }),
    }
}

fn array(cursor: &mut Cursor<'_>, key: &str, depth: usize) -> Result<Array, GgufError> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(GgufError::ArrayTooDeep {
            file: cursor.file().clone(),
            key: key.to_owned(),
            limit: MAX_ARRAY_DEPTH,
        });
    }
    let item = Item::Value(key);
    let ty = value_type(cursor, key)?;
    let length = cursor.u64(item)?;
    let remaining = cursor.remaining();
    if length > remaining / ty.min_bytes() {
        return Err(GgufError::ArrayTooLong {
            file: cursor.file().clone(),
            key: key.to_owned(),
            length,
            element: ty.name(),
            remaining,
        });
    }
    let length = length as usize; // at most the bytes that remain

    macro_rules! numbers {
        ($variant:ident, $ty:ty) => {{
            const SIZE: usize = size_of::<$ty>();
            let (chunks, _) = cursor.take(length * SIZE, item)?.as_chunks::<SIZE>();
            Array::$variant(chunks.iter().map(|c| <$ty>::from_le_bytes(*c)).collect())
        }};
    }
    Ok(match ty {
        ValueType::U8 => Array::U8(cursor.take(length, item)?.to_vec()),
        ValueType::I8 => numbers!(I8, i8),
        ValueType::U16 => numbers!(U16, u16),
        ValueType::I16 => numbers!(I16, i16),
        ValueType::U32 => numbers!(U32, u32),
        ValueType::I32 => numbers!(I32, i32),
        ValueType::F32 => numbers!(F32, f32),
        ValueType::U64 => numbers!(U64, u64),
        ValueType::I64 => numbers!(I64, i64),
        ValueType::F64 => numbers!(F64, f64),
        ValueType::Bool => {
            let bytes = cursor.take(length, item)?;
            let values: Result<_, _> = bytes.iter().map(|&b| boolean(cursor, key, b)).collect();
            Array::Bool(values?)
        }
        ValueType::String => {
            let start = cursor.position();
            for _ in 0..length {
                cursor.string(item)?;
            }
            Array::String(StringArray::from_encoded(cursor.since(start), length))
        }
        ValueType::Array => {
            let mut inner = Vec::new();
            for _ in 0..length {
                inner.push(array(cursor, key, depth + 1)?);
            }
            Array::Array(inner)
        }
    })
}

fn tensor(cursor: &mut Cursor<'_>, index: u64) -> Result<RawTensor, GgufError> {
    let name = cursor.name(Item::TensorName(index))?;
    let item = Item::Tensor(&name);
    let n_dims = cursor.u32(item)?;
    if n_dims > 4 {
        return Err(GgufError::TooManyDimensions {
            file: cursor.file().clone(),
            tensor: name,
            n_dims,
        });
    }
    let n_dims = n_dims as usize;
    let mut dims = [1; 4];
    for dim in &mut dims[..n_dims] {
        *dim = cursor.u64(item)?;
    }
    let type_id = cursor.u32(item)?;
    let offset = cursor.u64(item)?;
    Ok(RawTensor {
        name,
        n_dims,
        dims,
        type_id,
        offset,
    })
}
