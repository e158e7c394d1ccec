//! Registers of `Q5_0` and `Q5_1`.

cpu_code!(block32: Q5_0, Q5_1);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::{BlockType, Q5_0, Q5_1};
    use crate::cpu::gemv::block32::Block32;
    use crate::cpu::gemv::q4_0::{nibbles_avx2, nibbles_avx512};
    use crate::cpu::gemv::x86::spread_bits_avx2;
    use core::arch::x86_64::*;

    /// 32 codes from 4 bytes of fifth bits and 16 of nibbles.
    ///
    /// # Safety
    /// Needs AVX2 and 20 bytes.
    #[inline(always)]
    unsafe fn codes_avx2(qh: *const u8) -> __m256i {
        // SAFETY: the caller says so.
        unsafe {
            let set = spread_bits_avx2(qh.cast::<u32>().read_unaligned());
            _mm256_or_si256(
                nibbles_avx2(qh.add(4)),
                _mm256_and_si256(set, _mm256_set1_epi8(16)),
            )
        }
    }

    /// As [`codes_avx2`] at two places.
    ///
    /// # Safety
    /// Needs AVX-512 F, BW, VL and 20 bytes at both.
    #[inline(always)]
    unsafe fn codes_avx512(first: *const u8, second: *const u8) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            let nibbles = nibbles_avx512(first.add(4), second.add(4));
            let qh = [first, second].map(|qh| u64::from(qh.cast::<u32>().read_unaligned()));
            let set: __mmask64 = qh[0] | qh[1] << 32;
            let fifth = _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(16));
            // 0xec: the first where the mask is set, or the second.
            _mm512_ternarylogic_epi64::<0xec>(nibbles, fifth, _mm512_set1_epi8(15))
        }
    }

    impl Block32 for Q5_0 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: the fields after the scale.
            unsafe { codes_avx2(block.add(2)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe { codes_avx512(blocks.add(2), blocks.add(2 + Self::BYTES)) }
        }
    }

    impl Block32 for Q5_1 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: the fields after the scale and the min.
            unsafe { codes_avx2(block.add(4)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe { codes_avx512(blocks.add(4), blocks.add(4 + Self::BYTES)) }
        }
    }
}
