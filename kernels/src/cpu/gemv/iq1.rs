//! Registers of `IQ1_S` and `IQ1_M`: eight values to a point of the codebook, shifted up or down.

cpu_code!(run: IQ1S, IQ1M);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::codebook::IQ1;
    use crate::blocks::{IQ1M, IQ1S};
    use crate::cpu::gemv::grid::read;
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::{half, join};
    use core::arch::x86_64::*;

    /// Four points from eight low bits each, and three high ones `STEP` apart.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn points<const STEP: u32>(qs: u32, qh: u32) -> __m256i {
        let qh = qh << 8;
        let [a, b, c, d] = [0, 1, 2, 3].map(|k| {
            let point = qs >> (8 * k) & 255 | qh >> (STEP * k) & 0x700;
            IQ1.grid[point as usize] as i64
        });
        // SAFETY: the caller's.
        unsafe { _mm256_setr_epi64x(a, b, c, d) }
    }

    impl Run for IQ1S {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                let qh = _mm256_cvtepu16_epi32(_mm_loadu_si128(block.add(34).cast()));
                let s = _mm256_and_si256(_mm256_srli_epi32::<12>(qh), _mm256_set1_epi32(7));
                let odd = _mm256_add_epi32(_mm256_add_epi32(s, s), _mm256_set1_epi32(1));
                let d = _mm256_broadcastss_ps(half(block));
                let scales = _mm256_mul_ps(d, _mm256_cvtepi32_ps(odd));
                let down = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(qh));
                let shift = _mm256_blendv_ps(_mm256_set1_ps(0.875), _mm256_set1_ps(1.125), down);
                Header {
                    scales: [scales; 2],
                    mins: [_mm256_mul_ps(scales, shift); 2],
                }
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qh: u16 = read(block.add(34 + 2 * I));
                points::<3>(read(block.add(2 + 4 * I)), qh.into())
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let qh: u32 = read(block.add(34 + 4 * I));
                let qs: u64 = read(block.add(2 + 8 * I));
                join(
                    points::<3>(qs as u32, qh),
                    points::<3>((qs >> 32) as u32, qh >> 16),
                )
            }
        }
    }

    impl Run for IQ1M {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                let packed: u64 = read(block.add(48));
                let d = packed >> 12 & 15
                    | packed >> 24 & 0xf0
                    | packed >> 36 & 0xf00
                    | packed >> 48 & 0xf000;
                let d = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(d as i32)));
                let d = _mm256_mul_ps(d, _mm256_set1_ps(0.125));
                let scales = |word: u64| {
                    let shifts = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
                    let s = _mm256_srlv_epi32(_mm256_set1_epi32(word as i32), shifts);
                    let s = _mm256_and_si256(s, _mm256_set1_epi32(7));
                    let odd = _mm256_add_epi32(_mm256_add_epi32(s, s), _mm256_set1_epi32(1));
                    _mm256_mul_ps(d, _mm256_cvtepi32_ps(odd))
                };
                Header::scales([scales(packed), scales(packed >> 32)])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qh: u16 = read(block.add(32 + 2 * I));
                let eights = _mm256_slli_epi64::<3>(points::<4>(read(block.add(4 * I)), qh.into()));
                let fields = _mm256_srlv_epi64(
                    _mm256_set1_epi64x(qh.into()),
                    _mm256_setr_epi64x(0, 4, 8, 12),
                );
                let bit = _mm256_set1_epi64x(8);
                let down = _mm256_cmpeq_epi64(_mm256_and_si256(fields, bit), bit);
                _mm256_add_epi8(eights, _mm256_andnot_si256(down, _mm256_set1_epi8(2)))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let qh: u32 = read(block.add(32 + 4 * I));
                let qs: u64 = read(block.add(8 * I));
                let grid = join(
                    points::<4>(qs as u32, qh),
                    points::<4>((qs >> 32) as u32, qh >> 16),
                );
                let fields = _mm512_srlv_epi64(
                    _mm512_set1_epi64(qh.into()),
                    _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28),
                );
                let up = _mm512_testn_epi64_mask(fields, _mm512_set1_epi64(8));
                let shift = _mm512_maskz_mov_epi64(up, _mm512_set1_epi8(2));
                _mm512_add_epi8(_mm512_slli_epi64::<3>(grid), shift)
            }
        }
    }
}
