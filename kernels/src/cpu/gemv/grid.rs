//! What the types with codebooks share: signs of magnitudes, and sign bits of which every eighth is a parity.

use super::x86::spread_bits_avx2;
use core::arch::x86_64::*;

/// `offset - m` where the sign bit is set, else `offset + m`.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn signed_avx2(magnitudes: __m256i, signs: u32, offset: i32) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let set = spread_bits_avx2(signs);
        let negated = _mm256_sub_epi8(_mm256_xor_si256(magnitudes, set), set);
        _mm256_add_epi8(negated, _mm256_set1_epi8(offset as i8))
    }
}

/// As [`signed_avx2`].
///
/// # Safety
/// Needs AVX-512 F and BW.
#[inline(always)]
pub(super) unsafe fn signed_avx512(magnitudes: __m512i, signs: u64, offset: i32) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let offset = _mm512_set1_epi8(offset as i8);
        let plus = _mm512_add_epi8(offset, magnitudes);
        _mm512_mask_sub_epi8(plus, signs, offset, magnitudes)
    }
}

/// An eighth bit for every seven in the low bits of each byte, so that the number of ones is even.
#[inline(always)]
pub(super) fn with_parity(sevens: u64) -> u64 {
    // Folding takes bits of the next byte along, but none that reach bit 0.
    let x = sevens ^ sevens >> 4;
    let x = x ^ x >> 2;
    let x = x ^ x >> 1;
    sevens | (x & 0x0101_0101_0101_0101) << 7
}

/// The sign bits of two sub-blocks of 32 from the low 28 bits of two words, seven bits for eight values.
#[inline(always)]
pub(super) fn even_signs(words: u64) -> u64 {
    with_parity(
        words & 0x0000_007f_0000_007f
            | words << 1 & 0x0000_7f00_0000_7f00
            | words << 2 & 0x007f_0000_007f_0000
            | words << 3 & 0x7f00_0000_7f00_0000,
    )
}

/// Reads `W` at any alignment.
///
/// # Safety
/// There must be one at `at`.
#[inline(always)]
pub(super) unsafe fn read<W>(at: *const u8) -> W
where
    W: Copy,
{
    // SAFETY: the caller says so.
    unsafe { at.cast::<W>().read_unaligned() }
}

/// Eight fields of four bits each as numbers.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn nibbles(word: u32) -> __m256 {
    // SAFETY: the caller's.
    unsafe {
        let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        let fields = _mm256_srlv_epi32(_mm256_set1_epi32(word as i32), shifts);
        _mm256_cvtepi32_ps(_mm256_and_si256(fields, _mm256_set1_epi32(15)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::codebook::even_parity;

    #[test]
    fn every_eighth_sign_is_a_parity() {
        for seven in 0..128u64 {
            for at in 0..4 {
                let words =
                    seven << (7 * at) | (127 - seven) << (32 + 7 * at) | 0xa000_0000_5000_0000;
                let signs = even_signs(words);
                let [low, high] =
                    [seven, 127 - seven].map(|seven| u64::from(even_parity(seven as u8)));
                assert_eq!(signs, low << (8 * at) | high << (32 + 8 * at));
            }
        }
    }
}
