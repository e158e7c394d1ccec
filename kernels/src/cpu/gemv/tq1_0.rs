//! Registers of `TQ1_0`.

cpu_code!(run: TQ1_0);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::TQ1_0;
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::{half, join};
    use core::arch::x86_64::*;

    /// Digits of bytes that are fractions of 256 in base 3: the digit after as many as the powers of 3 say, which are
    /// one for every two bytes.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn digits(bytes: __m256i, powers: __m256i) -> __m256i {
        // SAFETY: the caller's.
        unsafe {
            // As fractions of 65536: a product keeps the part after the digits it shifts out, and the upper half of
            // three times that is the next digit. Not `mulhi`: the compiler makes three additions in 32 bits of it.
            let three = _mm256_set1_epi16(0x0300);
            let upper = _mm256_set1_epi16(0xff00_u16 as i16);
            let even = _mm256_mullo_epi16(_mm256_slli_epi16::<8>(bytes), powers);
            let odd = _mm256_mullo_epi16(_mm256_and_si256(bytes, upper), powers);
            _mm256_or_si256(
                _mm256_srli_epi16::<8>(_mm256_maddubs_epi16(even, three)),
                _mm256_and_si256(_mm256_maddubs_epi16(odd, three), upper),
            )
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
            // SAFETY: the fields of a block.
            unsafe {
                if I < 5 {
                    let powers = _mm256_set1_epi16(3i16.pow(I as u32));
                    return digits(_mm256_loadu_si256(block.cast()), powers);
                }
                let low = _mm_loadu_si128(block.add(32).cast());
                let both = _mm256_broadcastsi128_si256(low);
                let powers =
                    |low, high| _mm256_set_m128i(_mm_set1_epi16(high), _mm_set1_epi16(low));
                match I {
                    5 => digits(both, powers(1, 3)),
                    6 => digits(both, powers(9, 27)),
                    _ => {
                        // The last digits of these 16 bytes, and all four of the last four.
                        let high = _mm_set1_epi32(block.add(48).cast::<i32>().read_unaligned());
                        let powers = _mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27);
                        digits(
                            _mm256_set_m128i(high, low),
                            _mm256_set_m128i(powers, _mm_set1_epi16(81)),
                        )
                    }
                }
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the caller's promises are the callee's.
            unsafe {
                match I {
                    0 => join(Self::codes_avx2::<0>(block), Self::codes_avx2::<1>(block)),
                    1 => join(Self::codes_avx2::<2>(block), Self::codes_avx2::<3>(block)),
                    2 => join(Self::codes_avx2::<4>(block), Self::codes_avx2::<5>(block)),
                    _ => join(Self::codes_avx2::<6>(block), Self::codes_avx2::<7>(block)),
                }
            }
        }
    }
}
