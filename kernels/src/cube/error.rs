//! What can be wrong with a call to a CubeCL operation.

use super::FloatKind;
use crate::GgmlType;

/// Why a CubeCL operation refused its inputs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CubeError {
    /// There are no CubeCL kernels for this block type.
    #[error("no CubeCL kernels for tensor type {0}")]
    UnsupportedType(GgmlType),
    /// A row does not fill whole blocks, or its size overflows.
    #[error("a row of {cols} values does not fill whole {ty} blocks of {}", ty.block_len())]
    BadRowLength {
        /// The block type.
        ty: GgmlType,
        /// Values in a row.
        cols: usize,
    },
    /// A buffer does not have the size its shape asks for.
    #[error("{what} has {got} bytes where {expected} are needed")]
    BadLength {
        /// Which operand.
        what: &'static str,
        /// Bytes the shape asks for.
        expected: u64,
        /// Bytes given.
        got: u64,
    },
    /// One row is larger than what one binding may hold, so the rows cannot be cut.
    #[error("one row of {row_bytes} bytes does not fit the binding limit of {limit} bytes")]
    RowOverLimit {
        /// Bytes of one row.
        row_bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An operand that is not cut is larger than what one binding may hold.
    #[error("{what} of {bytes} bytes is over the binding limit of {limit} bytes")]
    OverLimit {
        /// Which operand.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Pieces given for a matrix do not add up to it.
    #[error("the pieces of the matrix hold {got} rows where it has {expected}")]
    BadPieces {
        /// Rows of the matrix.
        expected: usize,
        /// Rows of the pieces together.
        got: usize,
    },
    /// The rows of a stack are not the same number for each expert.
    #[error("a stack of {rows} rows is not {experts} experts of the same size")]
    BadExperts {
        /// Experts.
        experts: usize,
        /// Rows of all experts together.
        rows: usize,
    },
    /// No expert, or more than there are, are to be chosen.
    #[error("{used} of {experts} experts cannot be chosen")]
    BadChoice {
        /// Experts to choose.
        used: usize,
        /// Experts.
        experts: usize,
    },
    /// Row ids must be 32-bit or 64-bit integers.
    #[error("row ids of type {0} are not supported (i32, u32 and i64 are)")]
    BadIdType(String),
    /// More values rotate than a head has.
    #[error("{pairs} rotated pairs do not fit a head of {dim} values")]
    BadRotation {
        /// Pairs of the tables.
        pairs: usize,
        /// Values of a head.
        dim: usize,
    },
    /// Query heads do not share the cache's heads evenly.
    #[error("{heads} query heads cannot share {kv_heads} cache heads")]
    BadHeads {
        /// Query heads.
        heads: usize,
        /// Heads of the cache.
        kv_heads: usize,
    },
    /// The tokens are not within the valid rows of the cache, or those not within its capacity.
    #[error("{len} positions with {seq} new ones do not fit a cache of {capacity}")]
    BadCacheLen {
        /// Tokens of the call.
        seq: usize,
        /// Valid rows.
        len: usize,
        /// Rows of the cache.
        capacity: usize,
    },
    /// Blocks of keys that have none.
    #[error("a block of keys has at least one")]
    NoBlocks,
    /// The device has no attention over caches of this type.
    #[error("attention over {0:?} caches is not supported on this device")]
    BadCacheType(FloatKind),
}
