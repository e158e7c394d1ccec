//! What can be wrong with the arguments of a CPU operation.

use crate::GgmlType;

/// Why a CPU operation refused its arguments. Nothing has been written when one is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// No file in `blocks` implements the type.
    #[error("{ty} is not implemented for {operation} on cpu")]
    UnsupportedType {
        /// The type asked for.
        ty: GgmlType,
        /// The operation asked for.
        operation: &'static str,
    },
    /// A row or buffer does not divide into whole blocks.
    #[error("{len} values do not fill whole blocks of {ty} ({} values each)", ty.block_len())]
    PartialBlock {
        /// The block type.
        ty: GgmlType,
        /// Values asked for.
        len: usize,
    },
    /// The bytes of a tensor do not have the size its type and shape call for.
    #[error("{ty} data of {values} values takes {expected} bytes, got {actual}")]
    ByteLength {
        /// The block type.
        ty: GgmlType,
        /// Values the shape calls for.
        values: usize,
        /// Bytes those take.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// A buffer of values has the wrong length.
    #[error("{what} must hold {expected} values, got {actual}")]
    BufferLength {
        /// Which argument.
        what: &'static str,
        /// Its length according to the other arguments.
        expected: usize,
        /// Its length.
        actual: usize,
    },
    /// The shape's size does not fit in memory.
    #[error("a shape of {rows} x {cols} overflows")]
    Overflow {
        /// Rows.
        rows: usize,
        /// Values per row.
        cols: usize,
    },
    /// Matrices that are multiplied with the same input have different row lengths.
    #[error("matrix {index} has rows of {actual} values, the first has {expected}")]
    MixedColumns {
        /// Which matrix.
        index: usize,
        /// Row length of the first.
        expected: usize,
        /// Its row length.
        actual: usize,
    },
    /// `linear_many` needs one output per matrix.
    #[error("{outputs} outputs for {matrices} matrices")]
    OutputCount {
        /// Matrices given.
        matrices: usize,
        /// Outputs given.
        outputs: usize,
    },
    /// A row id that the matrix does not have.
    #[error("row id {id} at position {position} is outside 0..{rows}")]
    RowOutOfRange {
        /// The id.
        id: i64,
        /// Where it stands among the ids.
        position: usize,
        /// Rows of the matrix.
        rows: usize,
    },
    /// An expert id that the stack does not have.
    #[error("expert id {id} in slot {slot} of token {token} is outside 0..{experts}")]
    ExpertOutOfRange {
        /// The id.
        id: i64,
        /// The row of `ids` it stands in.
        token: usize,
        /// Its place among the experts chosen for that token.
        slot: usize,
        /// Experts of the stack.
        experts: usize,
    },
    /// Ids do not divide into rows of the number of chosen experts.
    #[error("{ids} expert ids are not rows of {chosen}")]
    PartialChoice {
        /// Ids given.
        ids: usize,
        /// Experts chosen per token.
        chosen: usize,
    },
    /// Stacks that are multiplied with the same input have different numbers of experts.
    #[error("stack {index} has {actual} experts, the first has {expected}")]
    MixedExperts {
        /// Which stack.
        index: usize,
        /// Experts of the first.
        expected: usize,
        /// Its experts.
        actual: usize,
    },
    /// The level asked for needs instructions this CPU lacks.
    #[error("this CPU cannot run {0:?}")]
    IsaUnavailable(super::Isa),
}
