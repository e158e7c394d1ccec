//! Row products of `Q8_0`.

use crate::blocks::Q8_0;
use crate::cpu::types::CpuCode;

#[cfg(not(target_arch = "x86_64"))]
impl CpuCode for Q8_0 {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CpuCode, Q8_0};
    use crate::blocks::BlockType;
    use crate::cpu::gemv::RowInput;
    use crate::cpu::gemv::x86::{
        Block32, dot_block32_avx2, dot_block32_avx512, unpack_block32_avx2,
    };
    use core::arch::x86_64::*;

    impl CpuCode for Q8_0 {
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

    impl Block32 for Q8_0 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: 32 bytes follow the scale.
            unsafe {
                _mm256_xor_si256(
                    _mm256_loadu_si256(block.add(2).cast()),
                    _mm256_set1_epi8(-128),
                )
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: as above, in both blocks.
            unsafe {
                let first = _mm512_castsi256_si512(_mm256_loadu_si256(blocks.add(2).cast()));
                let second = _mm256_loadu_si256(blocks.add(2 + Self::BYTES).cast());
                _mm512_xor_si512(
                    _mm512_inserti64x4::<1>(first, second),
                    _mm512_set1_epi8(-128),
                )
            }
        }
    }
}
