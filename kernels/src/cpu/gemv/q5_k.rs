//! Registers of `Q5_K`.

cpu_code!(run: Q5K);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::Q5K;
    use crate::cpu::gemv::q4_k::{header, nibbles_avx512};
    use crate::cpu::gemv::run::{Header, Run};
    use core::arch::x86_64::*;

    impl Run for Q5K {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the caller says that the block is whole.
            unsafe { header(block) }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = _mm256_loadu_si256(block.add(48 + 32 * (I / 2)).cast());
                let qs = if I % 2 == 0 {
                    qs
                } else {
                    _mm256_srli_epi16::<4>(qs)
                };
                let qh = _mm256_loadu_si256(block.add(16).cast());
                let bit = _mm256_set1_epi8((1u8 << I) as i8);
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(qh, bit), bit);
                _mm256_or_si256(
                    _mm256_and_si256(qs, _mm256_set1_epi8(15)),
                    _mm256_and_si256(set, _mm256_set1_epi8(16)),
                )
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let nibbles = nibbles_avx512(block.add(48 + 32 * I));
                let qh = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(16).cast()));
                // Bit `2 I`, and `2 I + 1` in the upper half, to bit 4.
                let (a, b) = (4 - 2 * I as i64, 3 - 2 * I as i64);
                let high = _mm512_rolv_epi64(qh, _mm512_setr_epi64(a, a, a, a, b, b, b, b));
                // 0xca: bits of the second where the mask is set, of the third where not.
                let codes = _mm512_ternarylogic_epi64::<0xca>(_mm512_set1_epi8(15), nibbles, high);
                _mm512_and_si512(codes, _mm512_set1_epi8(31))
            }
        }
    }
}
