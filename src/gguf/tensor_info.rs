//! One tensor of a GGUF.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn_gguf_kernels::GgmlType;
use bytes::Bytes;

use super::error::{FileName, GgufError};

/// A tensor of an opened GGUF: what the file says about it, and its bytes.
///
/// The byte range was checked when the file was opened, so reading cannot fail.
#[derive(Clone)]
pub struct TensorInfo {
    pub(super) name: Arc<str>,
    pub(super) n_dims: usize,
    pub(super) dims: [u64; 4],
    pub(super) type_id: u32,
    pub(super) n_elements: u64,
    /// Inside `shard`.
    pub(super) range: Range<usize>,
    /// Where the padding after the tensor ends, at most the end of `shard`.
    pub(super) padded_end: usize,
    /// The whole file.
    pub(super) shard: Bytes,
    pub(super) shard_index: usize,
    pub(super) file: FileName,
}

impl TensorInfo {
    /// The name, for example `blk.0.attn_q.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions in ggml's `ne` order, the contiguous one first: a matrix of `rows` outputs and `cols` inputs is
    /// `[cols, rows]`. A scalar has none.
    pub fn shape(&self) -> &[u64] {
        &self.dims[..self.n_dims]
    }

    /// The type id in the file, which may be unknown.
    pub fn type_id(&self) -> u32 {
        self.type_id
    }

    /// The type, if its id is one of ggml's (removed types included).
    pub fn ggml_type(&self) -> Option<GgmlType> {
        GgmlType::from_id(self.type_id)
    }

    /// The type, if a tensor of it can be computed with.
    ///
    /// # Errors
    /// [`RemovedType`](GgufError::RemovedType) or [`UnknownType`](GgufError::UnknownType).
    pub fn usable_type(&self) -> Result<GgmlType, GgufError> {
        match self.ggml_type() {
            Some(ty) if !ty.is_removed() => Ok(ty),
            Some(ty) => Err(GgufError::RemovedType {
                file: self.file.clone(),
                tensor: self.name.to_string(),
                type_id: self.type_id,
                name: ty.name(),
            }),
            None => Err(GgufError::UnknownType {
                file: self.file.clone(),
                tensor: self.name.to_string(),
                type_id: self.type_id,
            }),
        }
    }

    /// The number of values; 1 for a scalar, 0 if a dimension is 0.
    pub fn n_elements(&self) -> u64 {
        self.n_elements
    }

    /// The number of bytes, without padding. For a type of unknown size, the bytes up to the next tensor.
    pub fn byte_len(&self) -> usize {
        self.range.len()
    }

    /// Where the bytes lie in their shard.
    pub fn byte_range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Which shard holds the tensor, counting from 0.
    pub fn shard(&self) -> usize {
        self.shard_index
    }

    /// The file that holds the tensor, for messages.
    pub fn file(&self) -> &FileName {
        &self.file
    }

    /// The bytes, sharing the file's memory; they keep the mapping alive.
    ///
    /// In a mapped file they start at a multiple of the file's alignment (32 unless `general.alignment` says otherwise).
    pub fn bytes(&self) -> Bytes {
        self.shard.slice(self.range.clone())
    }

    /// The bytes, borrowed.
    pub fn data(&self) -> &[u8] {
        &self.shard[self.range.clone()]
    }

    /// The bytes and as much of the padding behind them as makes the length a multiple of `align`
    /// (4 for kernels that read `u32` words).
    ///
    /// `None` if there is not enough padding (small alignment, or the file ends first) or `align` is 0: copy then.
    pub fn padded_bytes(&self, align: usize) -> Option<Bytes> {
        let length = self.range.len().checked_next_multiple_of(align)?;
        let end = self.range.start.checked_add(length)?;
        (end <= self.padded_end.max(self.range.end))
            .then(|| self.shard.slice(self.range.start..end))
    }
}

impl fmt::Debug for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("TensorInfo");
        s.field("name", &self.name);
        match self.ggml_type() {
            Some(ty) => s.field("type", &format_args!("{ty}")),
            None => s.field("type", &format_args!("id {}", self.type_id)),
        };
        s.field("shape", &self.shape())
            .field("range", &self.range)
            .field("shard", &self.shard_index)
            .finish()
    }
}
