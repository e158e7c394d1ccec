//! Registers of `Q4_K`, and the header that `Q5_K` shares.

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{header, nibbles_avx512};

cpu_code!(run: Q4K);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::{Q4K, unpack_scales_6bit};
    use crate::cpu::gemv::run::{Header, Run};
    use core::arch::x86_64::*;

    impl Run for Q4K {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the caller says that the block is whole.
            unsafe { header(block) }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = _mm256_loadu_si256(block.add(16 + 32 * (I / 2)).cast());
                let qs = if I % 2 == 0 {
                    qs
                } else {
                    _mm256_srli_epi16::<4>(qs)
                };
                _mm256_and_si256(qs, _mm256_set1_epi8(15))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let nibbles = nibbles_avx512(block.add(16 + 32 * I));
                _mm512_and_si512(nibbles, _mm512_set1_epi8(15))
            }
        }
    }

    /// Low nibbles of 32 bytes, then high ones; the upper four bits of each byte are whatever was there.
    ///
    /// # Safety
    /// Needs AVX-512 F and 32 bytes.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn nibbles_avx512(qs: *const u8) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            let qs = _mm512_broadcast_i64x4(_mm256_loadu_si256(qs.cast()));
            _mm512_srlv_epi64(qs, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4))
        }
    }

    /// The 8 scales and 8 mins in the first 16 bytes of a block.
    ///
    /// # Safety
    /// Needs AVX2 and F16C; `block` must have its header.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn header(block: *const u8) -> Header {
        // SAFETY: the fields of the header.
        unsafe {
            let packed = block.add(4).cast::<[u8; 12]>().read();
            let (scales, mins) = unpack_scales_6bit(&packed);
            let d = _mm_cvtph_ps(_mm_cvtsi32_si128(block.cast::<i32>().read_unaligned()));
            let widen = |bytes: [u8; 8]| {
                let bytes = _mm_cvtsi64_si128(i64::from_le_bytes(bytes));
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))
            };
            Header {
                scales: [_mm256_mul_ps(widen(scales), _mm256_broadcastss_ps(d)); 2],
                mins: [_mm256_mul_ps(widen(mins), _mm256_broadcastss_ps(_mm_movehdup_ps(d))); 2],
            }
        }
    }
}
