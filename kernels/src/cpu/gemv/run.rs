//! Row products and unpacking of types whose blocks make runs of 256 values: one block of most types, a few of others.
//!
//! Each type says what its registers of codes and scales are; the loops are the same for all. What the offset of the
//! codes, or a min, contributes is taken off at the end, by the sums of activations times the scales or mins; 8-bit
//! codes are made signed instead, or start from what the offset contributes, because they would drown the rest.

use super::x86::{dot_codes_avx2, join, sum_avx2};
use super::{RowInput, dot_unpacked};
use crate::blocks::CodeBlock;
use crate::cpu::level::{Avx2, Avx512};
use crate::cpu::types::CpuCode;
use core::arch::x86_64::*;

/// Values of a run.
pub(super) const RUN_LEN: usize = 256;

/// The scales of a run, and its mins where the type has them: 16 for sub-blocks of 16 values; for sub-blocks of 32
/// the first 8.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub scales: [__m256; 2],
    pub mins: [__m256; 2],
}

impl Header {
    /// Scales without mins.
    ///
    /// # Safety
    /// Needs AVX.
    #[inline(always)]
    pub unsafe fn scales(scales: [__m256; 2]) -> Self {
        // SAFETY: the caller's.
        let mins = unsafe { [_mm256_setzero_ps(); 2] };
        Self { scales, mins }
    }

    /// The same scale everywhere.
    ///
    /// # Safety
    /// Needs AVX.
    #[inline(always)]
    pub unsafe fn one(scale: __m128) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::scales([_mm256_broadcastss_ps(scale); 2]) }
    }
}

/// How the values of a type lie in its blocks. A run is `256 / LEN` blocks.
pub(super) trait Run: CodeBlock {
    /// The scales and mins of a run.
    ///
    /// # Safety
    /// Needs AVX2, FMA and F16C; `run` must be whole.
    unsafe fn header(run: *const u8) -> Header;

    /// The codes of values `32 I..` of a run, in order. Reads nothing but the block they are in.
    ///
    /// # Safety
    /// Needs AVX2; that block must be whole.
    unsafe fn codes_avx2<const I: usize>(run: *const u8) -> __m256i;

    /// The codes of values `64 I..` of a run, in order.
    ///
    /// # Safety
    /// Needs AVX-512 F, BW and VL; `run` must be whole.
    unsafe fn codes_avx512<const I: usize>(run: *const u8) -> __m512i;
}

/// The body once for each number, as a constant: what depends on it is worked out by the compiler.
macro_rules! unrolled {
    ($i:ident in $($n:literal)* => $body:block) => {
        $({
            const $i: usize = $n;
            $body
        })*
    };
}

/// The codes, scales and mins of one block.
///
/// # Safety
/// As [`CpuCode::unpack_avx2`].
#[inline(always)]
pub(super) unsafe fn unpack_avx2<T: Run>(
    block: &[u8],
    codes: &mut [u8],
    scales: &mut [f32],
    mins: &mut [f32],
) {
    // SAFETY: the caller says that the slices are long enough.
    unsafe {
        let from = block.as_ptr();
        if T::LEN == RUN_LEN {
            let header = T::header(from);
            _mm256_storeu_ps(scales.as_mut_ptr(), header.scales[0]);
            if T::SUB_LEN == 16 {
                _mm256_storeu_ps(scales.as_mut_ptr().add(8), header.scales[1]);
            }
            if T::HAS_MIN {
                _mm256_storeu_ps(mins.as_mut_ptr(), header.mins[0]);
                if T::SUB_LEN == 16 {
                    _mm256_storeu_ps(mins.as_mut_ptr().add(8), header.mins[1]);
                }
            }
            unrolled!(I in 0 1 2 3 4 5 6 7 => {
                let part = T::codes_avx2::<I>(from);
                _mm256_storeu_si256(codes.as_mut_ptr().add(32 * I).cast(), part);
            });
        } else {
            T::unpack_block(block, codes, scales, mins);
        }
    }
}

/// Registers that sums alternate between: one would wait for itself, unless there are several activation rows.
const fn registers(rows: usize) -> usize {
    if rows < 4 { 2 } else { 1 }
}

/// Row products.
///
/// # Safety
/// As [`CpuCode::dot_avx2`].
#[inline(always)]
pub(super) unsafe fn dot_avx2<T: Run + CpuCode, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
) -> [f32; N] {
    let (bytes, runs) = (RUN_LEN / T::LEN * T::BYTES, x[0].len / RUN_LEN);
    // SAFETY: run `b` of the row and values `256 b..` of each input exist for all `b` below the count.
    unsafe {
        let mut total = [[_mm256_setzero_ps(); 2]; N];
        let mut total_sum = [_mm256_setzero_ps(); N];
        for b in 0..runs {
            let run = row.as_ptr().add(b * bytes);
            let header = T::header(run);
            // Through memory: a broadcast from there costs nothing beyond its load.
            let mut scales = [0.0f32; 16];
            _mm256_storeu_ps(scales.as_mut_ptr(), header.scales[0]);
            let mut both = [[0.0f32; 8]; N];
            if T::SUB_LEN == 16 {
                _mm256_storeu_ps(scales.as_mut_ptr().add(8), header.scales[1]);
            } else {
                for t in 0..N {
                    let x_scales = _mm256_loadu_ps(x[t].scales.as_ptr().add(8 * b));
                    _mm256_storeu_ps(
                        both[t].as_mut_ptr(),
                        _mm256_mul_ps(header.scales[0], x_scales),
                    );
                }
            }
            if T::CODE_BITS < 8 {
                let of_sums = if T::HAS_MIN {
                    header.mins
                } else {
                    header.scales
                };
                for t in 0..N {
                    let to = &mut total_sum[t];
                    if T::SUB_LEN == 16 {
                        let sums = x[t].sums16.as_ptr().add(16 * b);
                        *to = _mm256_fmadd_ps(of_sums[0], _mm256_loadu_ps(sums), *to);
                        *to = _mm256_fmadd_ps(of_sums[1], _mm256_loadu_ps(sums.add(8)), *to);
                    } else {
                        let sums = _mm256_loadu_ps(x[t].sums.as_ptr().add(8 * b));
                        *to = _mm256_fmadd_ps(of_sums[0], sums, *to);
                    }
                }
            }
            unrolled!(I in 0 1 2 3 4 5 6 7 => {
                let codes = T::codes_avx2::<I>(run);
                // Each scale of a sub-block of 16 covers 4 lanes.
                let pair = _mm256_blend_ps::<0xf0>(
                    _mm256_broadcast_ss(&scales[2 * I]),
                    _mm256_broadcast_ss(&scales[2 * I + 1]),
                );
                for t in 0..N {
                    let dots = dot_codes_avx2(codes, x[t].codes.as_ptr().add(RUN_LEN * b + 32 * I), T::CODE_BITS == 8);
                    let scale = if T::SUB_LEN == 16 {
                        let x_scale = _mm256_broadcast_ss(&*x[t].scales.as_ptr().add(8 * b + I));
                        _mm256_mul_ps(pair, x_scale)
                    } else {
                        _mm256_broadcast_ss(&both[t][I])
                    };
                    let to = &mut total[t][I % registers(N)];
                    *to = _mm256_fmadd_ps(dots, scale, *to);
                }
            });
        }
        let mut out = [0.0; N];
        for t in 0..N {
            let offset = if T::HAS_MIN { 1 } else { T::OFFSET };
            let offset = _mm256_set1_ps(offset as f32);
            let both = _mm256_add_ps(total[t][0], total[t][1]);
            out[t] = sum_avx2(_mm256_fnmadd_ps(offset, total_sum[t], both));
        }
        add_rest::<T, Avx2, N>(row, x, &mut out);
        out
    }
}

/// Row products.
///
/// # Safety
/// As [`CpuCode::dot_avx512`].
#[inline(always)]
pub(super) unsafe fn dot_avx512<T: Run + CpuCode, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
) -> [f32; N] {
    let (bytes, runs) = (RUN_LEN / T::LEN * T::BYTES, x[0].len / RUN_LEN);
    // SAFETY: run `b` of the row and values `256 b..` of each input exist for all `b` below the count.
    unsafe {
        let mut total = [[_mm512_setzero_ps(); 2]; N];
        let mut total_sum = [_mm512_setzero_ps(); N];
        let twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        for b in 0..runs {
            let run = row.as_ptr().add(b * bytes);
            let header = T::header(run);
            let wide = |parts: [__m256; 2]| {
                let [low, high] = [parts[0], parts[1]].map(|part| _mm256_castps_si256(part));
                _mm512_castsi512_ps(join(low, high))
            };
            let mut both = [_mm512_setzero_ps(); N];
            for t in 0..N {
                let x_scales = _mm256_loadu_ps(x[t].scales.as_ptr().add(8 * b));
                both[t] = if T::SUB_LEN == 16 {
                    let x_scales = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(x_scales));
                    _mm512_mul_ps(wide(header.scales), x_scales)
                } else {
                    _mm512_castps256_ps512(_mm256_mul_ps(header.scales[0], x_scales))
                };
                if T::CODE_BITS < 8 {
                    let of_sums = if T::HAS_MIN {
                        header.mins
                    } else {
                        header.scales
                    };
                    if T::SUB_LEN == 16 {
                        let sums = _mm512_loadu_ps(x[t].sums16.as_ptr().add(16 * b));
                        total_sum[t] = _mm512_fmadd_ps(wide(of_sums), sums, total_sum[t]);
                    } else {
                        let low = _mm512_castps512_ps256(total_sum[t]);
                        let sums = _mm256_loadu_ps(x[t].sums.as_ptr().add(8 * b));
                        let low = _mm256_fmadd_ps(of_sums[0], sums, low);
                        total_sum[t] = _mm512_zextps256_ps512(low);
                    }
                }
            }
            unrolled!(I in 0 1 2 3 => {
                let codes = T::codes_avx512::<I>(run);
                // Which scale each lane of four codes has.
                let lanes = if T::SUB_LEN == 16 {
                    let first = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
                    _mm512_add_epi32(first, _mm512_set1_epi32(4 * I as i32))
                } else {
                    let first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
                    _mm512_add_epi32(first, _mm512_set1_epi32(2 * I as i32))
                };
                for t in 0..N {
                    let at = RUN_LEN * b + 64 * I;
                    let x_codes = _mm512_loadu_si512(x[t].codes.as_ptr().add(at).cast());
                    let start = if T::CODE_BITS == 8 {
                        _mm512_loadu_si512(x[t].lanes.as_ptr().add(at / 4).cast())
                    } else {
                        _mm512_setzero_si512()
                    };
                    let dots = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, codes, x_codes));
                    let scale = _mm512_permutexvar_ps(lanes, both[t]);
                    let to = &mut total[t][I % registers(N)];
                    *to = _mm512_fmadd_ps(dots, scale, *to);
                }
            });
        }
        let mut out = [0.0; N];
        for t in 0..N {
            let offset = if T::HAS_MIN { 1 } else { T::OFFSET };
            let offset = _mm512_set1_ps(offset as f32);
            let both = _mm512_add_ps(total[t][0], total[t][1]);
            out[t] = _mm512_reduce_add_ps(_mm512_fnmadd_ps(offset, total_sum[t], both));
        }
        add_rest::<T, Avx512, N>(row, x, &mut out);
        out
    }
}

/// Adds the products of the blocks after the last whole run, where a run is several.
///
/// # Safety
/// The CPU must have the features of `L`; `row` must hold `x[_].len / LEN` blocks.
#[inline(always)]
unsafe fn add_rest<T: CpuCode, L: crate::cpu::level::Level, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
    out: &mut [f32; N],
) {
    let start = x[0].len / RUN_LEN * RUN_LEN;
    if T::LEN < RUN_LEN && start < x[0].len {
        let rest: [RowInput<'_>; N] = std::array::from_fn(|t| x[t].from(start));
        // SAFETY: the caller's; as many blocks as values are left.
        let dots = unsafe { dot_unpacked::<T, L, N>(&row[start / T::LEN * T::BYTES..], &rest) };
        for (out, dot) in out.iter_mut().zip(dots) {
            *out += dot;
        }
    }
}
