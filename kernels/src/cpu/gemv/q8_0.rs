//! Registers of `Q8_0`, `Q8_1` and `Q8_K`.

cpu_code!(block32: Q8_0, Q8_1);
cpu_code!(run: Q8K);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::{Q8_0, Q8_1, Q8K};
    use crate::cpu::gemv::block32::Block32;
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::join;
    use core::arch::x86_64::*;

    /// 32 signed codes made unsigned.
    ///
    /// # Safety
    /// Needs AVX2 and 32 bytes.
    #[inline(always)]
    unsafe fn unsigned_avx2(qs: *const u8) -> __m256i {
        // SAFETY: the caller says so.
        unsafe { _mm256_xor_si256(_mm256_loadu_si256(qs.cast()), _mm256_set1_epi8(-128)) }
    }

    /// 32 signed codes at each place made unsigned.
    ///
    /// # Safety
    /// Needs AVX-512 F and 32 bytes at both.
    #[inline(always)]
    unsafe fn unsigned_avx512(first: *const u8, second: *const u8) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            let first = _mm256_loadu_si256(first.cast());
            let second = _mm256_loadu_si256(second.cast());
            _mm512_xor_si512(join(first, second), _mm512_set1_epi8(-128))
        }
    }

    impl Block32 for Q8_0 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: 32 bytes follow the scale.
            unsafe { unsigned_avx2(block.add(2)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe { unsigned_avx512(blocks.add(2), blocks.add(36)) }
        }
    }

    impl Block32 for Q8_1 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: 32 bytes follow the scale and the sum.
            unsafe { unsigned_avx2(block.add(4)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe { unsigned_avx512(blocks.add(4), blocks.add(40)) }
        }
    }

    impl Run for Q8K {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the scale is in front.
            unsafe { Header::one(_mm_load_ss(&block.cast::<f32>().read_unaligned())) }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: 256 bytes follow the scale.
            unsafe { unsigned_avx2(block.add(4 + 32 * I)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: as above.
            unsafe { unsigned_avx512(block.add(4 + 64 * I), block.add(36 + 64 * I)) }
        }
    }
}
