//! Row products of `Q5_K`: those of `Q4_K` with a fifth bit.

use crate::blocks::Q5K;
use crate::cpu::types::CpuCode;

#[cfg(not(target_arch = "x86_64"))]
impl CpuCode for Q5K {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CpuCode, Q5K};
    use crate::cpu::gemv::RowInput;
    use crate::cpu::gemv::q4_k::{KCodes, dot_k_avx2, dot_k_avx512, nibbles_avx512, unpack_k_avx2};
    use core::arch::x86_64::*;

    impl CpuCode for Q5K {
        #[inline(always)]
        unsafe fn unpack_avx2(
            block: &[u8],
            codes: &mut [u8],
            scales: &mut [f32],
            mins: &mut [f32],
        ) {
            // SAFETY: the caller's promises are the callee's.
            unsafe { unpack_k_avx2::<Self>(block, codes, scales, mins) }
        }

        #[inline(always)]
        unsafe fn dot_avx2<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: the caller's promises are the callee's.
            unsafe { dot_k_avx2::<Self, N>(row, x) }
        }

        #[inline(always)]
        unsafe fn dot_avx512<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
            // SAFETY: the caller's promises are the callee's.
            unsafe { dot_k_avx512::<Self, N>(row, x) }
        }
    }

    impl KCodes for Q5K {
        #[inline(always)]
        unsafe fn codes_avx2(block: *const u8, group: usize) -> [__m256i; 2] {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = _mm256_loadu_si256(block.add(48 + 32 * group).cast());
                let qh = _mm256_loadu_si256(block.add(16).cast());
                let (low, fifth) = (_mm256_set1_epi8(15), _mm256_set1_epi8(16));
                let high = |sub: usize| {
                    let bit = _mm256_set1_epi8((1u8 << sub) as i8);
                    _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(qh, bit), bit), fifth)
                };
                [
                    _mm256_or_si256(_mm256_and_si256(qs, low), high(2 * group)),
                    _mm256_or_si256(
                        _mm256_and_si256(_mm256_srli_epi16::<4>(qs), low),
                        high(2 * group + 1),
                    ),
                ]
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512(block: *const u8, group: usize) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let nibbles = nibbles_avx512(block.add(48 + 32 * group));
                let qh = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(16).cast()));
                // Bit `2 group`, and `2 group + 1` in the upper half, to bit 4.
                let (a, b) = (4 - 2 * group as i64, 3 - 2 * group as i64);
                let high = _mm512_rolv_epi64(qh, _mm512_setr_epi64(a, a, a, a, b, b, b, b));
                // 0xca: bits of the second where the mask is set, of the third where not.
                let codes = _mm512_ternarylogic_epi64::<0xca>(_mm512_set1_epi8(15), nibbles, high);
                _mm512_and_si512(codes, _mm512_set1_epi8(31))
            }
        }
    }
}
