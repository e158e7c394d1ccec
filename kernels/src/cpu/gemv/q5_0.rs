//! Row products of `Q5_0`.

use crate::blocks::Q5_0;
use crate::cpu::types::CpuCode;

#[cfg(not(target_arch = "x86_64"))]
impl CpuCode for Q5_0 {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CpuCode, Q5_0};
    use crate::blocks::BlockType;
    use crate::cpu::gemv::RowInput;
    use crate::cpu::gemv::q4_0::{nibbles_avx2, nibbles_avx512};
    use crate::cpu::gemv::x86::{
        Block32, dot_block32_avx2, dot_block32_avx512, unpack_block32_avx2,
    };
    use core::arch::x86_64::*;

    impl CpuCode for Q5_0 {
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

    impl Block32 for Q5_0 {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let nibbles = nibbles_avx2(block.add(6));
                let qh = _mm256_set1_epi32(block.add(2).cast::<i32>().read_unaligned());
                // Byte `i` of the 32 bits to bytes `8 i..8 i + 8`, then bit `j` tested in byte `8 i + j`.
                let bytes = _mm256_setr_epi64x(
                    0,
                    0x0101_0101_0101_0101,
                    0x0202_0202_0202_0202,
                    0x0303_0303_0303_0303,
                );
                let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
                let set = _mm256_and_si256(_mm256_shuffle_epi8(qh, bytes), bits);
                let set = _mm256_cmpeq_epi8(set, bits);
                _mm256_or_si256(nibbles, _mm256_and_si256(set, _mm256_set1_epi8(16)))
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512(blocks: *const u8) -> __m512i {
            // SAFETY: the fields of two blocks.
            unsafe {
                let second = blocks.add(Self::BYTES);
                let nibbles = nibbles_avx512(blocks.add(6), second.add(6));
                let qh = [blocks, second]
                    .map(|block| u64::from(block.add(2).cast::<u32>().read_unaligned()));
                let set: __mmask64 = qh[0] | qh[1] << 32;
                let fifth = _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(16));
                // 0xec: the first where the mask is set, or the second.
                _mm512_ternarylogic_epi64::<0xec>(nibbles, fifth, _mm512_set1_epi8(15))
            }
        }
    }
}
