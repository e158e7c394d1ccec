//! Registers of `MXFP4` and `NVFP4`: four-bit floats, looked up as integers.

cpu_code!(block32: MXFP4);
cpu_code!(run: NVFP4);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::{BlockType, CodeBlock, E2M1_CODES, MXFP4, NVFP4, half_e8m0};
    use crate::cpu::gemv::block32::Block32;
    use crate::cpu::gemv::q4_0::{nibbles_avx2, nibbles_avx512};
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::{look_up_avx2, look_up_avx512};
    use core::arch::x86_64::*;

    /// Half of 2 to the power of each exponent.
    static HALF_POWERS: [f32; 256] = {
        let mut powers = [0.0; 256];
        let mut exponent = 0;
        while exponent < 256 {
            powers[exponent] = half_e8m0(exponent as u8);
            exponent += 1;
        }
        powers
    };

    /// Twice the value of each four-bit float, plus 128.
    const VALUES: [u8; 16] = {
        let mut values = E2M1_CODES;
        let mut i = 0;
        while i < 16 {
            values[i] += 128 - MXFP4::OFFSET as u8;
            i += 1;
        }
        values
    };

    impl Block32 for MXFP4 {
        // Scales reach 2^127.
        const SIGNED: bool = true;

        #[inline(always)]
        unsafe fn scale(block: *const u8) -> f32 {
            // SAFETY: the exponent is in front.
            HALF_POWERS[usize::from(unsafe { *block })]
        }

        #[inline(always)]
        unsafe fn scales(blocks: *const u8) -> __m128 {
            // SAFETY: four blocks.
            unsafe {
                let [a, b, c, d] = [0, 1, 2, 3].map(|i| Self::scale(blocks.add(i * Self::BYTES)));
                _mm_setr_ps(a, b, c, d)
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: 16 bytes of nibbles follow the exponent.
            unsafe { look_up_avx2(&VALUES, nibbles_avx2(block.add(1))) }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe {
                let nibbles = nibbles_avx512(blocks.add(1), blocks.add(1 + Self::BYTES));
                look_up_avx512(&VALUES, _mm512_and_si512(nibbles, _mm512_set1_epi8(15)))
            }
        }
    }

    /// Half of eight numbers of four exponent bits of bias 7 and three fraction bits, in the low bytes.
    ///
    /// # Safety
    /// Needs AVX2 and F16C.
    #[inline(always)]
    unsafe fn half_ue4m3(bytes: __m128i) -> __m256 {
        // SAFETY: the caller's.
        unsafe {
            // As the exponent and first fraction bits of an `f16`, whose bias is 8 larger; subnormal ones too.
            let words = _mm_cvtepu8_epi16(bytes);
            let is_nan = _mm_cmpeq_epi16(words, _mm_set1_epi16(0x7f));
            let bits = _mm_andnot_si128(is_nan, _mm_and_si128(words, _mm_set1_epi16(0x7f)));
            _mm256_mul_ps(
                _mm256_cvtph_ps(_mm_slli_epi16::<7>(bits)),
                _mm256_set1_ps(128.0),
            )
        }
    }

    impl Run for NVFP4 {
        #[inline(always)]
        unsafe fn header(run: *const u8) -> Header {
            // SAFETY: four blocks.
            unsafe {
                let four = |i: usize| run.add(i * Self::BYTES).cast::<i32>().read_unaligned();
                let bytes = _mm_setr_epi32(four(0), four(1), four(2), four(3));
                let high = _mm_unpackhi_epi64(bytes, bytes);
                Header::scales([bytes, high].map(|bytes| half_ue4m3(bytes)))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(run: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = run.add(I / 2 * Self::BYTES + 4 + 16 * (I % 2));
                let qs = _mm256_castsi128_si256(_mm_loadu_si128(qs.cast()));
                // Low nibbles of 8 bytes, then high ones.
                let qs = _mm256_srlv_epi64(
                    _mm256_permute4x64_epi64::<0b01_01_00_00>(qs),
                    _mm256_setr_epi64x(0, 4, 0, 4),
                );
                look_up_avx2(&E2M1_CODES, _mm256_and_si256(qs, _mm256_set1_epi8(15)))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(run: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = _mm256_loadu_si256(run.add(I * Self::BYTES + 4).cast());
                let twice = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
                let qs = _mm512_permutexvar_epi64(twice, _mm512_castsi256_si512(qs));
                let qs = _mm512_srlv_epi64(qs, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4));
                look_up_avx512(&E2M1_CODES, _mm512_and_si512(qs, _mm512_set1_epi8(15)))
            }
        }
    }
}
