//! Every check between the parsed header of one file and tensors that can be read without failing.
//!
//! The layout rule is llama.cpp's: each tensor starts exactly where the one before it ends, rounded up to the
//! alignment. A tensor of a type whose size is not known (an id of a fork, or one ggml removed and forks reuse) ends
//! where the next one says it starts.
//!
//! Padding after the last tensor may be there or not (writers differ), but not in part: then the file was cut.

use std::collections::HashSet;
use std::sync::Arc;

use burn_gguf_kernels::GgmlType;
use bytes::Bytes;

use super::error::{FileName, GgufError};
use super::metadata::Metadata;
use super::parse::{Header, RawTensor};
use super::tensor_info::TensorInfo;

/// The alignment of a file that does not name one.
pub(super) const DEFAULT_ALIGNMENT: u32 = 32;
/// Far above any in use (4096 for direct I/O, 2 MiB for huge pages).
pub(super) const MAX_ALIGNMENT: u32 = 4 << 20;
/// The metadata key of the alignment.
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";

/// One file, checked.
pub(super) struct Validated {
    pub(super) version: u32,
    pub(super) alignment: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

/// Checks keys, alignment, tensor table and the file's length.
pub(super) fn validate(
    header: Header,
    bytes: &Bytes,
    file: &FileName,
) -> Result<Validated, GgufError> {
    let metadata = Metadata::new(file.clone(), header.entries)?;
    let alignment = alignment(&metadata)?;
    let mut names = HashSet::new();
    for raw in &header.tensors {
        if !names.insert(raw.name.as_str()) {
            return Err(GgufError::DuplicateTensor {
                file: file.clone(),
                tensor: raw.name.clone(),
            });
        }
    }
    let tensors = Layout {
        file,
        bytes,
        alignment: u64::from(alignment),
        data_start: header.end.next_multiple_of(u64::from(alignment)),
    }
    .place(&header.tensors)?;
    Ok(Validated {
        version: header.version,
        alignment,
        metadata,
        tensors,
    })
}

/// The alignment `metadata` names, or the default.
pub(super) fn alignment(metadata: &Metadata) -> Result<u32, GgufError> {
    let value = metadata.get_or(ALIGNMENT_KEY, u64::from(DEFAULT_ALIGNMENT))?;
    u32::try_from(value)
        .ok()
        .filter(|v| v.is_power_of_two() && *v <= MAX_ALIGNMENT)
        .ok_or_else(|| GgufError::BadAlignment {
            file: metadata.file().clone(),
            value,
            max: u64::from(MAX_ALIGNMENT),
        })
}

/// The product of the dimensions.
pub(super) fn element_count(file: &FileName, name: &str, dims: &[u64]) -> Result<u64, GgufError> {
    // Zero dimensions are left out of the product, so that strides of the others cannot overflow either.
    dims.iter()
        .filter(|&&d| d != 0)
        .try_fold(1u64, |product, &d| product.checked_mul(d))
        .filter(|&product| i64::try_from(product).is_ok())
        .map(|product| if dims.contains(&0) { 0 } else { product })
        .ok_or_else(|| GgufError::ElementCountOverflow {
            file: file.clone(),
            tensor: name.to_owned(),
            shape: dims.to_vec(),
        })
}

/// The bytes of a tensor of these dimensions, whose rows must fill whole blocks.
pub(super) fn byte_size(
    file: &FileName,
    name: &str,
    dims: &[u64],
    ty: GgmlType,
) -> Result<u64, GgufError> {
    let n_elements = element_count(file, name, dims)?;
    let row = dims.first().copied().unwrap_or(1);
    let block = ty.block_len() as u64;
    if !row.is_multiple_of(block) {
        return Err(GgufError::PartialBlock {
            file: file.clone(),
            tensor: name.to_owned(),
            ggml_type: ty,
            row,
            block,
        });
    }
    (n_elements / block)
        .checked_mul(ty.block_bytes() as u64)
        .ok_or_else(|| size_overflow(file, name, dims, ty))
}

fn size_overflow(file: &FileName, name: &str, dims: &[u64], ty: GgmlType) -> GgufError {
    GgufError::ByteSizeOverflow {
        file: file.clone(),
        tensor: name.to_owned(),
        ggml_type: ty,
        shape: dims.to_vec(),
    }
}

struct Layout<'a> {
    file: &'a FileName,
    bytes: &'a Bytes,
    alignment: u64,
    data_start: u64,
}

impl Layout<'_> {
    fn place(&self, raw: &[RawTensor]) -> Result<Vec<TensorInfo>, GgufError> {
        let mut tensors = Vec::new();
        // Where the next tensor must start; after one of unknown size only a lower bound.
        let mut expected = 0;
        let mut exact = true;
        // The padded end of the last tensor that has bytes and a known size.
        let mut last_end = None;
        for (i, tensor) in raw.iter().enumerate() {
            self.check_offset(tensor, expected, exact)?;
            let next = raw.get(i + 1).map(|t| t.offset);
            let (size, known) = self.size(tensor, next)?;
            let end = self.end(tensor, size)?;
            let padded = end
                .checked_next_multiple_of(self.alignment)
                .ok_or_else(|| self.overflow(tensor))?;
            if size > 0 {
                last_end = known.then_some((end, padded));
            }
            exact = known;
            let info = self.info(tensor, size, padded)?;
            expected = if known {
                padded - self.data_start
            } else if info.n_elements > 0 {
                tensor.offset.saturating_add(self.alignment)
            } else {
                tensor.offset
            };
            tensors.push(info);
        }
        match last_end {
            Some((end, padded)) if self.len() > end && self.len() < padded => {
                Err(GgufError::TruncatedPadding {
                    file: self.file.clone(),
                    need: padded,
                    have: self.len(),
                })
            }
            _ => Ok(tensors),
        }
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn check_offset(
        &self,
        tensor: &RawTensor,
        expected: u64,
        exact: bool,
    ) -> Result<(), GgufError> {
        let offset = tensor.offset;
        if (exact && offset != expected) || offset < expected {
            return Err(GgufError::OffsetMismatch {
                file: self.file.clone(),
                tensor: tensor.name.clone(),
                offset,
                expected,
            });
        }
        if !offset.is_multiple_of(self.alignment) {
            return Err(GgufError::MisalignedOffset {
                file: self.file.clone(),
                tensor: tensor.name.clone(),
                offset,
                alignment: self.alignment,
            });
        }
        Ok(())
    }

    /// The tensor's bytes, and whether its type says so rather than the next tensor's offset.
    fn size(&self, tensor: &RawTensor, next: Option<u64>) -> Result<(u64, bool), GgufError> {
        let dims = &tensor.dims[..tensor.n_dims];
        let known = |ty| byte_size(self.file, &tensor.name, dims, ty);
        let removed = match GgmlType::from_id(tensor.type_id) {
            Some(ty) if !ty.is_removed() => return Ok((known(ty)?, true)),
            removed => removed,
        };
        // Forks reuse removed ids for types of their own: the old size counts only if the offsets agree with it.
        let plausible = removed
            .and_then(|ty| known(ty).ok())
            .and_then(|size| Some((size, tensor.offset.checked_add(size)?)))
            .filter(|&(_, end)| match next {
                Some(next) => end.checked_next_multiple_of(self.alignment) == Some(next),
                None => self.data_start.saturating_add(end) <= self.len(),
            });
        if let Some((size, _)) = plausible {
            return Ok((size, true));
        }
        let start = self.end(tensor, 0)?;
        let until = match next {
            Some(next) => self.data_start.saturating_add(next),
            None => self.len(),
        };
        let empty = element_count(self.file, &tensor.name, dims)? == 0;
        if !empty && start >= self.len() {
            return Err(GgufError::TruncatedData {
                file: self.file.clone(),
                tensor: tensor.name.clone(),
                need: start.saturating_add(1),
                have: self.len(),
            });
        }
        Ok((until.saturating_sub(start), false))
    }

    /// The tensor's end in the file, checked to be inside.
    fn end(&self, tensor: &RawTensor, size: u64) -> Result<u64, GgufError> {
        let end = self
            .data_start
            .checked_add(tensor.offset)
            .and_then(|start| start.checked_add(size));
        match end {
            // A tensor of no bytes may lie where padding was left out.
            Some(end) if end <= self.len() || size == 0 => Ok(end),
            Some(end) => Err(GgufError::TruncatedData {
                file: self.file.clone(),
                tensor: tensor.name.clone(),
                need: end,
                have: self.len(),
            }),
            None => Err(self.overflow(tensor)),
        }
    }

    fn overflow(&self, tensor: &RawTensor) -> GgufError {
        let dims = &tensor.dims[..tensor.n_dims];
        match GgmlType::from_id(tensor.type_id) {
            Some(ty) => size_overflow(self.file, &tensor.name, dims, ty),
            None => GgufError::TruncatedData {
                file: self.file.clone(),
                tensor: tensor.name.clone(),
                need: u64::MAX,
                have: self.len(),
            },
        }
    }

    fn info(
        &self,
        tensor: &RawTensor,
        size: u64,
        padded_end: u64,
    ) -> Result<TensorInfo, GgufError> {
        let dims = &tensor.dims[..tensor.n_dims];
        // Inside the file, hence inside the address space.
        let start = (self.data_start + tensor.offset).min(self.len()) as usize;
        Ok(TensorInfo {
            name: Arc::from(tensor.name.as_str()),
            n_dims: tensor.n_dims,
            dims: tensor.dims,
            type_id: tensor.type_id,
            n_elements: element_count(self.file, &tensor.name, dims)?,
            range: start..start + size as usize,
            padded_end: padded_end.min(self.len()) as usize,
            shard: self.bytes.clone(),
            shard_index: 0,
            file: self.file.clone(),
        })
    }
}
