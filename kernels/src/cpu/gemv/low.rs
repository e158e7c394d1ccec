//! Registers of `Q1_0` and `Q2_0`, whose blocks are 128 and 64 values.

cpu_code!(run: Q1_0, Q2_0);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::{BlockType, Q1_0, Q2_0};
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::{half, spread_bits_avx2};
    use core::arch::x86_64::*;

    impl Run for Q1_0 {
        #[inline(always)]
        unsafe fn header(run: *const u8) -> Header {
            // SAFETY: two blocks.
            unsafe {
                let [first, second] = [run, run.add(Self::BYTES)].map(|block| half(block));
                let both = _mm256_set_m128(_mm_broadcastss_ps(second), _mm_broadcastss_ps(first));
                Header::scales([both; 2])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(run: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let bits = run.add(I / 4 * Self::BYTES + 2 + 4 * (I % 4));
                let set = spread_bits_avx2(bits.cast::<u32>().read_unaligned());
                _mm256_and_si256(set, _mm256_set1_epi8(2))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(run: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let bits = run.add(I / 2 * Self::BYTES + 2 + 8 * (I % 2));
                let set: __mmask64 = bits.cast::<u64>().read_unaligned();
                _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(2))
            }
        }
    }

    /// Four codes from the low byte of every word; the upper six bits of each byte are whatever comes there.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn spread_crumbs_avx2(words: __m256i) -> __m256i {
        // SAFETY: the caller's.
        unsafe {
            let x = _mm256_or_si256(words, _mm256_slli_epi32::<12>(words));
            _mm256_or_si256(x, _mm256_slli_epi32::<6>(x))
        }
    }

    impl Run for Q2_0 {
        #[inline(always)]
        unsafe fn header(run: *const u8) -> Header {
            // SAFETY: four blocks.
            unsafe {
                let bits = |i: usize| {
                    let bits = run.add(i * Self::BYTES).cast::<u16>().read_unaligned();
                    u64::from(bits) << (16 * i)
                };
                let bits = (bits(0) | bits(1) | bits(2) | bits(3)) as i64;
                let four = _mm256_castps128_ps256(_mm_cvtph_ps(_mm_cvtsi64_si128(bits)));
                let pairs = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
                Header::scales([_mm256_permutevar8x32_ps(four, pairs); 2])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(run: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = run.add(I / 2 * Self::BYTES + 2 + 8 * (I % 2));
                let words = _mm256_cvtepu8_epi32(_mm_loadl_epi64(qs.cast()));
                _mm256_and_si256(spread_crumbs_avx2(words), _mm256_set1_epi8(3))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(run: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = _mm_loadu_si128(run.add(I * Self::BYTES + 2).cast());
                let words = _mm512_cvtepu8_epi32(qs);
                let x = _mm512_or_si512(words, _mm512_slli_epi32::<12>(words));
                // 0xa8: the first or the second, and the third.
                _mm512_ternarylogic_epi64::<0xa8>(x, _mm512_slli_epi32::<6>(x), _mm512_set1_epi8(3))
            }
        }
    }
}
