//! Registers of `Q3_K`.

cpu_code!(run: Q3K);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::Q3K;
    use crate::cpu::gemv::q2_k::{crumbs_avx2, crumbs_avx512};
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::half;
    use core::arch::x86_64::*;

    impl Run for Q3K {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                // The scales eight to a word: bits 0..4, then bits 4..6.
                let low = block.add(96).cast::<u64>().read_unaligned();
                let high = u64::from(block.add(104).cast::<u32>().read_unaligned());
                let nibbles = 0x0f0f_0f0f_0f0f_0f0f;
                let pairs = |shift: u32| {
                    (high >> shift & 0x0303_0303 | (high >> (shift + 2) & 0x0303_0303) << 32) << 4
                };
                let d = _mm256_broadcastss_ps(half(block.add(108)));
                let widen = |bytes: u64| {
                    let bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes as i64));
                    let signed = _mm256_sub_epi32(bytes, _mm256_set1_epi32(32));
                    _mm256_mul_ps(_mm256_cvtepi32_ps(signed), d)
                };
                Header::scales([
                    widen(low & nibbles | pairs(0)),
                    widen(low >> 4 & nibbles | pairs(4)),
                ])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let bit = _mm256_set1_epi8((1u8 << I) as i8);
                let mask = _mm256_loadu_si256(block.cast());
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(mask, bit), bit);
                _mm256_or_si256(
                    crumbs_avx2::<I>(block.add(32)),
                    _mm256_and_si256(set, _mm256_set1_epi8(4)),
                )
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let mask = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.cast()));
                // Bit `2 I`, and `2 I + 1` in the upper half, to bit 2.
                let (a, b) = (2 - 2 * I as i64, 1 - 2 * I as i64);
                let high = _mm512_rolv_epi64(mask, _mm512_setr_epi64(a, a, a, a, b, b, b, b));
                // 0xca: bits of the second where the mask is set, of the third where not.
                let codes = _mm512_ternarylogic_epi64::<0xca>(
                    _mm512_set1_epi8(3),
                    crumbs_avx512::<I>(block.add(32)),
                    high,
                );
                _mm512_and_si512(codes, _mm512_set1_epi8(7))
            }
        }
    }
}
