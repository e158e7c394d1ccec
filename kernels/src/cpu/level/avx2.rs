//! Inner loops for AVX2 without VNNI: 8 rows to a register.
//!
//! `maddubs` multiplies unsigned codes by signed activations and adds pairs in 16 bits. On the cores this level is
//! for, integer multiplies issue once a cycle, so the pairs are summed in 16 bits for as many steps as the width of
//! the codes allows before one `madd` widens them.

#![expect(clippy::needless_range_loop, reason = "parallel arrays of registers")]

use super::{CodePanel, GROUP, Kernel, Level, TileOut, TokenGroup, float_rest};
use crate::cpu::gemv::{RowInput, sum_avx2};
use crate::cpu::panel;
use crate::cpu::types::{CpuCode, CpuType};
use core::arch::x86_64::*;

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Avx2;

impl Avx2 {
    /// The one function compiled with these features that everything else is inlined into.
    ///
    /// # Safety
    /// The CPU must have them.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(in crate::cpu) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the features of `Self` are those of this function.
        unsafe { kernel.run::<Self>() }
    }
}

/// Tokens of a tile: 4 sums in 16 or 32 bits and 4 totals leave registers for the weights and constants.
const TOKENS: usize = 4;

impl Level for Avx2 {
    const ROWS: usize = 8;
    const SIGNED_8BIT: bool = true;

    #[inline(always)]
    unsafe fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    unsafe fn widen<T: CpuType>(bytes: &[u8], out: &mut [f32]) {
        debug_assert!(bytes.len() >= T::BYTES * out.len());
        let (whole, rest) = out.split_at_mut(out.len() / 8 * 8);
        for (i, out) in whole.chunks_exact_mut(8).enumerate() {
            // SAFETY: there are bytes for all values.
            unsafe {
                let values = T::widen_avx2(bytes.as_ptr().add(8 * i * T::BYTES));
                _mm256_storeu_ps(out.as_mut_ptr(), values);
            }
        }
        let bytes = bytes[T::BYTES * whole.len()..].chunks_exact(T::BYTES);
        for (out, bytes) in rest.iter_mut().zip(bytes) {
            T::dequantize_block(bytes, std::slice::from_mut(out));
        }
    }

    #[inline(always)]
    unsafe fn float_dots<T: CpuType, const R: usize, const N: usize>(
        rows: [*const u8; R],
        x: [*const f32; N],
        len: usize,
    ) -> [[f32; N]; R] {
        let whole = len / 8 * 8;
        // SAFETY: the caller says that rows and inputs are `len` long.
        unsafe {
            let mut total = [[_mm256_setzero_ps(); N]; R];
            for k in (0..whole).step_by(8) {
                for r in 0..R {
                    let values = T::widen_avx2(rows[r].add(k * T::BYTES));
                    for t in 0..N {
                        let x = _mm256_loadu_ps(x[t].add(k));
                        total[r][t] = _mm256_fmadd_ps(values, x, total[r][t]);
                    }
                }
            }
            let mut out = [[0.0; N]; R];
            for r in 0..R {
                for t in 0..N {
                    out[r][t] = sum_avx2(total[r][t]);
                }
                float_rest::<T, N>(rows[r], &x, whole..len, &mut out[r]);
            }
            out
        }
    }

    #[inline(always)]
    unsafe fn unpack<T: CpuCode>(
        block: &[u8],
        codes: &mut [u8],
        scales: &mut [f32],
        mins: &mut [f32],
    ) {
        // SAFETY: the caller's promises are the callee's.
        unsafe { T::unpack_avx2(block, codes, scales, mins) }
    }

    #[inline(always)]
    unsafe fn scale_codes<T: CpuCode>(codes: &[u8], scale: f32, min: f32, out: &mut [f32]) {
        debug_assert!(codes.len() == out.len() && out.len().is_multiple_of(8));
        // SAFETY: whole registers, by the caller's promise.
        unsafe {
            for (codes, out) in codes.chunks_exact(8).zip(out.chunks_exact_mut(8)) {
                let codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(codes.as_ptr().cast()));
                let codes = _mm256_sub_epi32(codes, _mm256_set1_epi32(T::OFFSET));
                let mut values = _mm256_mul_ps(_mm256_cvtepi32_ps(codes), _mm256_set1_ps(scale));
                if T::HAS_MIN {
                    values = _mm256_sub_ps(values, _mm256_set1_ps(min));
                }
                _mm256_storeu_ps(out.as_mut_ptr(), values);
            }
        }
    }

    #[inline(always)]
    unsafe fn add_dot<T: CpuCode>(
        codes: &[u8; 32],
        x: &[i8; 32],
        scales: [f32; 2],
        total: [f32; 8],
    ) -> [f32; 8] {
        // SAFETY: the arrays are whole registers.
        unsafe {
            let (codes, x) = (
                _mm256_loadu_si256(codes.as_ptr().cast()),
                _mm256_loadu_si256(x.as_ptr().cast()),
            );
            let pairs = if T::CODE_BITS == 8 {
                let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
                _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed))
            } else {
                // The difference fits 16 bits, whatever the two wrap to.
                let offset = _mm256_maddubs_epi16(_mm256_set1_epi8(T::OFFSET as i8), x);
                _mm256_sub_epi16(_mm256_maddubs_epi16(codes, x), offset)
            };
            let dots = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            let scale = _mm256_set_m128(_mm_set1_ps(scales[1]), _mm_set1_ps(scales[0]));
            let mut out = [0.0; 8];
            let sums = _mm256_fmadd_ps(
                _mm256_cvtepi32_ps(dots),
                scale,
                _mm256_loadu_ps(total.as_ptr()),
            );
            _mm256_storeu_ps(out.as_mut_ptr(), sums);
            out
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const u32, from_step: usize, to: *mut u32, to_step: usize) {
        // SAFETY: the caller says that both have 8 rows of 8 words.
        unsafe {
            // Loops, not closures: those would not be inlined into the function that has the features.
            let mut pairs = [[_mm256_setzero_ps(); 2]; 4];
            for i in 0..4 {
                let upper = _mm256_loadu_ps(from.add(2 * i * from_step).cast());
                let lower = _mm256_loadu_ps(from.add((2 * i + 1) * from_step).cast());
                pairs[i] = [
                    _mm256_unpacklo_ps(upper, lower),
                    _mm256_unpackhi_ps(upper, lower),
                ];
            }
            // Column `j` of four rows in the lower half, column `j + 4` in the upper one.
            let mut quads = [[_mm256_setzero_ps(); 4]; 2];
            for i in 0..2 {
                let (a, b) = (pairs[2 * i], pairs[2 * i + 1]);
                quads[i] = [
                    _mm256_shuffle_ps::<0x44>(a[0], b[0]),
                    _mm256_shuffle_ps::<0xee>(a[0], b[0]),
                    _mm256_shuffle_ps::<0x44>(a[1], b[1]),
                    _mm256_shuffle_ps::<0xee>(a[1], b[1]),
                ];
            }
            let [first, last] = quads;
            for j in 0..4 {
                let low = _mm256_permute2f128_ps::<0x20>(first[j], last[j]);
                let high = _mm256_permute2f128_ps::<0x31>(first[j], last[j]);
                _mm256_storeu_ps(to.add(j * to_step).cast(), low);
                _mm256_storeu_ps(to.add((j + 4) * to_step).cast(), high);
            }
        }
    }

    #[inline(always)]
    unsafe fn code_tile<T: CpuCode>(
        panel: CodePanel<'_>,
        group: TokenGroup<'_>,
        tokens: usize,
        out: &mut TileOut,
    ) {
        // Steps whose pairs of products, each below 127 times the largest code, stay inside 16 bits.
        let largest = (1 << T::CODE_BITS) - 1;
        let steps = (i16::MAX as usize / (2 * 127 * largest)).min(T::SUB_LEN / 4);
        // SAFETY: the caller's promises are the callee's.
        unsafe {
            match (T::SUB_LEN, T::HAS_MIN, steps) {
                (16, false, 0) => tiles::<16, false, 0>(panel, group, tokens, out),
                (16, false, 1) => tiles::<16, false, 1>(panel, group, tokens, out),
                (16, false, 2) => tiles::<16, false, 2>(panel, group, tokens, out),
                (16, false, _) => tiles::<16, false, 4>(panel, group, tokens, out),
                (16, true, 4..) => tiles::<16, true, 4>(panel, group, tokens, out),
                (16, true, _) => tiles::<16, true, 1>(panel, group, tokens, out),
                (_, false, 0) => tiles::<32, false, 0>(panel, group, tokens, out),
                (_, false, 1) => tiles::<32, false, 1>(panel, group, tokens, out),
                (_, false, 2) => tiles::<32, false, 2>(panel, group, tokens, out),
                (_, false, 3..=7) => tiles::<32, false, 4>(panel, group, tokens, out),
                (_, false, _) => tiles::<32, false, 8>(panel, group, tokens, out),
                (_, true, 8..) => tiles::<32, true, 8>(panel, group, tokens, out),
                (_, true, 4..) => tiles::<32, true, 4>(panel, group, tokens, out),
                (_, true, _) => tiles::<32, true, 1>(panel, group, tokens, out),
            }
        }
    }

    #[inline(always)]
    unsafe fn float_tile<const N: usize>(
        panel: *const f32,
        x: *const f32,
        depth: usize,
        out: &mut [[f32; panel::ROWS]; N],
    ) {
        // SAFETY: the caller's promises are the callees'.
        unsafe {
            if N.is_multiple_of(6) {
                float_tiles::<6>(panel, x, depth, out);
            } else {
                float_tiles::<4>(panel, x, depth, out);
            }
        }
    }

    #[inline(always)]
    unsafe fn row_dot<T: CpuCode, const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
        // SAFETY: the caller's promises are the callee's.
        unsafe { T::dot_avx2(row, x) }
    }
}

/// The products with as many rows as `out` has, a multiple of `N`, by tiles of 16 weight rows and `N`. One function for
/// all types.
///
/// # Safety
/// As [`Level::float_tile`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
unsafe fn float_tiles<const N: usize>(
    panel: *const f32,
    x: *const f32,
    depth: usize,
    out: &mut [[f32; panel::ROWS]],
) {
    for first in (0..panel::ROWS).step_by(16) {
        for (part, out) in out.as_chunks_mut::<N>().0.iter_mut().enumerate() {
            // SAFETY: the caller says that panel and rows are `depth` long.
            unsafe {
                let x = x.add(part * N * panel::STEP);
                let mut total = [[_mm256_setzero_ps(); 2]; N];
                for k in 0..depth {
                    let weights = panel.add(k * panel::ROWS + first);
                    let (low, high) = (_mm256_loadu_ps(weights), _mm256_loadu_ps(weights.add(8)));
                    for t in 0..N {
                        let value = _mm256_broadcast_ss(&*x.add(t * panel::STEP + k));
                        total[t][0] = _mm256_fmadd_ps(low, value, total[t][0]);
                        total[t][1] = _mm256_fmadd_ps(high, value, total[t][1]);
                    }
                }
                for t in 0..N {
                    let out = out[t][first..][..16].as_mut_ptr();
                    _mm256_storeu_ps(out, total[t][0]);
                    _mm256_storeu_ps(out.add(8), total[t][1]);
                }
            }
        }
    }
}

/// Where a tile stands in its panel and group.
struct Cursor {
    codes: *const u8,
    scales: *const f32,
    mins: *const f32,
    x: *const i8,
    x_scales: *const f32,
    sums: *const u32,
}

impl Cursor {
    /// # Safety
    /// `first` must be below `GROUP`.
    #[inline(always)]
    unsafe fn new(panel: CodePanel<'_>, group: TokenGroup<'_>, first: usize) -> Self {
        // SAFETY: each slice has at least one group, unless there are no columns and nothing is read.
        unsafe {
            Self {
                codes: panel.codes.as_ptr(),
                scales: panel.scales.as_ptr(),
                mins: panel.mins.as_ptr(),
                x: group.codes.as_ptr().add(first * 32),
                x_scales: group.scales.as_ptr().add(first),
                sums: group.sums.as_ptr().add(first),
            }
        }
    }

    /// Adds the scaled integer sums of one sub-block to the totals and steps to the next sub-block.
    ///
    /// # Safety
    /// The cursor must be inside its slices.
    #[inline(always)]
    unsafe fn scale<const HAS_MIN: bool>(
        &mut self,
        dots: &[__m256i; TOKENS],
        total: &mut [__m256; TOKENS],
    ) {
        const ROWS: usize = Avx2::ROWS;
        // SAFETY: the caller says so.
        unsafe {
            let row_scales = _mm256_loadu_ps(self.scales);
            self.scales = self.scales.add(ROWS);
            for t in 0..TOKENS {
                let scale = _mm256_mul_ps(row_scales, _mm256_broadcast_ss(&*self.x_scales.add(t)));
                total[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), scale, total[t]);
            }
            if HAS_MIN {
                let row_mins = _mm256_loadu_ps(self.mins);
                self.mins = self.mins.add(ROWS);
                for t in 0..TOKENS {
                    let sum = _mm256_broadcast_ss(&*self.sums.add(t).cast());
                    total[t] = _mm256_fnmadd_ps(row_mins, sum, total[t]);
                }
            }
            self.sums = self.sums.add(GROUP);
        }
    }

    /// Four values of token `t`, at `at` of the block, in every lane.
    ///
    /// # Safety
    /// The cursor must be inside its slices.
    #[inline(always)]
    unsafe fn four(&self, t: usize, at: usize) -> __m256i {
        // SAFETY: the caller says so.
        unsafe { _mm256_set1_epi32(self.x.add(t * 32 + at).cast::<i32>().read_unaligned()) }
    }

    /// Steps to the next 32 activations.
    ///
    /// # Safety
    /// The cursor must be inside its slices.
    #[inline(always)]
    unsafe fn next_block(&mut self) {
        // SAFETY: at most one past the end.
        unsafe {
            self.x = self.x.add(32 * GROUP);
            self.x_scales = self.x_scales.add(GROUP);
        }
    }
}

/// One function for all types of these sub-blocks and as many steps in 16 bits; no steps are for 8-bit codes.
///
/// # Safety
/// As [`Level::code_tile`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
unsafe fn tiles<const SUB_LEN: usize, const HAS_MIN: bool, const STEPS: usize>(
    panel: CodePanel<'_>,
    group: TokenGroup<'_>,
    tokens: usize,
    out: &mut TileOut,
) {
    for first in (0..tokens).step_by(TOKENS) {
        // SAFETY: the caller's promises are the callee's; a group has 8 tokens whatever their use.
        unsafe {
            if STEPS == 0 {
                tile_signed::<SUB_LEN, HAS_MIN>(panel, group, first, out);
            } else {
                tile::<SUB_LEN, HAS_MIN, STEPS>(panel, group, first, out);
            }
        }
    }
}

/// The product of one panel with `TOKENS` rows of a group from `first`, for codes of up to 7 bits.
///
/// # Safety
/// As [`Level::code_tile`]; `first + TOKENS` must not exceed `GROUP`.
#[inline(always)]
unsafe fn tile<const SUB_LEN: usize, const HAS_MIN: bool, const STEPS: usize>(
    panel: CodePanel<'_>,
    group: TokenGroup<'_>,
    first: usize,
    out: &mut TileOut,
) {
    const ROWS: usize = Avx2::ROWS;
    let subs = 32 / SUB_LEN;
    let blocks = group.scales.len() / GROUP;
    // SAFETY: the cursor advances by the layout of the slices, `blocks` times.
    unsafe {
        let mut at = Cursor::new(panel, group, first);
        let ones = _mm256_set1_epi16(1);
        let mut total = [_mm256_setzero_ps(); TOKENS];
        for _ in 0..blocks {
            for sub in 0..subs {
                let mut dots = [_mm256_setzero_si256(); TOKENS];
                for run in 0..SUB_LEN / 4 / STEPS {
                    let mut pairs = [_mm256_setzero_si256(); TOKENS];
                    for step in 0..STEPS {
                        let weights = _mm256_loadu_si256(at.codes.cast());
                        at.codes = at.codes.add(4 * ROWS);
                        let column = sub * SUB_LEN + (run * STEPS + step) * 4;
                        for t in 0..TOKENS {
                            let products = _mm256_maddubs_epi16(weights, at.four(t, column));
                            pairs[t] = if step == 0 {
                                products
                            } else {
                                _mm256_add_epi16(pairs[t], products)
                            };
                        }
                    }
                    for t in 0..TOKENS {
                        dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(pairs[t], ones));
                    }
                }
                // Last, because registers are short until here.
                if !HAS_MIN {
                    for t in 0..TOKENS {
                        dots[t] =
                            _mm256_add_epi32(dots[t], _mm256_set1_epi32(*at.sums.add(t) as i32));
                    }
                }
                at.scale::<HAS_MIN>(&dots, &mut total);
            }
            at.next_block();
        }
        for t in 0..TOKENS {
            _mm256_storeu_ps(out.as_mut_ptr().add((first + t) * ROWS), total[t]);
        }
    }
}

/// As [`tile`] for 8-bit codes, which the panel holds as signed numbers: the sign moves to the activation, because
/// `maddubs` takes one unsigned side, and a single pair already fills 16 bits.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn tile_signed<const SUB_LEN: usize, const HAS_MIN: bool>(
    panel: CodePanel<'_>,
    group: TokenGroup<'_>,
    first: usize,
    out: &mut TileOut,
) {
    const ROWS: usize = Avx2::ROWS;
    let subs = 32 / SUB_LEN;
    let blocks = group.scales.len() / GROUP;
    // SAFETY: the cursor advances by the layout of the slices, `blocks` times.
    unsafe {
        let mut at = Cursor::new(panel, group, first);
        let ones = _mm256_set1_epi16(1);
        let mut total = [_mm256_setzero_ps(); TOKENS];
        for _ in 0..blocks {
            for sub in 0..subs {
                let mut dots = [_mm256_setzero_si256(); TOKENS];
                for step in 0..SUB_LEN / 4 {
                    let weights = _mm256_loadu_si256(at.codes.cast());
                    at.codes = at.codes.add(4 * ROWS);
                    let sizes = _mm256_abs_epi8(weights);
                    for t in 0..TOKENS {
                        let x = _mm256_sign_epi8(at.four(t, sub * SUB_LEN + step * 4), weights);
                        let products = _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, x), ones);
                        dots[t] = _mm256_add_epi32(dots[t], products);
                    }
                }
                at.scale::<HAS_MIN>(&dots, &mut total);
            }
            at.next_block();
        }
        for t in 0..TOKENS {
            _mm256_storeu_ps(out.as_mut_ptr().add((first + t) * ROWS), total[t]);
        }
    }
}
