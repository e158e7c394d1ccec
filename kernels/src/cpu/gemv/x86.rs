//! What the row products share on x86: horizontal sums, dot products of codes, small reads.
//!
//! All functions need the features of the level in their name, and are `unsafe` for that.

use core::arch::x86_64::*;

/// The sum of 8 lanes.
///
/// # Safety
/// Needs AVX.
#[inline(always)]
pub(in crate::cpu) unsafe fn sum_avx2(v: __m256) -> f32 {
    // SAFETY: the caller's.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
    }
}

/// Dot products of 4 neighbours each, of codes below 128 and signed numbers.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn dot_avx2(codes: __m256i, x: __m256i) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)) }
}

/// Dot products of 4 neighbours each, of codes below 128 and 32 activations; or of signed numbers, less 128, if the
/// codes are those plus 128.
///
/// # Safety
/// Needs AVX2 and 32 activations.
#[inline(always)]
pub(super) unsafe fn dot_codes_avx2(codes: __m256i, x: *const i8, signed: bool) -> __m256 {
    // SAFETY: the caller says so.
    unsafe {
        let x = _mm256_loadu_si256(x.cast());
        _mm256_cvtepi32_ps(if signed {
            let values = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
            dot_avx2(_mm256_abs_epi8(values), _mm256_sign_epi8(x, values))
        } else {
            dot_avx2(codes, x)
        })
    }
}

/// The `f16` at `at`.
///
/// # Safety
/// Needs F16C and two bytes.
#[inline(always)]
pub(super) unsafe fn half(at: *const u8) -> __m128 {
    // SAFETY: the caller says so.
    unsafe {
        let bits = at.cast::<u16>().read_unaligned();
        _mm_cvtph_ps(_mm_cvtsi32_si128(bits.into()))
    }
}

/// Two registers as one.
///
/// # Safety
/// Needs AVX-512 F.
#[inline(always)]
pub(super) unsafe fn join(low: __m256i, high: __m256i) -> __m512i {
    // SAFETY: the caller says so.
    unsafe { _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high) }
}

/// Bytes of `codes` from a table of 16, by indices below 16.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn look_up_avx2(table: &[u8; 16], indices: __m256i) -> __m256i {
    // SAFETY: the caller's, and the table is a register.
    unsafe {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        _mm256_shuffle_epi8(table, indices)
    }
}

/// As [`look_up_avx2`].
///
/// # Safety
/// Needs AVX-512 F and BW.
#[inline(always)]
pub(super) unsafe fn look_up_avx512(table: &[u8; 16], indices: __m512i) -> __m512i {
    // SAFETY: the caller's, and the table is a register.
    unsafe {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        _mm512_shuffle_epi8(table, indices)
    }
}

/// `0xff` in every byte whose bit of 32 is set.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn spread_bits_avx2(bits: u32) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        // Byte `i` of the 32 bits to bytes `8 i..8 i + 8`, then bit `j` tested in byte `8 i + j`.
        let bytes = _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        );
        let single = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let set = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), bytes);
        _mm256_cmpeq_epi8(_mm256_and_si256(set, single), single)
    }
}
