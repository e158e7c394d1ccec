//! What can be wrong with the arguments of [`quantize`](super::quantize).

use crate::GgmlType;

/// Why values could not be packed. Nothing has been written when one is returned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// The type has no quantizer.
    #[error("{ty} cannot be written: {}", reason(*.ty))]
    NotWritable {
        /// The type asked for.
        ty: GgmlType,
    },
    /// The type demands an importance matrix.
    #[error("{ty} needs an importance matrix")]
    ImportanceRequired {
        /// The type asked for.
        ty: GgmlType,
    },
    /// A row does not divide into whole blocks.
    #[error("rows of {cols} values do not fill whole blocks of {ty} ({} values each)", ty.block_len())]
    PartialBlock {
        /// The block type.
        ty: GgmlType,
        /// Values per row.
        cols: usize,
    },
    /// The values do not divide into whole rows.
    #[error("{values} values do not divide into rows of {cols}")]
    PartialRow {
        /// Values given.
        values: usize,
        /// Values per row.
        cols: usize,
    },
    /// The output does not have the size of the blocks.
    #[error("{ty} data of {values} values takes {expected} bytes, the output has {actual}")]
    ByteLength {
        /// The block type.
        ty: GgmlType,
        /// Values given.
        values: usize,
        /// Bytes those take.
        expected: usize,
        /// Bytes of the output.
        actual: usize,
    },
    /// The importance matrix has another number of columns.
    #[error("importance must hold {expected} weights, one per column, got {actual}")]
    ImportanceLength {
        /// Values per row.
        expected: usize,
        /// Weights given.
        actual: usize,
    },
    /// A weight is negative or not finite.
    #[error("importance of column {index} is {weight}, must be finite and not negative")]
    ImportanceValue {
        /// The column.
        index: usize,
        /// Its weight.
        weight: f32,
    },
    /// A value is NaN or infinite.
    #[error("value {index} is {value}, cannot be quantized")]
    NotFinite {
        /// Its position among all values.
        index: usize,
        /// The value.
        value: f32,
    },
}

fn reason(ty: GgmlType) -> &'static str {
    match ty {
        ty if ty.is_removed() => "ggml removed the type",
        GgmlType::F64 | GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64 => {
            "it does not hold weights"
        }
        _ => "it has no quantizer",
    }
}
