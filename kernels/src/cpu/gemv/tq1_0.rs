//! Registers of `TQ1_0`.

cpu_code!(run: TQ1_0);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::TQ1_0;
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::{half, join};
    use core::arch::x86_64::*;

    /// Three times each byte, what is over 255 dropped: the next digit comes to the front.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn next_avx2(x: __m256i) -> __m256i {
        // SAFETY: the caller's.
        unsafe { _mm256_add_epi8(_mm256_add_epi8(x, x), x) }
    }

    /// As [`next_avx2`], for 16 bytes.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn next_16(x: __m128i) -> __m128i {
        // SAFETY: the caller's.
        unsafe { _mm_add_epi8(_mm_add_epi8(x, x), x) }
    }

    /// The bytes whose first digits are values `32 I..`.
    ///
    /// # Safety
    /// Needs AVX2; `block` must be whole.
    #[inline(always)]
    unsafe fn bytes_avx2<const I: usize>(block: *const u8) -> __m256i {
        // SAFETY: the fields of a block.
        unsafe {
            if I < 5 {
                let mut x = _mm256_loadu_si256(block.cast());
                for _ in 0..I {
                    x = next_avx2(x);
                }
                return x;
            }
            let x0 = _mm_loadu_si128(block.add(32).cast());
            let x1 = next_16(x0);
            let x2 = next_16(x1);
            let x3 = next_16(x2);
            match I {
                5 => _mm256_set_m128i(x1, x0),
                6 => _mm256_set_m128i(x3, x2),
                _ => {
                    // Digits 0 to 3 of the last four bytes.
                    let y0 = _mm_cvtsi32_si128(block.add(48).cast::<i32>().read_unaligned());
                    let y1 = next_16(y0);
                    let y01 = _mm_unpacklo_epi32(y0, y1);
                    let y23 = next_16(next_16(y01));
                    _mm256_set_m128i(_mm_unpacklo_epi64(y01, y23), next_16(x3))
                }
            }
        }
    }

    impl Run for TQ1_0 {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe { Header::one(half(block.add(52))) }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the caller says that the block is whole.
            unsafe {
                let x = bytes_avx2::<I>(block);
                // A byte is a fraction of 256: its first digit is 1 from a third up, and 2 from two thirds up.
                let from = |least: i8| {
                    let least = _mm256_set1_epi8(least);
                    _mm256_cmpeq_epi8(_mm256_max_epu8(x, least), x)
                };
                _mm256_abs_epi8(_mm256_add_epi8(from(86), from(171u8 as i8)))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the caller says that the block is whole.
            unsafe {
                let x = match I {
                    0 => join(bytes_avx2::<0>(block), bytes_avx2::<1>(block)),
                    1 => join(bytes_avx2::<2>(block), bytes_avx2::<3>(block)),
                    2 => join(bytes_avx2::<4>(block), bytes_avx2::<5>(block)),
                    _ => join(bytes_avx2::<6>(block), bytes_avx2::<7>(block)),
                };
                let one = _mm512_set1_epi8(1);
                let first = _mm512_cmpge_epu8_mask(x, _mm512_set1_epi8(86));
                let second = _mm512_cmpge_epu8_mask(x, _mm512_set1_epi8(171u8 as i8));
                let codes = _mm512_maskz_mov_epi8(first, one);
                _mm512_mask_add_epi8(codes, second, codes, one)
            }
        }
    }
}
