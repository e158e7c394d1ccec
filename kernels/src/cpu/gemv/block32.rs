//! Row products and unpacking of types with blocks of 32 values, one scale and perhaps one min.

use super::RowInput;
use super::x86::{dot_codes_avx2, half, join, sum_avx2};
use crate::blocks::CodeBlock;
use core::arch::x86_64::*;

/// A type of 32-value blocks.
pub(super) trait Block32: CodeBlock {
    /// Whether the registers of codes hold `value + 128`, so that the offset can be taken off the integers: for 8-bit
    /// codes, which would drown the rest, and for scales so large that the offset's part would overflow by itself.
    /// Else registers hold codes, and the offset's part is taken off at the end.
    const SIGNED: bool = Self::CODE_BITS == 8;

    /// The codes of one block, in order; see [`SIGNED`](Self::SIGNED).
    ///
    /// # Safety
    /// Needs AVX2; `block` must be whole.
    unsafe fn codes_avx2(block: *const u8) -> __m256i;

    /// The codes of two adjacent blocks, in order.
    ///
    /// # Safety
    /// Needs AVX-512 F, BW and VL; `blocks` must be two whole ones.
    #[inline(always)]
    unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            join(
                Self::codes_avx2(blocks),
                Self::codes_avx2(blocks.add(Self::BYTES)),
            )
        }
    }

    /// The scale of a block: by default the `f16` in front.
    ///
    /// # Safety
    /// Needs F16C; `block` must be whole.
    #[inline(always)]
    unsafe fn scale(block: *const u8) -> f32 {
        // SAFETY: the caller says so.
        unsafe { _mm_cvtss_f32(half(block)) }
    }

    /// The scales of [`RUN`] adjacent blocks.
    ///
    /// # Safety
    /// Needs F16C; the blocks must be whole.
    #[inline(always)]
    unsafe fn scales(blocks: *const u8) -> __m128 {
        // SAFETY: the caller says so.
        unsafe { halves::<Self>(blocks) }
    }

    /// The min of a block, where the type has them: by default the `f16` after the scale, negated.
    ///
    /// # Safety
    /// Needs F16C; `block` must be whole.
    #[inline(always)]
    unsafe fn min(block: *const u8) -> f32 {
        // SAFETY: the caller says so.
        unsafe { -_mm_cvtss_f32(half(block.add(2))) }
    }

    /// The mins of [`RUN`] adjacent blocks.
    ///
    /// # Safety
    /// Needs F16C; the blocks must be whole.
    #[inline(always)]
    unsafe fn mins(blocks: *const u8) -> __m128 {
        // SAFETY: the caller says so.
        unsafe { _mm_xor_ps(halves::<Self>(blocks.add(2)), _mm_set1_ps(-0.0)) }
    }
}

/// Blocks whose scales are widened and multiplied together.
const RUN: usize = 4;

/// The `f16` at `first` and at the same place of the three blocks after it.
///
/// # Safety
/// Needs F16C; the blocks must be whole.
#[inline(always)]
unsafe fn halves<T: Block32>(first: *const u8) -> __m128 {
    // SAFETY: the caller says so.
    unsafe {
        let bits = |i: usize| {
            u64::from(first.add(i * T::BYTES).cast::<u16>().read_unaligned()) << (16 * i)
        };
        _mm_cvtph_ps(_mm_cvtsi64_si128(
            (bits(0) | bits(1) | bits(2) | bits(3)) as i64,
        ))
    }
}

/// The codes, scale and min of one block.
///
/// # Safety
/// As [`CpuCode::unpack_avx2`](crate::cpu::types::CpuCode::unpack_avx2).
#[inline(always)]
pub(super) unsafe fn unpack_avx2<T: Block32>(
    block: &[u8],
    codes: &mut [u8],
    scales: &mut [f32],
    mins: &mut [f32],
) {
    // SAFETY: the caller says that block and codes are whole.
    unsafe {
        scales[0] = T::scale(block.as_ptr());
        if T::HAS_MIN {
            mins[0] = T::min(block.as_ptr());
        }
        let mut values = T::codes_avx2(block.as_ptr());
        if T::SIGNED && T::OFFSET != 128 {
            values = _mm256_sub_epi8(values, _mm256_set1_epi8((128 - T::OFFSET) as i8));
        }
        _mm256_storeu_si256(codes.as_mut_ptr().cast(), values);
    }
}

/// Row products of a `Block32` type. What the offset of the codes contributes is taken off at the end, by the sums of
/// activations times the scales; signed codes lend their sign to the activations, because `maddubs` takes unsigned ones.
///
/// # Safety
/// As [`CpuCode::dot_avx2`](crate::cpu::types::CpuCode::dot_avx2).
#[inline(always)]
pub(super) unsafe fn dot_avx2<T: Block32, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
) -> [f32; N] {
    let blocks = x[0].scales.len();
    let whole = blocks / RUN * RUN;
    // SAFETY: block `b` of the row and values `32 b..` of each input exist for all `b` below `blocks`.
    unsafe {
        let mut total = [[_mm256_setzero_ps(); 2]; N];
        let mut total_sum = [_mm_setzero_ps(); N];
        for first in (0..whole).step_by(RUN) {
            let run = row.as_ptr().add(first * T::BYTES);
            let d = T::scales(run);
            let of_sums = if T::HAS_MIN { T::mins(run) } else { d };
            // Through memory: a broadcast from there costs nothing beyond its load.
            let mut both = [[0.0f32; RUN]; N];
            for t in 0..N {
                let x_scales = _mm_loadu_ps(x[t].scales.as_ptr().add(first));
                _mm_storeu_ps(both[t].as_mut_ptr(), _mm_mul_ps(d, x_scales));
                if !T::SIGNED {
                    let sums = _mm_loadu_ps(x[t].sums.as_ptr().add(first));
                    total_sum[t] = _mm_fmadd_ps(of_sums, sums, total_sum[t]);
                }
            }
            for i in 0..RUN {
                let codes = T::codes_avx2(run.add(i * T::BYTES));
                for t in 0..N {
                    let dots =
                        dot_codes_avx2(codes, x[t].codes.as_ptr().add((first + i) * 32), T::SIGNED);
                    let scale = _mm256_broadcast_ss(&both[t][i]);
                    total[t][i % 2] = _mm256_fmadd_ps(dots, scale, total[t][i % 2]);
                }
            }
        }
        for b in whole..blocks {
            let block = row.as_ptr().add(b * T::BYTES);
            let d = T::scale(block);
            let of_sums = if T::HAS_MIN { T::min(block) } else { d };
            let codes = T::codes_avx2(block);
            for t in 0..N {
                let dots = dot_codes_avx2(codes, x[t].codes.as_ptr().add(b * 32), T::SIGNED);
                let scale = _mm256_set1_ps(d * x[t].scales[b]);
                total[t][0] = _mm256_fmadd_ps(dots, scale, total[t][0]);
                if !T::SIGNED {
                    total_sum[t] = _mm_add_ss(total_sum[t], _mm_set_ss(of_sums * x[t].sums[b]));
                }
            }
        }
        let mut out = [0.0; N];
        for t in 0..N {
            let offset = if T::HAS_MIN { 1 } else { T::OFFSET };
            let offset = _mm_mul_ps(total_sum[t], _mm_set1_ps(offset as f32));
            out[t] = sum_avx2(_mm256_sub_ps(
                _mm256_add_ps(total[t][0], total[t][1]),
                _mm256_zextps128_ps256(offset),
            ));
        }
        out
    }
}

/// Row products of a `Block32` type; the offset of the codes as for AVX2, except that sums of signed codes start from it.
///
/// # Safety
/// As [`CpuCode::dot_avx512`](crate::cpu::types::CpuCode::dot_avx512).
#[inline(always)]
pub(super) unsafe fn dot_avx512<T: Block32, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
) -> [f32; N] {
    let blocks = x[0].scales.len();
    let whole = blocks / RUN * RUN;
    // SAFETY: block `b` of the row and values `32 b..` of each input exist for all `b` below `blocks`.
    unsafe {
        let mut total = [[_mm512_setzero_ps(); 2]; N];
        let mut total_rest = [_mm256_setzero_ps(); N];
        let mut total_sum = [_mm_setzero_ps(); N];
        let pairs = [
            _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
            _mm512_setr_epi32(2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3),
        ];
        for first in (0..whole).step_by(RUN) {
            let run = row.as_ptr().add(first * T::BYTES);
            let d = T::scales(run);
            let of_sums = if T::HAS_MIN { T::mins(run) } else { d };
            let mut both = [_mm512_setzero_ps(); N];
            for t in 0..N {
                both[t] = _mm512_castps128_ps512(_mm_mul_ps(
                    d,
                    _mm_loadu_ps(x[t].scales.as_ptr().add(first)),
                ));
                if !T::SIGNED {
                    let sums = _mm_loadu_ps(x[t].sums.as_ptr().add(first));
                    total_sum[t] = _mm_fmadd_ps(of_sums, sums, total_sum[t]);
                }
            }
            for (i, pair) in pairs.into_iter().enumerate() {
                let codes = T::codes_avx512(run.add(2 * i * T::BYTES));
                for t in 0..N {
                    let x_codes =
                        _mm512_loadu_si512(x[t].codes.as_ptr().add((first + 2 * i) * 32).cast());
                    let start = if T::SIGNED {
                        _mm512_loadu_si512(x[t].lanes.as_ptr().add((first + 2 * i) * 8).cast())
                    } else {
                        _mm512_setzero_si512()
                    };
                    let dots = _mm512_dpbusd_epi32(start, codes, x_codes);
                    let scale = _mm512_permutexvar_ps(pair, both[t]);
                    total[t][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scale, total[t][i]);
                }
            }
        }
        for b in whole..blocks {
            let block = row.as_ptr().add(b * T::BYTES);
            let d = T::scale(block);
            let of_sums = if T::HAS_MIN { T::min(block) } else { d };
            let codes = T::codes_avx2(block);
            for t in 0..N {
                let x_codes = _mm256_loadu_si256(x[t].codes.as_ptr().add(b * 32).cast());
                let start = if T::SIGNED {
                    _mm256_loadu_si256(x[t].lanes.as_ptr().add(b * 8).cast())
                } else {
                    _mm256_setzero_si256()
                };
                let dots = _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(start, codes, x_codes));
                total_rest[t] =
                    _mm256_fmadd_ps(dots, _mm256_set1_ps(d * x[t].scales[b]), total_rest[t]);
                if !T::SIGNED {
                    total_sum[t] = _mm_add_ss(total_sum[t], _mm_set_ss(of_sums * x[t].sums[b]));
                }
            }
        }
        let mut out = [0.0; N];
        for t in 0..N {
            let offset = if T::HAS_MIN { 1 } else { T::OFFSET };
            let offset = _mm_mul_ps(total_sum[t], _mm_set1_ps(offset as f32));
            let rest = _mm256_sub_ps(total_rest[t], _mm256_zextps128_ps256(offset));
            let both = _mm512_add_ps(total[t][0], total[t][1]);
            out[t] = _mm512_reduce_add_ps(_mm512_add_ps(both, _mm512_zextps256_ps512(rest)));
        }
        out
    }
}
