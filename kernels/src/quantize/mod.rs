//! Packing: `f32` values to blocks, with the bytes of ggml's reference quantizers.
//!
//! - [`quantize`] is the way in; it checks its arguments and shares rows among threads.
//! - [`QuantizeBlock`] is what a type implements, in its file under [`blocks`].
//! - The searches that several types share: `affine.rs` (scale and minimum), `symmetric.rs` (signed scale),
//!   `positive.rs` (scales of scales), `table.rs` (16 values), `lattice.rs` and `ternary.rs` (codebooks of vectors, whose
//!   `neighbours.rs` are tried); `rounding.rs` and `weights.rs` serve them.
//!
//! Equal bytes need equal rounding: every sum here is in `f32`, in the order of the values, and no product is fused
//! with a sum. Where C does not define ggml's result, because a number does not fit the integer it is converted to,
//! this code saturates; only blocks whose largest magnitude is about the least normal `f32` get there.
//!
//! The algorithms are those of ggml (`ggml-quants.c`).

pub(crate) mod affine;
mod error;
pub(crate) mod lattice;
pub(crate) mod neighbours;
pub(crate) mod positive;
pub(crate) mod rounding;
pub(crate) mod symmetric;
pub(crate) mod table;
pub(crate) mod ternary;
pub(crate) mod weights;

#[cfg(test)]
mod tests;

pub use error::QuantizeError;

use crate::GgmlType;
use crate::blocks::{self, BlockType};
use rayon::prelude::*;

/// What a type does with an importance matrix: one weight per column, by which squared errors are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// It makes no difference.
    Ignored,
    /// It is used where given.
    Optional,
    /// Without one the type cannot be written.
    Required,
}

/// A type that can be written.
pub trait QuantizeBlock: BlockType {
    /// What the type does with an importance matrix.
    const IMPORTANCE: Importance;

    /// Packs one row. To be `#[inline(always)]`, so that it can be compiled for more than one kind of CPU.
    ///
    /// # Panics
    /// If `values.len()` is not a multiple of `LEN`, `importance` has another length, or `out` is not exactly the
    /// bytes of the row; if importance is required and absent.
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]);
}

type RowQuantizer = fn(&[f32], Option<&[f32]>, &mut [u8]);

macro_rules! writable_types {
    ($($ty:ident),* $(,)?) => {
        /// Every type that can be written.
        pub const WRITABLE: &[GgmlType] = &[$(GgmlType::$ty),*];

        fn writer(ty: GgmlType) -> Option<(Importance, RowQuantizer)> {
            match ty {
                $(GgmlType::$ty => Some((
                    <blocks::$ty as QuantizeBlock>::IMPORTANCE,
                    quantize_row::<blocks::$ty>,
                )),)*
                _ => None,
            }
        }

        /// The code of the type, compiled for every CPU.
        #[cfg(test)]
        fn portable(ty: GgmlType) -> RowQuantizer {
            match ty {
                $(GgmlType::$ty => <blocks::$ty as QuantizeBlock>::quantize_row,)*
                _ => panic!("{ty} is not writable"),
            }
        }
    };
}

writable_types! {
    F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4K, Q5K, Q6K,
    Q1_0, Q2_0, Q8_1, Q2K, Q3K, Q8K, TQ1_0, TQ2_0, MXFP4, NVFP4,
    IQ1S, IQ1M, IQ2XXS, IQ2XS, IQ2S, IQ3XXS, IQ3S, IQ4NL, IQ4XS,
}

/// Whether [`quantize`] takes the type.
pub fn is_writable(ty: GgmlType) -> bool {
    writer(ty).is_some()
}

/// What the type does with an importance matrix; `None` if it is not writable.
pub fn importance(ty: GgmlType) -> Option<Importance> {
    Some(writer(ty)?.0)
}

/// Packs rows of `cols` values each into `out`. Runs on rayon's current pool, a row at a time.
///
/// `importance`, of `cols` weights, is shared by all rows: a larger one makes the errors of its column smaller at the
/// expense of others. Types that ignore it may be given one.
///
/// # Errors
/// If the type is not writable, demands an importance matrix and gets none, or a row does not fill whole blocks; if
/// `values`, `importance` or `out` have the wrong length; if a value is not finite, or a weight neither zero nor a
/// finite positive number. Nothing has been written then.
pub fn quantize(
    ty: GgmlType,
    values: &[f32],
    cols: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), QuantizeError> {
    let (use_of_importance, quantize_row) = writer(ty).ok_or(QuantizeError::NotWritable { ty })?;
    if use_of_importance == Importance::Required && importance.is_none() {
        return Err(QuantizeError::ImportanceRequired { ty });
    }
    let row_bytes = ty
        .row_bytes(cols)
        .ok_or(QuantizeError::PartialBlock { ty, cols })?;
    let rows = values.len().checked_div(cols).unwrap_or(0);
    if rows * cols != values.len() {
        let values = values.len();
        return Err(QuantizeError::PartialRow { values, cols });
    }
    // Rows have no more bytes than values have, so this cannot overflow.
    if out.len() != rows * row_bytes {
        return Err(QuantizeError::ByteLength {
            ty,
            values: values.len(),
            expected: rows * row_bytes,
            actual: out.len(),
        });
    }
    if let Some(weights) = importance {
        if weights.len() != cols {
            return Err(QuantizeError::ImportanceLength {
                expected: cols,
                actual: weights.len(),
            });
        }
        let wrong = |weight: &f32| !weight.is_finite() || *weight < 0.0;
        if let Some(index) = weights.iter().position(wrong) {
            let weight = weights[index];
            return Err(QuantizeError::ImportanceValue { index, weight });
        }
    }
    if let Some(index) = position_not_finite(values) {
        let value = values[index];
        return Err(QuantizeError::NotFinite { index, value });
    }
    if rows == 0 {
        return Ok(());
    }
    values
        .par_chunks_exact(cols)
        .zip(out.par_chunks_exact_mut(row_bytes))
        .for_each(|(values, out)| quantize_row(values, importance, out));
    Ok(())
}

fn position_not_finite(values: &[f32]) -> Option<usize> {
    const CHUNK: usize = 1 << 15;
    const EXPONENT: u32 = 0x7f80_0000;
    // The largest exponent of a chunk: looked for to the end, which the compiler vectorizes.
    let bad = |values: &[f32]| {
        let exponents = values.iter().map(|x| (x.to_bits() & EXPONENT) as i32);
        exponents.fold(0, i32::max) == EXPONENT as i32
    };
    let chunk = values.par_chunks(CHUNK).position_first(bad)?;
    let start = chunk * CHUNK;
    let within = values[start..].iter().position(|x| !x.is_finite())?;
    Some(start + within)
}

/// [`QuantizeBlock::quantize_row`], compiled for what the CPU has.
fn quantize_row<T: QuantizeBlock>(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // Not FMA: nothing may be fused, and nothing is.
        #[target_feature(enable = "avx2")]
        fn with_avx2<T: QuantizeBlock>(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
            T::quantize_row(values, importance, out);
        }
        // SAFETY: the CPU has AVX2.
        return unsafe { with_avx2::<T>(values, importance, out) };
    }
    T::quantize_row(values, importance, out);
}

/// The blocks of a row with their values and weights.
#[inline(always)]
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
