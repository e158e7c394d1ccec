//! Registers of `IQ4_NL` and `IQ4_XS`: nibbles that index a table.

cpu_code!(block32: IQ4NL);
cpu_code!(run: IQ4XS);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::codebook::IQ4;
    use crate::blocks::{BlockType, IQ4NL, IQ4XS};
    use crate::cpu::gemv::block32::Block32;
    use crate::cpu::gemv::grid::{nibbles, read};
    use crate::cpu::gemv::q4_0::{nibbles_avx2, nibbles_avx512};
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::{half, look_up_avx2, look_up_avx512};
    use core::arch::x86_64::*;

    /// The table plus 128.
    const CODES: [u8; 16] = {
        let mut codes = [0; 16];
        let mut i = 0;
        while i < 16 {
            codes[i] = IQ4[i] as u8 ^ 0x80;
            i += 1;
        }
        codes
    };

    /// 32 codes from 16 bytes at both places.
    ///
    /// # Safety
    /// Needs AVX-512 F and BW, and 16 bytes at both.
    #[inline(always)]
    unsafe fn codes_avx512(first: *const u8, second: *const u8) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            let nibbles = nibbles_avx512(first, second);
            look_up_avx512(&CODES, _mm512_and_si512(nibbles, _mm512_set1_epi8(15)))
        }
    }

    impl Block32 for IQ4NL {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: 16 bytes of nibbles follow the scale.
            unsafe { look_up_avx2(&CODES, nibbles_avx2(block.add(2))) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe { codes_avx512(blocks.add(2), blocks.add(2 + Self::BYTES)) }
        }
    }

    impl Run for IQ4XS {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                let high: u16 = read(block.add(2));
                let shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
                let high = _mm256_srlv_epi32(_mm256_set1_epi32(high.into()), shifts);
                let high = _mm256_slli_epi32::<4>(_mm256_and_si256(high, _mm256_set1_epi32(3)));
                let high = _mm256_cvtepi32_ps(_mm256_sub_epi32(high, _mm256_set1_epi32(32)));
                let scales = _mm256_add_ps(nibbles(read(block.add(4))), high);
                let scales = _mm256_mul_ps(_mm256_broadcastss_ps(half(block)), scales);
                Header::scales([scales; 2])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe { look_up_avx2(&CODES, nibbles_avx2(block.add(8 + 16 * I))) }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe { codes_avx512(block.add(8 + 32 * I), block.add(24 + 32 * I)) }
        }
    }
}
