//! What the row products of several types share on x86: horizontal sums, dot products of 32 codes, and the loop over
//! blocks of 32 values with one `f16` scale.
//!
//! All functions need the features of the level in their name, and are `unsafe` for that.

use super::RowInput;
use crate::blocks::{CodeBlock, read_f16};
use core::arch::x86_64::*;

/// The sum of 8 lanes.
///
/// # Safety
/// Needs AVX.
#[inline(always)]
pub(super) unsafe fn sum_avx2(v: __m256) -> f32 {
    // SAFETY: the caller's.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
    }
}

/// Dot products of 4 neighbours each, of codes below 128 and signed numbers.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn dot_avx2(codes: __m256i, x: __m256i) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)) }
}

/// A type of 32-value blocks with an `f16` scale in front, without mins.
pub(super) trait Block32: CodeBlock {
    /// The codes of one block, in order.
    ///
    /// # Safety
    /// Needs AVX2; `block` must be whole.
    unsafe fn codes_avx2(block: *const u8) -> __m256i;

    /// The codes of two adjacent blocks, in order.
    ///
    /// # Safety
    /// Needs AVX-512 F, BW and VL; `blocks` must be two whole ones.
    unsafe fn codes_avx512(blocks: *const u8) -> __m512i;
}

/// The codes and scale of one block.
///
/// # Safety
/// As [`CpuCode::unpack_avx2`](crate::cpu::types::CpuCode::unpack_avx2).
#[inline(always)]
pub(super) unsafe fn unpack_block32_avx2<T: Block32>(
    block: &[u8],
    codes: &mut [u8],
    scales: &mut [f32],
) {
    // SAFETY: the caller says that block and codes are whole.
    unsafe {
        let bits = block.as_ptr().cast::<i16>().read_unaligned();
        scales[0] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits.into())));
        _mm256_storeu_si256(codes.as_mut_ptr().cast(), T::codes_avx2(block.as_ptr()));
    }
}

/// Blocks whose scales are widened and multiplied together.
const RUN: usize = 4;

/// The scales of `RUN` adjacent blocks.
///
/// # Safety
/// Needs F16C; the blocks must be whole.
#[inline(always)]
unsafe fn scales<T: Block32>(blocks: *const u8) -> __m128 {
    // SAFETY: the caller says so.
    unsafe {
        let bits = |i: usize| {
            u64::from(blocks.add(i * T::BYTES).cast::<u16>().read_unaligned()) << (16 * i)
        };
        _mm_cvtph_ps(_mm_cvtsi64_si128(
            (bits(0) | bits(1) | bits(2) | bits(3)) as i64,
        ))
    }
}

/// Row products of a `Block32` type. What the offset of the codes contributes is taken off at the end, by the sums of
/// activations times the scales; 8-bit codes are made signed instead, because `maddubs` would overflow.
///
/// # Safety
/// As [`CpuCode::dot_avx2`](crate::cpu::types::CpuCode::dot_avx2).
#[inline(always)]
pub(super) unsafe fn dot_block32_avx2<T: Block32, const N: usize>(
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
            let d = scales::<T>(run);
            // Through memory: a broadcast from there costs nothing beyond its load.
            let mut both = [[0.0f32; RUN]; N];
            for t in 0..N {
                let x_scales = _mm_loadu_ps(x[t].scales.as_ptr().add(first));
                _mm_storeu_ps(both[t].as_mut_ptr(), _mm_mul_ps(d, x_scales));
                if T::CODE_BITS < 8 {
                    let sums = _mm_loadu_ps(x[t].sums.as_ptr().add(first));
                    total_sum[t] = _mm_fmadd_ps(d, sums, total_sum[t]);
                }
            }
            for i in 0..RUN {
                let codes = T::codes_avx2(run.add(i * T::BYTES));
                for t in 0..N {
                    let dots =
                        dot_codes_avx2::<T>(codes, x[t].codes.as_ptr().add((first + i) * 32));
                    let scale = _mm256_broadcast_ss(&both[t][i]);
                    total[t][i % 2] = _mm256_fmadd_ps(dots, scale, total[t][i % 2]);
                }
            }
        }
        for b in whole..blocks {
            let d = read_f16(&row[b * T::BYTES..]);
            let codes = T::codes_avx2(row.as_ptr().add(b * T::BYTES));
            for t in 0..N {
                let dots = dot_codes_avx2::<T>(codes, x[t].codes.as_ptr().add(b * 32));
                let scale = _mm256_set1_ps(d * x[t].scales[b]);
                total[t][0] = _mm256_fmadd_ps(dots, scale, total[t][0]);
                if T::CODE_BITS < 8 {
                    total_sum[t] = _mm_add_ss(total_sum[t], _mm_set_ss(d * x[t].sums[b]));
                }
            }
        }
        let mut out = [0.0; N];
        for t in 0..N {
            let offset = _mm_mul_ps(total_sum[t], _mm_set1_ps(T::OFFSET as f32));
            out[t] = sum_avx2(_mm256_sub_ps(
                _mm256_add_ps(total[t][0], total[t][1]),
                _mm256_zextps128_ps256(offset),
            ));
        }
        out
    }
}

/// Dot products of 4 neighbours each, of one block and activations.
///
/// # Safety
/// Needs AVX2 and 32 activations.
#[inline(always)]
unsafe fn dot_codes_avx2<T: Block32>(codes: __m256i, x: *const i8) -> __m256 {
    // SAFETY: the caller says so.
    unsafe {
        let x = _mm256_loadu_si256(x.cast());
        _mm256_cvtepi32_ps(if T::CODE_BITS == 8 {
            let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
            dot_avx2(_mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed))
        } else {
            dot_avx2(codes, x)
        })
    }
}

/// Row products of a `Block32` type; the offset of the codes as for AVX2, except that 8-bit sums start from it.
///
/// # Safety
/// As [`CpuCode::dot_avx512`](crate::cpu::types::CpuCode::dot_avx512).
#[inline(always)]
pub(super) unsafe fn dot_block32_avx512<T: Block32, const N: usize>(
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
            let d = scales::<T>(run);
            let mut both = [_mm512_setzero_ps(); N];
            for t in 0..N {
                both[t] = _mm512_castps128_ps512(_mm_mul_ps(
                    d,
                    _mm_loadu_ps(x[t].scales.as_ptr().add(first)),
                ));
                if T::CODE_BITS < 8 {
                    let sums = _mm_loadu_ps(x[t].sums.as_ptr().add(first));
                    total_sum[t] = _mm_fmadd_ps(d, sums, total_sum[t]);
                }
            }
            for (i, pair) in pairs.into_iter().enumerate() {
                let codes = T::codes_avx512(run.add(2 * i * T::BYTES));
                for t in 0..N {
                    let x_codes =
                        _mm512_loadu_si512(x[t].codes.as_ptr().add((first + 2 * i) * 32).cast());
                    let start = if T::CODE_BITS == 8 {
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
            let d = read_f16(&row[b * T::BYTES..]);
            let codes = T::codes_avx2(row.as_ptr().add(b * T::BYTES));
            for t in 0..N {
                let x_codes = _mm256_loadu_si256(x[t].codes.as_ptr().add(b * 32).cast());
                let start = if T::CODE_BITS == 8 {
                    _mm256_loadu_si256(x[t].lanes.as_ptr().add(b * 8).cast())
                } else {
                    _mm256_setzero_si256()
                };
                let dots = _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(start, codes, x_codes));
                total_rest[t] =
                    _mm256_fmadd_ps(dots, _mm256_set1_ps(d * x[t].scales[b]), total_rest[t]);
                if T::CODE_BITS < 8 {
                    total_sum[t] = _mm_add_ss(total_sum[t], _mm_set_ss(d * x[t].sums[b]));
                }
            }
        }
        let mut out = [0.0; N];
        for t in 0..N {
            let offset = _mm_mul_ps(total_sum[t], _mm_set1_ps(T::OFFSET as f32));
            let rest = _mm256_sub_ps(total_rest[t], _mm256_zextps128_ps256(offset));
            let both = _mm512_add_ps(total[t][0], total[t][1]);
            out[t] = _mm512_reduce_add_ps(_mm512_add_ps(both, _mm512_zextps256_ps512(rest)));
        }
        out
    }
}
