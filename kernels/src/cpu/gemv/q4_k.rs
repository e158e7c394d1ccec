//! Row products of `Q4_K`, and the frame that `Q5_K` shares.

use crate::blocks::Q4K;
use crate::cpu::types::CpuCode;

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{KCodes, dot_k_avx2, dot_k_avx512, nibbles_avx512, unpack_k_avx2};

#[cfg(not(target_arch = "x86_64"))]
impl CpuCode for Q4K {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CpuCode, Q4K};
    use crate::blocks::{CodeBlock, unpack_scales_6bit};
    use crate::cpu::gemv::RowInput;
    use crate::cpu::gemv::x86::{dot_avx2, sum_avx2};
    use core::arch::x86_64::*;

    impl CpuCode for Q4K {
        #[inline(always)]
        unsafe fn unpack_avx2(
            block: &[u8],
            codes: &mut [u8],
            scales: &mut [f32],
            mins: &mut [f32],
        ) {
            // SAFETY: the caller's promises are the callee's.
            unsafe { unpack_k_avx2::<Self>(block, codes, scales, mins) }
        }

        #[inline(always)]
        unsafe fn dot_avx2<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: the caller's promises are the callee's.
            unsafe { dot_k_avx2::<Self, N>(row, x) }
        }

        #[inline(always)]
        unsafe fn dot_avx512<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: the caller's promises are the callee's.
            unsafe { dot_k_avx512::<Self, N>(row, x) }
        }
    }

    impl KCodes for Q4K {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8, group: usize) -> [__m256i; 2] {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = _mm256_loadu_si256(block.add(16 + 32 * group).cast());
                let low = _mm256_set1_epi8(15);
                [
                    _mm256_and_si256(qs, low),
                    _mm256_and_si256(_mm256_srli_epi16::<4>(qs), low),
                ]
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512(block: *const u8, group: usize) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                _mm512_and_si512(
                    nibbles_avx512(block.add(16 + 32 * group)),
                    _mm512_set1_epi8(15),
                )
            }
        }
    }

    /// Low nibbles of 32 bytes, then high ones; the upper four bits of each byte are whatever was there.
    ///
    /// # Safety
    /// Needs AVX-512 F and 32 bytes.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn nibbles_avx512(qs: *const u8) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            let qs = _mm512_broadcast_i64x4(_mm256_loadu_si256(qs.cast()));
            _mm512_srlv_epi64(qs, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4))
        }
    }

    /// A type of 256-value blocks with the 16-byte header of `Q4_K`.
    pub(in crate::cpu::gemv) trait KCodes: CodeBlock {
        /// The codes of sub-blocks `2 group` and `2 group + 1`.
        ///
        /// # Safety
        /// Needs AVX2; `block` must be whole.
        unsafe fn codes_avx2(block: *const u8, group: usize) -> [__m256i; 2];

        /// The codes of sub-blocks `2 group` and `2 group + 1`.
        ///
        /// # Safety
        /// Needs AVX-512 F, BW and VL; `block` must be whole.
        unsafe fn codes_avx512(block: *const u8, group: usize) -> __m512i;
    }

    /// The 8 scales and 8 mins of a block.
    ///
    /// # Safety
    /// Needs AVX2 and F16C; `block` must have its header.
    #[inline(always)]
    unsafe fn header(block: *const u8) -> [__m256; 2] {
        // SAFETY: the fields of the header.
        unsafe {
            let packed = block.add(4).cast::<[u8; 12]>().read();
            let (scales, mins) = unpack_scales_6bit(&packed);
            let d = _mm_cvtph_ps(_mm_cvtsi32_si128(block.cast::<i32>().read_unaligned()));
            let widen = |bytes: [u8; 8]| {
                let bytes = _mm_cvtsi64_si128(i64::from_le_bytes(bytes));
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))
            };
            [
                _mm256_mul_ps(widen(scales), _mm256_broadcastss_ps(d)),
                _mm256_mul_ps(widen(mins), _mm256_broadcastss_ps(_mm_movehdup_ps(d))),
            ]
        }
    }

    /// The codes, scales and mins of one block.
    ///
    /// # Safety
    /// As [`CpuCode::unpack_avx2`].
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn unpack_k_avx2<T: KCodes>(
        block: &[u8],
        codes: &mut [u8],
        scales: &mut [f32],
        mins: &mut [f32],
    ) {
        // SAFETY: the caller says that the slices are long enough.
        unsafe {
            let header = header(block.as_ptr());
            _mm256_storeu_ps(scales.as_mut_ptr(), header[0]);
            _mm256_storeu_ps(mins.as_mut_ptr(), header[1]);
            for group in 0..4 {
                for (half, part) in T::codes_avx2(block.as_ptr(), group).into_iter().enumerate() {
                    _mm256_storeu_si256(
                        codes.as_mut_ptr().add(64 * group + 32 * half).cast(),
                        part,
                    );
                }
            }
        }
    }

    /// Row products of a `KCodes` type.
    ///
    /// # Safety
    /// As [`CpuCode::dot_avx2`].
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn dot_k_avx2<T: KCodes, const N: usize>(
        row: &[u8],
        x: &[RowInput<'_>; N],
    ) -> [f32; N] {
        // SAFETY: block `b` of the row and values `256 b..` of each input exist for all `b` below the count.
        unsafe {
            let mut total = [[_mm256_setzero_ps(); 2]; N];
            let mut total_min = [_mm256_setzero_ps(); N];
            for b in 0..x[0].len / T::LEN {
                let block = row.as_ptr().add(b * T::BYTES);
                let [scales, mins] = header(block);
                let mut both = [[0.0f32; 8]; N];
                for t in 0..N {
                    let scales =
                        _mm256_mul_ps(scales, _mm256_loadu_ps(x[t].scales.as_ptr().add(b * 8)));
                    _mm256_storeu_ps(both[t].as_mut_ptr(), scales);
                    let sums = _mm256_loadu_ps(x[t].sums.as_ptr().add(b * 8));
                    total_min[t] = _mm256_fmadd_ps(mins, sums, total_min[t]);
                }
                for group in 0..4 {
                    let codes = T::codes_avx2(block, group);
                    for t in 0..N {
                        for (half, codes) in codes.into_iter().enumerate() {
                            let sub = 2 * group + half;
                            let at = x[t].codes.as_ptr().add(b * T::LEN + sub * 32);
                            let dots =
                                _mm256_cvtepi32_ps(dot_avx2(codes, _mm256_loadu_si256(at.cast())));
                            let scale = _mm256_broadcast_ss(&both[t][sub]);
                            total[t][half] = _mm256_fmadd_ps(dots, scale, total[t][half]);
                        }
                    }
                }
            }
            let mut out = [0.0; N];
            for t in 0..N {
                let both = _mm256_add_ps(total[t][0], total[t][1]);
                out[t] = sum_avx2(_mm256_sub_ps(both, total_min[t]));
            }
            out
        }
    }

    /// Row products of a `KCodes` type.
    ///
    /// # Safety
    /// As [`CpuCode::dot_avx512`].
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn dot_k_avx512<T: KCodes, const N: usize>(
        row: &[u8],
        x: &[RowInput<'_>; N],
    ) -> [f32; N] {
        // SAFETY: block `b` of the row and values `256 b..` of each input exist for all `b` below the count.
        unsafe {
            let mut total = [[_mm512_setzero_ps(); 2]; N];
            let mut total_min = [_mm256_setzero_ps(); N];
            let first_pair = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
            for b in 0..x[0].len / T::LEN {
                let block = row.as_ptr().add(b * T::BYTES);
                let [scales, mins] = header(block);
                let mut both = [_mm512_setzero_ps(); N];
                for t in 0..N {
                    let scales =
                        _mm256_mul_ps(scales, _mm256_loadu_ps(x[t].scales.as_ptr().add(b * 8)));
                    both[t] = _mm512_castps256_ps512(scales);
                    let sums = _mm256_loadu_ps(x[t].sums.as_ptr().add(b * 8));
                    total_min[t] = _mm256_fmadd_ps(mins, sums, total_min[t]);
                }
                for group in 0..4 {
                    let codes = T::codes_avx512(block, group);
                    let pair = _mm512_add_epi32(first_pair, _mm512_set1_epi32(2 * group as i32));
                    for t in 0..N {
                        let at = x[t].codes.as_ptr().add(b * T::LEN + group * 64);
                        let dots = _mm512_dpbusd_epi32(
                            _mm512_setzero_si512(),
                            codes,
                            _mm512_loadu_si512(at.cast()),
                        );
                        let scale = _mm512_permutexvar_ps(pair, both[t]);
                        let to = &mut total[t][group % 2];
                        *to = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scale, *to);
                    }
                }
            }
            let mut out = [0.0; N];
            for t in 0..N {
                let both = _mm512_add_ps(total[t][0], total[t][1]);
                out[t] = _mm512_reduce_add_ps(both) - sum_avx2(total_min[t]);
            }
            out
        }
    }
}
