//! Tensors seen as several: files may hold matrices that a model multiplies apart as one, the rows of one behind those of
//! another.

use std::sync::Arc;

use super::{Gguf, GgufError, Inner, TensorInfo};

/// A tensor whose rows are those of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSplit {
    /// Its name.
    pub tensor: String,
    /// The names of the others and their numbers of rows, in order. Of a vector, values count as rows.
    pub parts: Vec<(String, u64)>,
}

impl Gguf {
    /// The model with the parts of each tensor of `splits` in its place; their bytes are those of the file, not copies.
    ///
    /// # Errors
    /// [`MissingTensor`](GgufError::MissingTensor) or [`DuplicateTensor`](GgufError::DuplicateTensor), and
    /// [`RowSplit`](GgufError::RowSplit) where the parts do not add up to the rows there are.
    pub fn with_row_splits(&self, splits: &[RowSplit]) -> Result<Gguf, GgufError> {
        if splits.is_empty() {
            return Ok(self.clone());
        }
        for split in splits {
            self.require(&split.tensor)?;
        }
        let mut tensors = Vec::with_capacity(self.0.tensors.len() + 2 * splits.len());
        for info in self.tensors() {
            match splits.iter().find(|split| split.tensor == info.name()) {
                Some(split) => tensors.extend(parts(info, split)?),
                None => tensors.push(info.clone()),
            }
        }
        let mut index = std::collections::HashMap::with_capacity(tensors.len());
        for (i, info) in tensors.iter().enumerate() {
            if index.insert(info.name.clone(), i).is_some() {
                return Err(GgufError::DuplicateTensor {
                    file: info.file.clone(),
                    tensor: info.name.to_string(),
                });
            }
        }
        let Inner {
            file,
            shards,
            size,
            version,
            alignment,
            metadata,
            ..
        } = &*self.0;
        Ok(Gguf(Arc::new(Inner {
            file: file.clone(),
            shards: shards.clone(),
            size: *size,
            version: *version,
            alignment: *alignment,
            metadata: metadata.clone(),
            tensors,
            index,
        })))
    }
}

fn parts(info: &TensorInfo, split: &RowSplit) -> Result<Vec<TensorInfo>, GgufError> {
    let bad = || GgufError::RowSplit {
        file: info.file.clone(),
        tensor: info.name.to_string(),
        shape: info.shape().to_vec(),
        parts: split.parts.clone(),
    };
    // The axis that is divided is the last one.
    let axis = info.n_dims.checked_sub(1).ok_or_else(bad)?;
    let rows = info.dims[axis];
    let sum = (split.parts.iter()).try_fold(0u64, |sum, (_, rows)| sum.checked_add(*rows));
    let row_bytes = (info.byte_len() as u64).checked_div(rows).unwrap_or(0);
    // The values of a vector may share a block.
    let whole = row_bytes * rows == info.byte_len() as u64;
    let in_blocks = info.ggml_type().is_none_or(|ty| ty.block_len() > 1);
    if sum != Some(rows) || !whole || (axis == 0 && in_blocks) {
        return Err(bad());
    }
    let (mut start, row_bytes) = (info.range.start, row_bytes as usize);
    let part = |(name, rows): &(String, u64)| {
        let end = start + *rows as usize * row_bytes;
        let mut dims = info.dims;
        dims[axis] = *rows;
        let last = end == info.range.end;
        let part = TensorInfo {
            name: name.as_str().into(),
            dims,
            n_elements: info.n_elements / info.dims[axis].max(1) * rows,
            range: start..end,
            // What follows the others is no padding.
            padded_end: if last { info.padded_end } else { end },
            ..info.clone()
        };
        start = end;
        part
    };
    Ok(split.parts.iter().map(part).collect())
}
