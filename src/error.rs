//! Errors of the tensor primitive and the module store.

use burn_gguf_kernels::GgmlType;

/// What can be wrong with a block-quantized tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The row length is not a multiple of the type's block length.
    #[error("a row of {cols} values does not fill whole {ggml_type} blocks of {}", .ggml_type.block_len())]
    PartialBlock {
        /// The block type.
        ggml_type: GgmlType,
        /// Values in a row.
        cols: usize,
    },
    /// ggml dropped the type; nothing computes it any more.
    #[error("type {ggml_type} (id {}) was removed from ggml; convert the model again with a current tool", .ggml_type.id())]
    RemovedType {
        /// The removed type.
        ggml_type: GgmlType,
    },
    /// The device has no kernels for the type yet.
    #[error("type {ggml_type} cannot be computed on {device} devices yet; supported: {supported}")]
    UnsupportedType {
        /// The type.
        ggml_type: GgmlType,
        /// The backend family.
        device: &'static str,
        /// The types that can be computed, comma separated.
        supported: String,
    },
    /// The size in bytes overflows this platform's `usize`.
    #[error("a tensor of {matrices} x {rows} x {cols} values overflows the address space")]
    TooLarge {
        /// Stacked matrices.
        matrices: usize,
        /// Rows of a matrix.
        rows: usize,
        /// Values in a row.
        cols: usize,
    },
    /// The bytes handed over are fewer than the layout needs.
    #[error("expected {expected} bytes of {ggml_type} blocks, found {found}")]
    ByteLength {
        /// The block type.
        ggml_type: GgmlType,
        /// Bytes the layout needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// A stack takes one factor, or one per matrix.
    #[error("{found} scale factors for {matrices} stacked matrices; expected 1 or {matrices}")]
    ScaleCount {
        /// Stacked matrices.
        matrices: usize,
        /// Factors given.
        found: usize,
    },
    /// A scale factor is infinite or not a number.
    #[error("a scale factor is {value}; it must be finite")]
    ScaleValue {
        /// The factor.
        value: String,
    },
    /// The tensor's number of dimensions has no matrix reading.
    #[error(
        "a tensor of shape {shape:?} (ne order) is neither a vector, a matrix nor a stack of matrices"
    )]
    Rank {
        /// The shape, contiguous axis first.
        shape: Vec<u64>,
    },
    /// The device's backend has no block-quantized operations compiled in.
    #[error("device {device} has no GGML operations; enable its feature of `burn-gguf`")]
    UnsupportedDevice {
        /// The device, as burn prints it.
        device: String,
    },
}

/// A tensor of a file that cannot become a [`GgmlTensor`](crate::GgmlTensor).
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file itself is at fault.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    /// One tensor is.
    #[error("tensor \"{name}\": {source}")]
    Tensor {
        /// The tensor's name in the file.
        name: String,
        /// What is wrong with it.
        source: TensorError,
    },
}
