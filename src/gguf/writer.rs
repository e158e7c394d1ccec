//! Writing GGUF files (version 3), so that llama.cpp and gguf-py read them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use burn_gguf_kernels::GgmlType;
use bytes::Bytes;

use super::encode;
use super::error::{FileName, GgufError};
use super::metadata::Metadata;
use super::parse::MAX_ARRAY_DEPTH;
use super::replace::replace_file;
use super::tensor_info::TensorInfo;
use super::validate::{self, ALIGNMENT_KEY};
use super::value::{Array, Value};
use super::{Gguf, split};

/// llama.cpp keeps names in 64 bytes, one of them for the end.
const MAX_TENSOR_NAME: usize = 63;

/// Composes a GGUF file: metadata first, tensors in the order they are added.
///
/// Nothing is checked until the file is written; then everything is, before the first byte goes out.
///
/// ```
/// use burn_gguf::gguf::{Gguf, GgufWriter};
/// use burn_gguf_kernels::GgmlType;
///
/// let values: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
/// let bytes = GgufWriter::new()
///     .metadata("general.architecture", "example")
///     .tensor("a.bias", &[2], GgmlType::F32, values)
///     .to_bytes()?;
/// assert_eq!(Gguf::from_bytes(bytes)?.require("a.bias")?.shape(), [2]);
/// # Ok::<(), burn_gguf::gguf::GgufError>(())
/// ```
#[derive(Default)]
pub struct GgufWriter<'a> {
    entries: Vec<(String, Value)>,
    tensors: Vec<Entry<'a>>,
}

struct Entry<'a> {
    name: String,
    dims: Vec<u64>,
    type_id: u32,
    /// The size of a tensor whose type does not tell it.
    raw_size: Option<u64>,
    data: TensorData<'a>,
}

/// Writes a tensor's bytes.
type Produce<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

/// The bytes of a tensor to write.
pub enum TensorData<'a> {
    /// Shared or owned bytes.
    Shared(Bytes),
    /// Borrowed bytes.
    Borrowed(&'a [u8]),
    /// Bytes made while the file is written, exactly as many as the tensor's shape and type need.
    Produced(Box<Produce<'a>>),
}

impl From<Bytes> for TensorData<'_> {
    fn from(bytes: Bytes) -> Self {
        TensorData::Shared(bytes)
    }
}

impl From<Vec<u8>> for TensorData<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        TensorData::Shared(bytes.into())
    }
}

impl<'a> From<&'a [u8]> for TensorData<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        TensorData::Borrowed(bytes)
    }
}

impl<'a> From<Cow<'a, [u8]>> for TensorData<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        match bytes {
            Cow::Borrowed(bytes) => bytes.into(),
            Cow::Owned(bytes) => bytes.into(),
        }
    }
}

impl TensorData<'_> {
    fn known_len(&self) -> Option<u64> {
        match self {
            TensorData::Shared(bytes) => Some(bytes.len() as u64),
            TensorData::Borrowed(bytes) => Some(bytes.len() as u64),
            TensorData::Produced(_) => None,
        }
    }
}

impl<'a> GgufWriter<'a> {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the alignment of tensor data, and with it the key `general.alignment` (32 if never set).
    pub fn alignment(&mut self, bytes: u32) -> &mut Self {
        self.set_metadata(ALIGNMENT_KEY, bytes)
    }

    /// Adds a key. The same key twice is an error when the file is written.
    pub fn metadata(&mut self, key: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.entries.push((key.into(), value.into()));
        self
    }

    /// Adds a key or replaces its value.
    pub fn set_metadata(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value.into(),
            None => self.entries.push((key.to_owned(), value.into())),
        }
        self
    }

    /// Removes a key if it is there.
    pub fn remove_metadata(&mut self, key: &str) -> &mut Self {
        self.entries.retain(|(k, _)| k != key);
        self
    }

    /// Adds a tensor. `shape` is in ggml's `ne` order, the contiguous dimension first.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        shape: &[u64],
        ggml_type: GgmlType,
        data: impl Into<TensorData<'a>>,
    ) -> &mut Self {
        self.tensors.push(Entry {
            name: name.into(),
            dims: shape.to_vec(),
            type_id: ggml_type.id(),
            raw_size: None,
            data: data.into(),
        });
        self
    }

    /// Adds a tensor whose bytes `produce` writes when their turn comes, so that no two tensors are in memory at once.
    ///
    /// It is called once for every file written.
    pub fn tensor_with(
        &mut self,
        name: impl Into<String>,
        shape: &[u64],
        ggml_type: GgmlType,
        produce: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> &mut Self {
        self.tensor(
            name,
            shape,
            ggml_type,
            TensorData::Produced(Box::new(produce)),
        )
    }

    /// Adds a tensor of another GGUF as it is, of whatever type; the bytes are shared, not copied.
    pub fn copy_tensor(&mut self, tensor: &TensorInfo) -> &mut Self {
        self.copy_described(tensor, tensor.bytes().into())
    }

    /// Adds a tensor that is described as one of another GGUF is, whatever its type, and whose bytes `produce` writes.
    ///
    /// It is called once for every file written.
    pub fn copy_tensor_with(
        &mut self,
        tensor: &TensorInfo,
        produce: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> &mut Self {
        self.copy_described(tensor, TensorData::Produced(Box::new(produce)))
    }

    fn copy_described(&mut self, tensor: &TensorInfo, data: TensorData<'a>) -> &mut Self {
        let by_type = tensor.ggml_type().and_then(|ty| {
            validate::byte_size(tensor.file(), tensor.name(), tensor.shape(), ty).ok()
        });
        let size = tensor.byte_len() as u64;
        self.tensors.push(Entry {
            name: tensor.name().to_owned(),
            dims: tensor.shape().to_vec(),
            type_id: tensor.type_id(),
            raw_size: (by_type != Some(size)).then_some(size),
            data,
        });
        self
    }

    /// Adds the metadata and all tensors of another GGUF. Of a split model the result is one file: the keys that
    /// describe the split are left out.
    pub fn copy_from(&mut self, other: &Gguf) -> &mut Self {
        self.copy_metadata(other.metadata());
        for tensor in other.tensors() {
            self.copy_tensor(tensor);
        }
        self
    }

    /// Adds the metadata of another GGUF, except the keys that describe how it is split.
    pub fn copy_metadata(&mut self, other: &Metadata) -> &mut Self {
        for (key, value) in other.iter().filter(|(key, _)| !split::is_split_key(key)) {
            self.metadata(key, value.clone());
        }
        self
    }

    /// Writes the file into `out`, and returns the number of bytes.
    ///
    /// # Errors
    /// A rule the file would break (the variants are those of reading, the file is
    /// [`FileName::Output`]), [`NameTooLong`](GgufError::NameTooLong), [`DataSize`](GgufError::DataSize), or
    /// [`Io`](GgufError::Io). After an error while tensors were written, part of the file is in `out`.
    pub fn write_to(&self, mut out: impl Write) -> Result<u64, GgufError> {
        self.write_named(&mut out, &FileName::Output)
    }

    /// The file as bytes in memory.
    ///
    /// # Errors
    /// As [`write_to`](GgufWriter::write_to).
    pub fn to_bytes(&self) -> Result<Bytes, GgufError> {
        let mut out = Vec::new();
        self.write_to(&mut out)?;
        Ok(out.into())
    }

    /// Writes the file to `path`, and returns its size in bytes. The file appears complete or not at all: it is written
    /// beside and renamed. A file already there is replaced, which leaves mappings of it intact.
    ///
    /// # Errors
    /// As [`write_to`](GgufWriter::write_to).
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<u64, GgufError> {
        replace_file(path.as_ref(), |out, name| self.write_named(out, name))
    }

    /// How many tensors were added.
    pub(super) fn n_tensors(&self) -> usize {
        self.tensors.len()
    }

    pub(super) fn write_named(
        &self,
        out: &mut dyn Write,
        file: &FileName,
    ) -> Result<u64, GgufError> {
        let plan = self.plan(file)?;
        let failed = |source| GgufError::Io {
            file: file.clone(),
            action: "write",
            source,
        };
        let mut written = 0;
        if !self.tensors.is_empty() {
            written = plan.header.len().next_multiple_of(plan.alignment) as u64;
        }
        out.write_all(&plan.header).map_err(failed)?;
        encode::pad(out, written.saturating_sub(plan.header.len() as u64)).map_err(failed)?;
        for (tensor, &size) in self.tensors.iter().zip(&plan.sizes) {
            self.write_tensor(out, file, tensor, size)?;
            let padded = size.next_multiple_of(plan.alignment as u64);
            encode::pad(out, padded - size).map_err(failed)?;
            written += padded;
        }
        out.flush().map_err(failed)?;
        Ok(written.max(plan.header.len() as u64))
    }

    fn write_tensor(
        &self,
        out: &mut dyn Write,
        file: &FileName,
        tensor: &Entry<'_>,
        size: u64,
    ) -> Result<(), GgufError> {
        let mut counted = Counted {
            out,
            limit: size,
            offered: 0,
        };
        let result = match &tensor.data {
            TensorData::Shared(bytes) => counted.write_all(bytes),
            TensorData::Borrowed(bytes) => counted.write_all(bytes),
            TensorData::Produced(produce) => produce(&mut counted),
        };
        let offered = counted.offered;
        // Offering too much made the write fail: the size is the cause to name.
        match result {
            Err(source) if offered <= size => Err(GgufError::Io {
                file: file.clone(),
                action: "write",
                source,
            }),
            _ if offered != size => Err(GgufError::DataSize {
                file: file.clone(),
                tensor: tensor.name.clone(),
                need: size,
                have: offered,
            }),
            _ => Ok(()),
        }
    }

    /// Checks every rule and encodes the header.
    fn plan(&self, file: &FileName) -> Result<Plan, GgufError> {
        self.check_metadata(file)?;
        let alignment = self.checked_alignment(file)?;
        let mut names = HashSet::new();
        let mut header = encode::start(self.tensors.len(), &self.entries);
        let mut sizes = Vec::with_capacity(self.tensors.len());
        let mut offset = 0u64;
        for tensor in &self.tensors {
            if !names.insert(tensor.name.as_str()) {
                return Err(GgufError::DuplicateTensor {
                    file: file.clone(),
                    tensor: tensor.name.clone(),
                });
            }
            let size = checked_size(file, tensor)?;
            encode::tensor(
                &mut header,
                &tensor.name,
                &tensor.dims,
                tensor.type_id,
                offset,
            );
            offset = size
                .checked_next_multiple_of(u64::from(alignment))
                .and_then(|padded| offset.checked_add(padded))
                .ok_or_else(|| GgufError::TotalSizeOverflow {
                    file: file.clone(),
                    tensor: tensor.name.clone(),
                })?;
            sizes.push(size);
        }
        Ok(Plan {
            header,
            sizes,
            alignment: alignment as usize,
        })
    }

    fn check_metadata(&self, file: &FileName) -> Result<(), GgufError> {
        let mut keys = HashSet::new();
        for (index, (key, value)) in self.entries.iter().enumerate() {
            if key.is_empty() {
                return Err(GgufError::EmptyKey {
                    file: file.clone(),
                    index: index as u64,
                });
            }
            if !keys.insert(key.as_str()) {
                return Err(GgufError::DuplicateKey {
                    file: file.clone(),
                    key: key.clone(),
                });
            }
            if let Value::Array(array) = value
                && depth(array) > MAX_ARRAY_DEPTH
            {
                return Err(GgufError::ArrayTooDeep {
                    file: file.clone(),
                    key: key.clone(),
                    limit: MAX_ARRAY_DEPTH,
                });
            }
        }
        Ok(())
    }

    fn checked_alignment(&self, file: &FileName) -> Result<u32, GgufError> {
        let entry = self.entries.iter().find(|(key, _)| key == ALIGNMENT_KEY);
        let metadata = Metadata::new(file.clone(), entry.cloned().into_iter().collect())?;
        validate::alignment(&metadata)
    }
}

/// A file ready to be written.
struct Plan {
    header: Vec<u8>,
    /// Bytes of each tensor, without padding.
    sizes: Vec<u64>,
    alignment: usize,
}

fn depth(array: &Array) -> usize {
    match array {
        Array::Array(inner) => 1 + inner.iter().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}

fn checked_size(file: &FileName, tensor: &Entry<'_>) -> Result<u64, GgufError> {
    let name = &tensor.name;
    if name.len() > MAX_TENSOR_NAME {
        return Err(GgufError::NameTooLong {
            file: file.clone(),
            tensor: name.clone(),
            length: name.len(),
            max: MAX_TENSOR_NAME,
        });
    }
    if tensor.dims.len() > 4 {
        return Err(GgufError::TooManyDimensions {
            file: file.clone(),
            tensor: name.clone(),
            n_dims: tensor.dims.len() as u32,
        });
    }
    let size = match (tensor.raw_size, GgmlType::from_id(tensor.type_id)) {
        (None, Some(ty)) => validate::byte_size(file, name, &tensor.dims, ty)?,
        (size, _) => size.unwrap_or(0),
    };
    match tensor.data.known_len() {
        Some(have) if have != size => Err(GgufError::DataSize {
            file: file.clone(),
            tensor: name.clone(),
            need: size,
            have,
        }),
        _ => Ok(size),
    }
}

/// Passes on at most `limit` bytes and counts what was offered.
struct Counted<'w> {
    out: &'w mut dyn Write,
    limit: u64,
    offered: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.offered + bytes.len() as u64 > self.limit {
            self.offered += bytes.len() as u64;
            return Err(io::Error::other("more bytes than the tensor has"));
        }
        let written = self.out.write(bytes)?;
        self.offered += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl fmt::Debug for GgufWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufWriter")
            .field("keys", &self.entries.len())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}
