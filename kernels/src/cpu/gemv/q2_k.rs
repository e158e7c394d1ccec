//! Registers of `Q2_K` and `TQ2_0`, and the two-bit codes that `Q3_K` shares.

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{crumbs_avx2, crumbs_avx512};

cpu_code!(run: Q2K, TQ2_0);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::{Q2K, TQ2_0};
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::half;
    use core::arch::x86_64::*;

    /// Values `32 I..` of 2 halves of 32 bytes, each with four two-bit codes.
    ///
    /// # Safety
    /// Needs AVX2 and 64 bytes.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn crumbs_avx2<const I: usize>(qs: *const u8) -> __m256i {
        // SAFETY: the caller says so.
        unsafe {
            let qs = _mm256_loadu_si256(qs.add(32 * (I / 4)).cast());
            let shift = _mm_cvtsi32_si128(2 * (I % 4) as i32);
            _mm256_and_si256(_mm256_srl_epi16(qs, shift), _mm256_set1_epi8(3))
        }
    }

    /// Values `64 I..`; the upper six bits of each byte are whatever was there.
    ///
    /// # Safety
    /// Needs AVX-512 F and 64 bytes.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn crumbs_avx512<const I: usize>(qs: *const u8) -> __m512i {
        // SAFETY: the caller says so.
        unsafe {
            let qs = _mm512_broadcast_i64x4(_mm256_loadu_si256(qs.add(32 * (I / 2)).cast()));
            let (a, b) = (4 * (I % 2) as i64, 4 * (I % 2) as i64 + 2);
            _mm512_srlv_epi64(qs, _mm512_setr_epi64(a, a, a, a, b, b, b, b))
        }
    }

    impl Run for Q2K {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                let packed = _mm_loadu_si128(block.cast());
                let low = _mm_set1_epi8(15);
                let d = _mm_cvtph_ps(_mm_cvtsi32_si128(
                    block.add(80).cast::<i32>().read_unaligned(),
                ));
                let widen = |bytes, d| {
                    let d = _mm256_broadcastss_ps(d);
                    let high = _mm_unpackhi_epi64(bytes, bytes);
                    let part =
                        |bytes| _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), d);
                    [part(bytes), part(high)]
                };
                Header {
                    scales: widen(_mm_and_si128(packed, low), d),
                    mins: widen(
                        _mm_and_si128(_mm_srli_epi16::<4>(packed), low),
                        _mm_movehdup_ps(d),
                    ),
                }
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: 64 bytes follow the scales.
            unsafe { crumbs_avx2::<I>(block.add(16)) }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_and_si512(crumbs_avx512::<I>(block.add(16)), _mm512_set1_epi8(3)) }
        }
    }

    impl Run for TQ2_0 {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe { Header::one(half(block.add(64))) }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the block starts with 64 bytes of codes.
            unsafe { crumbs_avx2::<I>(block) }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_and_si512(crumbs_avx512::<I>(block), _mm512_set1_epi8(3)) }
        }
    }
}
