//! Registers of `Q4_0` and `Q4_1`, and the nibbles that other types share.

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{nibbles_avx2, nibbles_avx512};

cpu_code!(block32: Q4_0, Q4_1);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::{Q4_0, Q4_1};
    use crate::cpu::gemv::block32::Block32;
    use core::arch::x86_64::*;

    impl Block32 for Q4_0 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: 16 bytes of nibbles follow the scale.
            unsafe { nibbles_avx2(block.add(2)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe {
                let nibbles = nibbles_avx512(blocks.add(2), blocks.add(20));
                _mm512_and_si512(nibbles, _mm512_set1_epi8(15))
            }
        }
    }

    impl Block32 for Q4_1 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: 16 bytes of nibbles follow the scale and the min.
            unsafe { nibbles_avx2(block.add(4)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe {
                let nibbles = nibbles_avx512(blocks.add(4), blocks.add(24));
                _mm512_and_si512(nibbles, _mm512_set1_epi8(15))
            }
        }
    }

    /// 32 codes from 16 bytes: the low nibbles, then the high ones.
    ///
    /// # Safety
    /// Needs AVX2 and 16 bytes.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn nibbles_avx2(qs: *const u8) -> __m256i {
        // SAFETY: the caller says so.
        unsafe {
            let qs = _mm256_broadcastsi128_si256(_mm_loadu_si128(qs.cast()));
            _mm256_and_si256(
                _mm256_srlv_epi64(qs, _mm256_setr_epi64x(0, 0, 4, 4)),
                _mm256_set1_epi8(15),
            )
        }
    }

    /// As [`nibbles_avx2`] for two blocks, but the upper four bits of each byte are whatever was there.
    ///
    /// # Safety
    /// Needs AVX-512 F and 16 bytes at both.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn nibbles_avx512(
        first: *const u8,
        second: *const u8,
    ) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            let first = _mm256_broadcastsi128_si256(_mm_loadu_si128(first.cast()));
            let second = _mm256_broadcastsi128_si256(_mm_loadu_si128(second.cast()));
            let qs = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second);
            _mm512_srlv_epi64(qs, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4))
        }
    }
}
