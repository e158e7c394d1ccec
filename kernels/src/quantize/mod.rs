//! Quantizing.

pub(crate) mod lattice;
pub(crate) mod neighbours;
pub(crate) mod positive;
pub(crate) mod rounding;
pub(crate) mod symmetric;
pub(crate) mod table;
pub(crate) mod ternary;
pub(crate) mod weights;

use crate::blocks::BlockType;

/// What a type does with an importance matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Takes none.
    Ignored,
    /// Better with one.
    Optional,
    /// Not without one.
    Required,
}

/// A type that values can be turned into.
pub trait QuantizeBlock: BlockType {
    /// What the type does with an importance matrix.
    const IMPORTANCE: Importance;

    /// Quantizes one row: `values.len()` is a multiple of `LEN`, `importance` (if any) has the same length, and `out`
    /// has exactly the bytes of the row.
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]);
}

/// The blocks of a row with their values and weights.
pub(crate) fn blocks_of<'a, T: BlockType>(
    values: &'a [f32],
    importance: Option<&'a [f32]>,
    out: &'a mut [u8],
) -> impl Iterator<Item = (&'a [f32], Option<&'a [f32]>, &'a mut [u8])> {
    assert_eq!(values.len() % T::LEN, 0, "whole blocks");
    assert_eq!(values.len() / T::LEN * T::BYTES, out.len(), "one row");
    assert!(importance.is_none_or(|weights| weights.len() == values.len()));
    values
        .chunks_exact(T::LEN)
        .zip(out.chunks_exact_mut(T::BYTES))
        .enumerate()
        .map(move |(i, (values, out))| {
            let weights = importance.map(|weights| &weights[i * T::LEN..][..T::LEN]);
            (values, weights, out)
        })
}
