//! Bounds-checked little-endian reading of the header.

use std::fmt;

use bytes::Bytes;

use super::error::{FileName, GgufError};

/// What is being read, formatted only when an error needs it.
#[derive(Clone, Copy)]
pub(super) enum Item<'a> {
    Header(&'static str),
    Key(u64),
    Value(&'a str),
    TensorName(u64),
    Tensor(&'a str),
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Header(field) => f.write_str(field),
            Item::Key(index) => write!(f, "metadata key {index}"),
            Item::Value(key) => write!(f, "the value of key `{key}`"),
            Item::TensorName(index) => write!(f, "the name of tensor {index}"),
            Item::Tensor(name) => write!(f, "the description of tensor `{name}`"),
        }
    }
}

/// A position in a file's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a Bytes,
    position: usize,
    file: &'a FileName,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a Bytes, file: &'a FileName) -> Self {
        Cursor {
            bytes,
            position: 0,
            file,
        }
    }

    pub(super) fn file(&self) -> &'a FileName {
        self.file
    }

    pub(super) fn position(&self) -> u64 {
        self.position as u64
    }

    pub(super) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize, item: Item<'_>) -> Result<&'a [u8], GgufError> {
        match self.bytes[self.position..].get(..length) {
            Some(taken) => {
                self.position += length;
                Ok(taken)
            }
            None => Err(GgufError::TruncatedHeader {
                file: self.file.clone(),
                what: item.to_string(),
                offset: self.position(),
                need: length as u64,
                have: self.remaining(),
            }),
        }
    }

    /// The bytes from `start` up to here, sharing the file's memory.
    pub(super) fn since(&self, start: u64) -> Bytes {
        self.bytes.slice(start as usize..self.position)
    }

    pub(super) fn array<const N: usize>(&mut self, item: Item<'_>) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, item)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, item: Item<'_>) -> Result<u32, GgufError> {
        self.array(item).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, item: Item<'_>) -> Result<u64, GgufError> {
        self.array(item).map(u64::from_le_bytes)
    }

    /// The bytes of a length-prefixed string.
    pub(super) fn string(&mut self, item: Item<'_>) -> Result<&'a [u8], GgufError> {
        let length = self.u64(item)?;
        if length > self.remaining() {
            return Err(GgufError::StringTooLong {
                file: self.file.clone(),
                what: item.to_string(),
                length,
                remaining: self.remaining(),
            });
        }
        self.take(length as usize, item)
    }

    /// A string used as a name, which must be UTF-8.
    pub(super) fn name(&mut self, item: Item<'_>) -> Result<String, GgufError> {
        let bytes = self.string(item)?;
        let text = std::str::from_utf8(bytes).map_err(|_| GgufError::NameNotUtf8 {
            file: self.file.clone(),
            what: item.to_string(),
            lossy: String::from_utf8_lossy(bytes).into_owned(),
        })?;
        Ok(text.to_owned())
    }
}
