//! Registers of `IQ2_XXS`, `IQ2_XS` and `IQ2_S`: eight magnitudes to a point of the codebook, and signs.

cpu_code!(run: IQ2XXS, IQ2XS, IQ2S);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::blocks::codebook::{IQ2_S, IQ2_XS, IQ2_XXS};
    use crate::blocks::{CodeBlock, IQ2S, IQ2XS, IQ2XXS};
    use crate::cpu::gemv::grid::{even_signs, read, signed_avx2, signed_avx512, with_parity};
    use crate::cpu::gemv::run::{Header, Run};
    use crate::cpu::gemv::x86::half;
    use core::arch::x86_64::*;

    /// `d * (s + 1/2) / 4`.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn scale(d: __m256, s: __m256i) -> __m256 {
        // SAFETY: the caller's.
        unsafe {
            let s = _mm256_add_ps(_mm256_cvtepi32_ps(s), _mm256_set1_ps(0.5));
            _mm256_mul_ps(_mm256_mul_ps(d, s), _mm256_set1_ps(0.25))
        }
    }

    /// 16 scales from nibbles, the low one of each byte first.
    ///
    /// # Safety
    /// Needs AVX2, F16C; the `f16` at `block` and 8 bytes at `at`.
    #[inline(always)]
    unsafe fn nibble_scales(block: *const u8, at: *const u8) -> Header {
        // SAFETY: the caller says so.
        unsafe {
            let d = _mm256_broadcastss_ps(half(block));
            let low = _mm_set1_epi8(15);
            let packed = _mm_loadl_epi64(at.cast());
            let s = _mm_unpacklo_epi8(
                _mm_and_si128(packed, low),
                _mm_and_si128(_mm_srli_epi16::<4>(packed), low),
            );
            let high = _mm_unpackhi_epi64(s, s);
            Header::scales([s, high].map(|s| scale(d, _mm256_cvtepu8_epi32(s))))
        }
    }

    /// Four points of eight magnitudes.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    unsafe fn four(points: [u64; 4]) -> __m256i {
        // SAFETY: the caller's.
        unsafe {
            let [a, b, c, d] = points.map(|point| point as i64);
            _mm256_setr_epi64x(a, b, c, d)
        }
    }

    /// Eight points of eight magnitudes.
    ///
    /// # Safety
    /// Needs AVX-512 F.
    #[inline(always)]
    unsafe fn eight(points: [u64; 8]) -> __m512i {
        // SAFETY: the caller's.
        unsafe {
            let [a, b, c, d, e, f, g, h] = points.map(|point| point as i64);
            _mm512_setr_epi64(a, b, c, d, e, f, g, h)
        }
    }

    impl Run for IQ2XXS {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe {
                // The odd words of 64 bytes.
                let [a, b] =
                    [2, 34].map(|at| _mm256_castsi256_ps(_mm256_loadu_si256(block.add(at).cast())));
                let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
                let s = _mm256_srli_epi32::<28>(_mm256_permute4x64_epi64::<0xd8>(odd));
                Header::scales([scale(_mm256_broadcastss_ps(half(block)), s); 2])
            }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let packed: u64 = read(block.add(2 + 8 * I));
                let points = [0, 8, 16, 24].map(|at| IQ2_XXS.grid[(packed >> at & 255) as usize]);
                signed_avx2(four(points), even_signs(packed >> 32) as u32, Self::OFFSET)
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let a: u64 = read(block.add(2 + 16 * I));
                let b: u64 = read(block.add(10 + 16 * I));
                let point = |packed: u64, at: u32| IQ2_XXS.grid[(packed >> at & 255) as usize];
                let points = [
                    point(a, 0),
                    point(a, 8),
                    point(a, 16),
                    point(a, 24),
                    point(b, 0),
                    point(b, 8),
                    point(b, 16),
                    point(b, 24),
                ];
                let signs = even_signs(a >> 32 | b & 0xffff_ffff_0000_0000);
                signed_avx512(eight(points), signs, Self::OFFSET)
            }
        }
    }

    /// The sign bits of eight groups from 16 bytes, seven bits to a group.
    ///
    /// # Safety
    /// Needs SSE2 and 16 bytes.
    #[inline(always)]
    unsafe fn signs_of_16(qs: *const u8) -> u64 {
        // SAFETY: the caller says so.
        unsafe {
            let sevens = _mm_srli_epi16::<9>(_mm_loadu_si128(qs.cast()));
            with_parity(_mm_cvtsi128_si64(_mm_packus_epi16(sevens, sevens)) as u64)
        }
    }

    impl Run for IQ2XS {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe { nibble_scales(block, block.add(66)) }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs: u64 = read(block.add(2 + 8 * I));
                let points = [0, 16, 32, 48].map(|at| IQ2_XS.grid[(qs >> at & 511) as usize]);
                let signs = signs_of_16(block.add(2 + 16 * (I / 2))) >> (32 * (I % 2));
                signed_avx2(four(points), signs as u32, Self::OFFSET)
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs = block.add(2 + 16 * I);
                let (a, b): (u64, u64) = (read(qs), read(qs.add(8)));
                let point = |qs: u64, at: u32| IQ2_XS.grid[(qs >> at & 511) as usize];
                let points = [
                    point(a, 0),
                    point(a, 16),
                    point(a, 32),
                    point(a, 48),
                    point(b, 0),
                    point(b, 16),
                    point(b, 32),
                    point(b, 48),
                ];
                signed_avx512(eight(points), signs_of_16(qs), Self::OFFSET)
            }
        }
    }

    impl Run for IQ2S {
        #[inline(always)]
        unsafe fn header(block: *const u8) -> Header {
            // SAFETY: the fields of a block.
            unsafe { nibble_scales(block, block.add(74)) }
        }

        #[inline(always)]
        unsafe fn codes_avx2<const I: usize>(block: *const u8) -> __m256i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs: u32 = read(block.add(2 + 4 * I));
                let qh = u32::from(*block.add(66 + I)) << 8;
                let points = [0, 1, 2, 3].map(|k| {
                    let point = qs >> (8 * k) & 255 | qh >> (2 * k) & 0x300;
                    IQ2_S.grid[point as usize]
                });
                signed_avx2(four(points), read(block.add(34 + 4 * I)), Self::OFFSET)
            }
        }

        #[inline(always)]
        unsafe fn codes_avx512<const I: usize>(block: *const u8) -> __m512i {
            // SAFETY: the fields of a block.
            unsafe {
                let qs: u64 = read(block.add(2 + 8 * I));
                let qh = u32::from(read::<u16>(block.add(66 + 2 * I))) << 8;
                let points = [0, 1, 2, 3, 4, 5, 6, 7].map(|k| {
                    let point = (qs >> (8 * k)) as u32 & 255 | qh >> (2 * k) & 0x300;
                    IQ2_S.grid[point as usize]
                });
                signed_avx512(eight(points), read(block.add(34 + 8 * I)), Self::OFFSET)
            }
        }
    }
}
