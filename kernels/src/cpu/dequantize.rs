//! `dequantize`: whole blocks to numbers.

use super::error::CpuError;
use super::isa::Isa;
use super::level::{Kernel, Level};
use super::types::{CpuCode, CpuType, TypeVisitor, visit};
use crate::GgmlType;
use half::{bf16, f16};
use rayon::prelude::*;

/// Values one task decodes: enough to be worth handing out, and a multiple of every block length.
const TASK_LEN: usize = 1 << 16;

/// Decodes `bytes` into `out`, bit-equal to ggml. Runs on rayon's current pool.
///
/// # Errors
/// If the type is not implemented, or if `out` does not fill whole blocks or `bytes` is not their size.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), CpuError> {
    dequantize_as(ty, bytes, out, Isa::current())
}

/// As [`dequantize`], rounding each value to the nearest `f16`.
///
/// # Errors
/// As [`dequantize`].
pub fn dequantize_f16(ty: GgmlType, bytes: &[u8], out: &mut [f16]) -> Result<(), CpuError> {
    dequantize_as(ty, bytes, out, Isa::current())
}

/// As [`dequantize`], rounding each value to the nearest `bf16`.
///
/// # Errors
/// As [`dequantize`].
pub fn dequantize_bf16(ty: GgmlType, bytes: &[u8], out: &mut [bf16]) -> Result<(), CpuError> {
    dequantize_as(ty, bytes, out, Isa::current())
}

/// A number type `dequantize` can write.
pub(super) trait Number: Copy + Send + Sync + Default {
    /// The nearest value.
    fn from_f32(value: f32) -> Self;
    /// The buffer itself, if it is one of `f32`.
    fn as_f32(out: &mut [Self]) -> Option<&mut [f32]>;
}

impl Number for f32 {
    fn from_f32(value: f32) -> f32 {
        value
    }
    fn as_f32(out: &mut [f32]) -> Option<&mut [f32]> {
        Some(out)
    }
}

impl Number for f16 {
    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }
    fn as_f32(_: &mut [f16]) -> Option<&mut [f32]> {
        None
    }
}

impl Number for bf16 {
    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
    fn as_f32(_: &mut [bf16]) -> Option<&mut [f32]> {
        None
    }
}

/// Bytes of `len` values, or the error that says what is wrong with them.
pub(super) fn check_bytes(ty: GgmlType, len: usize, bytes: &[u8]) -> Result<(), CpuError> {
    if !len.is_multiple_of(ty.block_len()) {
        return Err(CpuError::PartialBlock { ty, len });
    }
    let expected = ty
        .row_bytes(len)
        .ok_or(CpuError::Overflow { rows: 1, cols: len })?;
    if bytes.len() != expected {
        return Err(CpuError::ByteLength {
            ty,
            values: len,
            expected,
            actual: bytes.len(),
        });
    }
    Ok(())
}

pub(super) fn dequantize_as<O: Number>(
    ty: GgmlType,
    bytes: &[u8],
    out: &mut [O],
    isa: Isa,
) -> Result<(), CpuError> {
    let decode = decoder(ty, "dequantize")?;
    check_bytes(ty, out.len(), bytes)?;
    let task_bytes = TASK_LEN / ty.block_len() * ty.block_bytes();
    bytes
        .par_chunks(task_bytes)
        .zip(out.par_chunks_mut(TASK_LEN))
        .for_each(|(bytes, out)| {
            if let Some(out) = O::as_f32(out) {
                return decode(isa, bytes, out);
            }
            const CHUNK: usize = 1024;
            let mut values = [0.0; CHUNK];
            let chunk_bytes = CHUNK / ty.block_len() * ty.block_bytes();
            for (bytes, out) in bytes.chunks(chunk_bytes).zip(out.chunks_mut(CHUNK)) {
                let values = &mut values[..out.len()];
                decode(isa, bytes, values);
                for (out, &value) in out.iter_mut().zip(&*values) {
                    *out = O::from_f32(value);
                }
            }
        });
    Ok(())
}

/// A function that decodes whole blocks at an available level.
pub(super) type Decoder = fn(Isa, &[u8], &mut [f32]);

/// The decoder of a type.
pub(super) fn decoder(ty: GgmlType, operation: &'static str) -> Result<Decoder, CpuError> {
    struct Pick;
    impl TypeVisitor for Pick {
        type Output = Decoder;
        fn float<T: CpuType>(self) -> Decoder {
            decode::<T>
        }
        fn code<T: CpuCode>(self) -> Decoder {
            decode::<T>
        }
    }
    visit(ty, operation, Pick)
}

/// Decodes whole blocks of one type at an available level.
pub(super) fn decode<T: CpuType>(isa: Isa, bytes: &[u8], out: &mut [f32]) {
    struct Decode<'a, T>(&'a [u8], &'a mut [f32], std::marker::PhantomData<T>);
    impl<T: CpuType> Kernel for Decode<'_, T> {
        type Output = ();
        #[inline(always)]
        unsafe fn run<L: Level>(self) {
            // SAFETY: `run` is called with the features of `L` present.
            unsafe { T::decode::<L>(self.0, self.1) }
        }
    }
    // SAFETY: levels are checked where they enter: `Isa::current` and `linear_many_at`.
    unsafe { isa.run(Decode::<T>(bytes, out, std::marker::PhantomData)) }
}
