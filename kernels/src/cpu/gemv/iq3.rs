//! Registers of `IQ3_XXS` and `IQ3_S`: four magnitudes to a point of the codebook, and signs.

cpu_code!(run: IQ3XXS, IQ3S);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::codebook::{IQ3_S, IQ3_XXS};
    use crate::blocks::{CodeBlock, IQ3S, IQ3XXS};
    use crate::cpu::gemv::grid::{even_signs, nibbles, read, signed_avx2, signed_avx512};
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::{half, join};
    use core::arch::x86_64::*;

    /// Eight points of four magnitudes.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn eight(points: [u32; 8]) -> __m256i {
        // SAFETY: the caller's.
        unsafe {
            let [a, b, c, d, e, f, g, h] = points.map(|point| point as i32);
            _mm256_setr_epi32(a, b, c, d, e, f, g, h)
        }
    }

    /// The points of the eight bytes at `qs`.
    ///
    /// # Safety
    /// Needs AVX2 and 8 bytes.
    #[inline(always)]
    unsafe fn points_xxs(qs: *const u8) -> __m256i {
        // SAFETY: the caller says so.
        unsafe {
            let qs: u64 = read(qs);
            eight([0, 8, 16, 24, 32, 40, 48, 56].map(|at| IQ3_XXS.grid[(qs >> at & 255) as usize]))
        }
    }

    impl Run for IQ3XXS {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                let s = _mm256_srli_epi32::<28>(_mm256_loadu_si256(block.add(66).cast()));
                let s = _mm256_add_ps(_mm256_cvtepi32_ps(s), _mm256_set1_ps(0.5));
                let scales = _mm256_mul_ps(_mm256_broadcastss_ps(half(block)), s);
                Header::scales([_mm256_mul_ps(scales, _mm256_set1_ps(0.5)); 2])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let signs = even_signs(u64::from(read::<u32>(block.add(66 + 4 * I))));
                signed_avx2(points_xxs(block.add(2 + 8 * I)), signs as u32, Self::OFFSET)
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = block.add(2 + 16 * I);
                let points = join(points_xxs(qs), points_xxs(qs.add(8)));
                let signs = even_signs(read(block.add(66 + 8 * I)));
                signed_avx512(points, signs, Self::OFFSET)
            }
        }
    }

    /// The points of the eight bytes at `qs` and the eight high bits at `qh`.
    ///
    /// # Safety
    /// Needs AVX2 and those bytes.
    #[inline(always)]
    unsafe fn points_s(qs: *const u8, qh: *const u8) -> __m256i {
        // SAFETY: the caller says so.
        unsafe {
            let (qs, qh): (u64, u32) = (read(qs), u32::from(*qh) << 8);
            eight([0, 1, 2, 3, 4, 5, 6, 7].map(|k| {
                let point = (qs >> (8 * k)) as u32 & 255 | qh >> k & 256;
                IQ3_S.grid[point as usize]
            }))
        }
    }

    impl Run for IQ3S {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                let s = nibbles(read(block.add(106)));
                let odd = _mm256_add_ps(_mm256_add_ps(s, s), _mm256_set1_ps(1.0));
                Header::scales([_mm256_mul_ps(_mm256_broadcastss_ps(half(block)), odd); 2])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let points = points_s(block.add(2 + 8 * I), block.add(66 + I));
                signed_avx2(points, read(block.add(74 + 4 * I)), Self::OFFSET)
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let (qs, qh) = (block.add(2 + 16 * I), block.add(66 + 2 * I));
                let points = join(points_s(qs, qh), points_s(qs.add(8), qh.add(1)));
                signed_avx512(points, read(block.add(74 + 8 * I)), Self::OFFSET)
            }
        }
    }
}
