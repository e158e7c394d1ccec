//! Row products of `Q4_0`.

use crate::blocks::Q4_0;
use crate::cpu::types::CpuCode;

#[cfg(target_arch = "x86_64")]
pub(super) use x86::nibbles_avx2;

#[cfg(not(target_arch = "x86_64"))]
impl CpuCode for Q4_0 {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CpuCode, Q4_0};
    use crate::cpu::gemv::RowInput;
    use crate::cpu::gemv::x86::{Block32, dot_block32_avx2, dot_block32_avx512};
    use core::arch::x86_64::*;

    impl CpuCode for Q4_0 {
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
    }

    /// 32 codes from 16 bytes: the low nibbles, then the high ones.
    ///
    /// # Safety
    /// Needs AVX2 and 16 bytes.
    #[inline(always)]
    pub(in crate::cpu::gemv) unsafe fn nibbles_avx2(qs: *const u8) -> __m256i {
        // SAFETY: the caller says so.
        unsafe {
            let qs = _mm_loadu_si128(qs.cast());
            let both =
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(qs), _mm_srli_epi16::<4>(qs));
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        }
    }
}
