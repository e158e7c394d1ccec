//! What the row products of several types share on x86: horizontal sums, dot products of 32 codes, and the loop over
//! blocks of 32 values with one `f16` scale.
//!
//! All functions need the features of the level in their name, and are `unsafe` for that.

use super::RowInput;
use crate::blocks::{CodeBlock, read_f16};
use core::arch::x86_64::*;

/// Bytes ahead of the current block to fetch: past what the hardware prefetcher has in flight.
const PREFETCH: usize = 2048;

/// Asks for the cache line `PREFETCH` bytes ahead. It may lie past the end of the weights, which is harmless.
///
/// # Safety
/// None beyond the target's.
#[inline(always)]
pub(super) unsafe fn prefetch(block: *const u8) {
    // SAFETY: a prefetch never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(PREFETCH).cast()) }
}

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
    #[inline(always)]
    unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
        // SAFETY: the caller's.
        unsafe {
            let first = _mm512_castsi256_si512(Self::codes_avx2(blocks));
            _mm512_inserti64x4::<1>(first, Self::codes_avx2(blocks.add(Self::BYTES)))
        }
    }
}

/// The bits of a block's scale.
///
/// # Safety
/// `block` must be whole.
#[inline(always)]
unsafe fn scale_bits(block: *const u8) -> i16 {
    // SAFETY: the caller's.
    unsafe { block.cast::<i16>().read_unaligned() }
}

/// Row products of a `Block32` type.
///
/// # Safety
/// As [`CpuCode::dot_avx2`](crate::cpu::types::CpuCode::dot_avx2).
#[inline(always)]
pub(super) unsafe fn dot_block32_avx2<T: Block32, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
) -> [f32; N] {
    // SAFETY: block `b` of the row and values `32 b..` of each input exist for all `b` below the count.
    unsafe {
        let mut total = [_mm256_setzero_ps(); N];
        for b in 0..x[0].scales.len() {
            let block = row.as_ptr().add(b * T::BYTES);
            prefetch(block);
            let d = _mm256_cvtph_ps(_mm_set1_epi16(scale_bits(block)));
            let codes = T::codes_avx2(block);
            for t in 0..N {
                let x_codes = _mm256_loadu_si256(x[t].codes.as_ptr().add(b * 32).cast());
                let dots = if T::CODE_BITS == 8 {
                    // Signed, with the sign moved to the other side: `maddubs` would overflow otherwise.
                    let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
                    dot_avx2(_mm256_abs_epi8(signed), _mm256_sign_epi8(x_codes, signed))
                } else {
                    let lanes = _mm256_loadu_si256(x[t].lanes.as_ptr().add(b * 8).cast());
                    _mm256_add_epi32(dot_avx2(codes, x_codes), lanes)
                };
                let scale = _mm256_mul_ps(d, _mm256_broadcast_ss(&*x[t].scales.as_ptr().add(b)));
                total[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scale, total[t]);
            }
        }
        let mut out = [0.0; N];
        for t in 0..N {
            out[t] = sum_avx2(total[t]);
        }
        out
    }
}

/// Row products of a `Block32` type.
///
/// # Safety
/// As [`CpuCode::dot_avx512`](crate::cpu::types::CpuCode::dot_avx512).
#[inline(always)]
pub(super) unsafe fn dot_block32_avx512<T: Block32, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
) -> [f32; N] {
    let blocks = x[0].scales.len();
    // SAFETY: block `b` of the row and values `32 b..` of each input exist for all `b` below the count.
    unsafe {
        let mut total = [_mm512_setzero_ps(); N];
        for b in (0..blocks & !1).step_by(2) {
            let block = row.as_ptr().add(b * T::BYTES);
            prefetch(block);
            let d = _mm256_castsi128_si256(_mm_set1_epi16(scale_bits(block)));
            let d =
                _mm256_inserti128_si256::<1>(d, _mm_set1_epi16(scale_bits(block.add(T::BYTES))));
            let d = _mm512_cvtph_ps(d);
            let codes = T::codes_avx512(block);
            for t in 0..N {
                let x_codes = _mm512_loadu_si512(x[t].codes.as_ptr().add(b * 32).cast());
                let lanes = _mm512_loadu_si512(x[t].lanes.as_ptr().add(b * 8).cast());
                let dots = _mm512_dpbusd_epi32(lanes, codes, x_codes);
                let scale = _mm512_mul_ps(d, _mm512_loadu_ps(x[t].scales8.as_ptr().add(b * 8)));
                total[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scale, total[t]);
            }
        }
        let mut out = [0.0; N];
        for t in 0..N {
            out[t] = _mm512_reduce_add_ps(total[t]);
        }
        if blocks % 2 == 1 {
            let b = blocks - 1;
            let block = row.as_ptr().add(b * T::BYTES);
            let d = read_f16(&row[b * T::BYTES..]);
            let codes = T::codes_avx2(block);
            for t in 0..N {
                let x_codes = _mm256_loadu_si256(x[t].codes.as_ptr().add(b * 32).cast());
                let lanes = _mm256_loadu_si256(x[t].lanes.as_ptr().add(b * 8).cast());
                let dots = _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(lanes, codes, x_codes));
                out[t] += sum_avx2(dots) * d * x[t].scales[b];
            }
        }
        out
    }
}
