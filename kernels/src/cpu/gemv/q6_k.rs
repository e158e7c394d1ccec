//! Row products of `Q6_K`.

use crate::blocks::Q6K;
use crate::cpu::types::CpuCode;

#[cfg(not(target_arch = "x86_64"))]
impl CpuCode for Q6K {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CpuCode, Q6K};
    use crate::blocks::{BlockType, CodeBlock};
    use crate::cpu::gemv::RowInput;
    use crate::cpu::gemv::x86::{dot_avx2, sum_avx2};
    use core::arch::x86_64::*;

    const LEN: usize = Q6K::LEN;
    const BYTES: usize = Q6K::BYTES;

    /// The four registers of codes of half a block: values `0..32`, `32..64`, `64..96`, `96..128`.
    ///
    /// # Safety
    /// Needs AVX2; `block` must be whole.
    #[inline(always)]
    unsafe fn codes_avx2(block: *const u8, half: usize) -> [__m256i; 4] {
        // SAFETY: the fields of a block.
        unsafe {
            let ql = [0, 32].map(|i| _mm256_loadu_si256(block.add(64 * half + i).cast()));
            let qh = _mm256_loadu_si256(block.add(128 + 32 * half).cast());
            let (low, high) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
            let join =
                |ql, qh| _mm256_or_si256(_mm256_and_si256(ql, low), _mm256_and_si256(qh, high));
            [
                join(ql[0], _mm256_slli_epi16::<4>(qh)),
                join(ql[1], _mm256_slli_epi16::<2>(qh)),
                join(_mm256_srli_epi16::<4>(ql[0]), qh),
                join(_mm256_srli_epi16::<4>(ql[1]), _mm256_srli_epi16::<2>(qh)),
            ]
        }
    }

    /// The two registers of codes of half a block: values `0..64`, `64..128`.
    ///
    /// # Safety
    /// Needs AVX-512 F, BW and VL; `block` must be whole.
    #[inline(always)]
    unsafe fn codes_avx512(block: *const u8, half: usize) -> [__m512i; 2] {
        // SAFETY: the fields of a block.
        unsafe {
            let ql = _mm512_loadu_si512(block.add(64 * half).cast());
            let qh = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(128 + 32 * half).cast()));
            // The two bits of each quarter to bits 4 and 5.
            let first = _mm512_rolv_epi64(qh, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2));
            let second = _mm512_rolv_epi64(qh, _mm512_setr_epi64(0, 0, 0, 0, 62, 62, 62, 62));
            [(ql, first), (_mm512_srli_epi16::<4>(ql), second)].map(|(ql, qh)| {
                // 0xca: bits of the second where the mask is set, of the third where not.
                let codes = _mm512_ternarylogic_epi64::<0xca>(_mm512_set1_epi8(15), ql, qh);
                _mm512_and_si512(codes, _mm512_set1_epi8(0x3f))
            })
        }
    }

    /// The block's own scale.
    ///
    /// # Safety
    /// Needs F16C; `block` must be whole.
    #[inline(always)]
    unsafe fn d(block: *const u8) -> __m128 {
        // SAFETY: the fields of a block.
        unsafe {
            _mm_cvtph_ps(_mm_set1_epi16(
                block.add(208).cast::<i16>().read_unaligned(),
            ))
        }
    }

    // The offset of 32 is taken off at the end, by the sums of activations times the scales.
    impl CpuCode for Q6K {
        #[inline(always)]
        unsafe fn unpack_avx2(
            block: &[u8],
            codes: &mut [u8],
            scales: &mut [f32],
            _mins: &mut [f32],
        ) {
            let block = block.as_ptr();
            // SAFETY: the caller says that the slices are long enough.
            unsafe {
                let d = _mm256_broadcastss_ps(d(block));
                for half in 0..2 {
                    let part = _mm_loadl_epi64(block.add(192 + 8 * half).cast());
                    let part = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(part)), d);
                    _mm256_storeu_ps(scales.as_mut_ptr().add(8 * half), part);
                    for (quarter, part) in codes_avx2(block, half).into_iter().enumerate() {
                        let at = 128 * half + 32 * quarter;
                        _mm256_storeu_si256(codes.as_mut_ptr().add(at).cast(), part);
                    }
                }
            }
        }

        #[inline(always)]
        unsafe fn dot_avx2<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: block `b` of the row and values `256 b..` of each input exist for all `b` below the count.
            unsafe {
                let mut total = [[_mm256_setzero_ps(); 2]; N];
                let mut total_sum = [_mm256_setzero_ps(); N];
                for b in 0..x[0].len / LEN {
                    let block = row.as_ptr().add(b * BYTES);
                    let d = _mm256_broadcastss_ps(d(block));
                    for half in 0..2 {
                        let scales = _mm_loadl_epi64(block.add(192 + 8 * half).cast());
                        let scales =
                            _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scales)), d);
                        let codes = codes_avx2(block, half);
                        for t in 0..N {
                            let at = 2 * b + half;
                            let sums = _mm256_loadu_ps(x[t].sums16.as_ptr().add(8 * at));
                            total_sum[t] = _mm256_fmadd_ps(scales, sums, total_sum[t]);
                            for (quarter, codes) in codes.into_iter().enumerate() {
                                let at = 4 * at + quarter;
                                let x_codes =
                                    _mm256_loadu_si256(x[t].codes.as_ptr().add(32 * at).cast());
                                let dots = _mm256_cvtepi32_ps(dot_avx2(codes, x_codes));
                                // Each scale covers 4 lanes.
                                let (a, b) = (2 * quarter as i32, 2 * quarter as i32 + 1);
                                let pair = _mm256_setr_epi32(a, a, a, a, b, b, b, b);
                                let pair = _mm256_permutevar8x32_ps(scales, pair);
                                let pair = _mm256_mul_ps(
                                    pair,
                                    _mm256_broadcast_ss(&*x[t].scales.as_ptr().add(at)),
                                );
                                let to = &mut total[t][quarter % 2];
                                *to = _mm256_fmadd_ps(dots, pair, *to);
                            }
                        }
                    }
                }
                let mut out = [0.0; N];
                for t in 0..N {
                    let offset = _mm256_set1_ps(Self::OFFSET as f32);
                    let both = _mm256_add_ps(total[t][0], total[t][1]);
                    out[t] = sum_avx2(_mm256_fnmadd_ps(offset, total_sum[t], both));
                }
                out
            }
        }

        #[inline(always)]
        unsafe fn dot_avx512<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: block `b` of the row and values `256 b..` of each input exist for all `b` below the count.
            unsafe {
                let mut total = [[_mm512_setzero_ps(); 2]; N];
                let mut total_sum = [_mm512_setzero_ps(); N];
                let twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
                let first_four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
                for b in 0..x[0].len / LEN {
                    let block = row.as_ptr().add(b * BYTES);
                    let scales = _mm512_cvtepi8_epi32(_mm_loadu_si128(block.add(192).cast()));
                    let scales =
                        _mm512_mul_ps(_mm512_cvtepi32_ps(scales), _mm512_broadcastss_ps(d(block)));
                    let mut both = [_mm512_setzero_ps(); N];
                    for t in 0..N {
                        let x_scales = _mm256_loadu_ps(x[t].scales.as_ptr().add(8 * b));
                        let x_scales =
                            _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(x_scales));
                        both[t] = _mm512_mul_ps(scales, x_scales);
                        let sums = _mm512_loadu_ps(x[t].sums16.as_ptr().add(16 * b));
                        total_sum[t] = _mm512_fmadd_ps(scales, sums, total_sum[t]);
                    }
                    for half in 0..2 {
                        for (quarter, codes) in codes_avx512(block, half).into_iter().enumerate() {
                            let quarter = 2 * half + quarter;
                            let four =
                                _mm512_add_epi32(first_four, _mm512_set1_epi32(4 * quarter as i32));
                            for t in 0..N {
                                let x_codes = x[t].codes.as_ptr().add(LEN * b + 64 * quarter);
                                let x_codes = _mm512_loadu_si512(x_codes.cast());
                                let dots =
                                    _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, x_codes);
                                let scale = _mm512_permutexvar_ps(four, both[t]);
                                let to = &mut total[t][quarter % 2];
                                *to = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scale, *to);
                            }
                        }
                    }
                }
                let mut out = [0.0; N];
                for t in 0..N {
                    let offset = _mm512_set1_ps(Self::OFFSET as f32);
                    let both = _mm512_add_ps(total[t][0], total[t][1]);
                    out[t] = _mm512_reduce_add_ps(_mm512_fnmadd_ps(offset, total_sum[t], both));
                }
                out
            }
        }
    }
}
