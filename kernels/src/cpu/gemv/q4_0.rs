//! Row products of `Q4_0`.

use crate::blocks::Q4_0;
use crate::cpu::types::CpuCode;

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{nibbles_avx2, nibbles_avx512};

#[cfg(not(target_arch = "x86_64"))]
impl CpuCode for Q4_0 {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CpuCode, Q4_0};
    use crate::blocks::BlockType;
    use crate::cpu::gemv::RowInput;
    use crate::cpu::gemv::x86::{
        Block32, dot_block32_avx2, dot_block32_avx512, unpack_block32_avx2,
    };
    use core::arch::x86_64::*;

    impl CpuCode for Q4_0 {
        #[inline(always)]
        unsafe fn unpack_avx2(
            block: &[u8],
            codes: &mut [u8],
            scales: &mut [f32],
            _mins: &mut [f32],
        ) {
            // SAFETY: the caller's promises are the callee's.
            unsafe { unpack_block32_avx2::<Self>(block, codes, scales) }
        }

        #[inline(always)]
        unsafe fn dot_avx2<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: the caller's promises are the callee's.
            unsafe { dot_block32_avx2::<Self, N>(row, x) }
        }

        #[inline(always)]
        unsafe fn dot_avx512<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: the caller's promises are the callee's.
            unsafe { dot_block32_avx512::<Self, N>(row, x) }
        }
    }

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
                let nibbles = nibbles_avx512(blocks.add(2), blocks.add(2 + Self::BYTES));
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
