//! The shape of a block-quantized tensor and what it occupies.

use burn_gguf_kernels::GgmlType;

use crate::error::TensorError;

/// Type and shape of a [`GgmlTensor`](crate::GgmlTensor): `matrices` stacked matrices of `[rows, cols]` values,
/// rows along the output axis, blocks along `cols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GgmlLayout {
    ggml_type: GgmlType,
    matrices: usize,
    rows: usize,
    cols: usize,
}

impl GgmlLayout {
    /// A single matrix `[rows, cols]`.
    ///
    /// # Errors
    /// If `cols` does not fill whole blocks of `ggml_type`, the type was removed from ggml, or the size overflows.
    pub fn matrix(ggml_type: GgmlType, rows: usize, cols: usize) -> Result<Self, TensorError> {
        Self::stack(ggml_type, 1, rows, cols)
    }

    /// A stack of `matrices` matrices `[matrices, rows, cols]` (mixture-of-experts weights).
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn stack(
        ggml_type: GgmlType,
        matrices: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Self, TensorError> {
        if ggml_type.is_removed() {
            return Err(TensorError::RemovedType { ggml_type });
        }
        let row_bytes = ggml_type
            .row_bytes(cols)
            .ok_or(TensorError::PartialBlock { ggml_type, cols })?;
        row_bytes
            .checked_mul(rows)
            .and_then(|n| n.checked_mul(matrices))
            .and_then(|n| n.checked_add(3))
            .ok_or(TensorError::TooLarge {
                matrices,
                rows,
                cols,
            })?;
        Ok(Self {
            ggml_type,
            matrices,
            rows,
            cols,
        })
    }

    /// The block type.
    pub const fn ggml_type(&self) -> GgmlType {
        self.ggml_type
    }

    /// Stacked matrices (1 for a plain weight).
    pub const fn matrices(&self) -> usize {
        self.matrices
    }

    /// Rows of one matrix: the output width of a linear layer.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row: the input width of a linear layer.
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Rows of all matrices together.
    pub const fn total_rows(&self) -> usize {
        self.matrices * self.rows
    }

    /// Values of all matrices together.
    pub const fn num_values(&self) -> usize {
        self.total_rows() * self.cols
    }

    /// Bytes of one row.
    pub const fn row_bytes(&self) -> usize {
        self.cols / self.ggml_type.block_len() * self.ggml_type.block_bytes()
    }

    /// Bytes of all blocks.
    pub const fn byte_len(&self) -> usize {
        self.total_rows() * self.row_bytes()
    }

    /// The u32 words that hold the blocks: [`byte_len`](Self::byte_len) rounded up.
    pub const fn word_len(&self) -> usize {
        self.byte_len().div_ceil(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_block_geometry() {
        let layout = GgmlLayout::stack(GgmlType::Q8_0, 2, 3, 32).unwrap();
        assert_eq!(layout.row_bytes(), 34);
        assert_eq!(layout.byte_len(), 204);
        assert_eq!(layout.word_len(), 51);
        assert_eq!(layout.num_values(), 192);
        assert_eq!(
            GgmlLayout::matrix(GgmlType::Q8_0, 1, 32)
                .unwrap()
                .word_len(),
            9
        );
    }

    #[test]
    fn partial_blocks_removed_types_and_overflow_are_refused() {
        assert!(matches!(
            GgmlLayout::matrix(GgmlType::Q6K, 1, 128),
            Err(TensorError::PartialBlock { cols: 128, .. })
        ));
        assert!(matches!(
            GgmlLayout::matrix(GgmlType::Q4_2, 1, 32),
            Err(TensorError::RemovedType { .. })
        ));
        assert!(matches!(
            GgmlLayout::matrix(GgmlType::F32, usize::MAX / 2, 64),
            Err(TensorError::TooLarge { .. })
        ));
    }
}
