//! Registers of `Q6_K`.

cpu_code!(run: Q6K);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::Q6K;
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::half;
    use core::arch::x86_64::*;

    impl Run for Q6K {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                let d = _mm256_broadcastss_ps(half(block.add(208)));
                let part = |at: usize| {
                    let part = _mm_loadl_epi64(block.add(at).cast());
                    _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(part)), d)
                };
                Header::scales([part(192), part(200)])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            let (part, quarter) = (I / 4, I % 4);
            // SAFETY: the fields of a block.
            unsafe {
                let ql = _mm256_loadu_si256(block.add(64 * part + 32 * (quarter % 2)).cast());
                let qh = _mm256_loadu_si256(block.add(128 + 32 * part).cast());
                let (ql, qh) = match quarter {
                    0 => (ql, _mm256_slli_epi16::<4>(qh)),
                    1 => (ql, _mm256_slli_epi16::<2>(qh)),
                    2 => (_mm256_srli_epi16::<4>(ql), qh),
                    _ => (_mm256_srli_epi16::<4>(ql), _mm256_srli_epi16::<2>(qh)),
                };
                _mm256_or_si256(
                    _mm256_and_si256(ql, _mm256_set1_epi8(15)),
                    _mm256_and_si256(qh, _mm256_set1_epi8(0x30)),
                )
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            let part = I / 2;
            // SAFETY: the fields of a block.
            unsafe {
                let ql = _mm512_loadu_si512(block.add(64 * part).cast());
                let qh =
                    _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(128 + 32 * part).cast()));
                // The two bits of each quarter to bits 4 and 5.
                let (ql, shifts) = if I % 2 == 0 {
                    (ql, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2))
                } else {
                    let ql = _mm512_srli_epi16::<4>(ql);
                    (ql, _mm512_setr_epi64(0, 0, 0, 0, 62, 62, 62, 62))
                };
                let qh = _mm512_rolv_epi64(qh, shifts);
                // 0xca: bits of the second where the mask is set, of the third where not.
                let codes = _mm512_ternarylogic_epi64::<0xca>(_mm512_set1_epi8(15), ql, qh);
                _mm512_and_si512(codes, _mm512_set1_epi8(0x3f))
            }
        }
    }
}
