//! Inner loops for AVX-512 with VNNI: 16 rows to a register, four products to a lane in one instruction.

#![expect(clippy::needless_range_loop, reason = "parallel arrays of registers")]

use super::{CodePanel, GROUP, Kernel, Level, TileOut, TokenGroup, float_rest};
use crate::cpu::gemv::RowInput;
use crate::cpu::panel;
use crate::cpu::types::{CpuCode, CpuType};
use core::arch::x86_64::*;

/// AVX-512 F, BW, VL and VNNI, and AVX2, FMA, F16C.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Avx512;

impl Avx512 {
    /// The one function compiled with these features that everything else is inlined into.
    ///
    /// # Safety
    /// The CPU must have them.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(in crate::cpu) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the features of `Self` are those of this function.
        unsafe { kernel.run::<Self>() }
    }
}

impl Level for Avx512 {
    const ROWS: usize = 16;
    const SIGNED_8BIT: bool = false;

    #[inline(always)]
    unsafe fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    unsafe fn widen<T: CpuType>(bytes: &[u8], out: &mut [f32]) {
        debug_assert!(bytes.len() >= T::BYTES * out.len());
        let (whole, rest) = out.split_at_mut(out.len() / 16 * 16);
        for (i, out) in whole.chunks_exact_mut(16).enumerate() {
            // SAFETY: there are bytes for all values.
            unsafe {
                let values = T::widen_avx512(bytes.as_ptr().add(16 * i * T::BYTES));
                _mm512_storeu_ps(out.as_mut_ptr(), values);
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
        let (pairs, whole) = (len / 32 * 32, len / 16 * 16);
        // SAFETY: the caller says that rows and inputs are `len` long.
        unsafe {
            // Two sums in turn: one would wait for itself. Loops, not closures: those would not be inlined into the
            // function that has the features.
            let mut total = [[[_mm512_setzero_ps(); 2]; N]; R];
            for first in (0..pairs).step_by(32) {
                for chain in 0..2 {
                    let k = first + 16 * chain;
                    for r in 0..R {
                        let values = T::widen_avx512(rows[r].add(k * T::BYTES));
                        for t in 0..N {
                            let x = _mm512_loadu_ps(x[t].add(k));
                            total[r][t][chain] = _mm512_fmadd_ps(values, x, total[r][t][chain]);
                        }
                    }
                }
            }
            if pairs < whole {
                for r in 0..R {
                    let values = T::widen_avx512(rows[r].add(pairs * T::BYTES));
                    for t in 0..N {
                        let x = _mm512_loadu_ps(x[t].add(pairs));
                        total[r][t][0] = _mm512_fmadd_ps(values, x, total[r][t][0]);
                    }
                }
            }
            let mut out = [[0.0; N]; R];
            for r in 0..R {
                for t in 0..N {
                    let [even, odd] = total[r][t];
                    out[r][t] = _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
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
        debug_assert!(codes.len() == out.len() && out.len().is_multiple_of(16));
        // SAFETY: whole registers, by the caller's promise.
        unsafe {
            for (codes, out) in codes.chunks_exact(16).zip(out.chunks_exact_mut(16)) {
                let codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(codes.as_ptr().cast()));
                let codes = _mm512_sub_epi32(codes, _mm512_set1_epi32(T::OFFSET));
                let mut values = _mm512_mul_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(scale));
                if T::HAS_MIN {
                    values = _mm512_sub_ps(values, _mm512_set1_ps(min));
                }
                _mm512_storeu_ps(out.as_mut_ptr(), values);
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
            let offset = _mm256_set1_epi8(T::OFFSET as u8 as i8);
            let zero = _mm256_setzero_si256();
            let dots = _mm256_sub_epi32(
                _mm256_dpbusd_epi32(zero, codes, x),
                _mm256_dpbusd_epi32(zero, offset, x),
            );
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
        // SAFETY: this level's features include those of the callee.
        unsafe { super::Avx2::transpose(from, from_step, to, to_step) }
    }

    #[inline(always)]
    unsafe fn code_tile<T: CpuCode>(
        panel: CodePanel<'_>,
        group: TokenGroup<'_>,
        tokens: usize,
        out: &mut TileOut,
    ) {
        // SAFETY: the caller's promises are the callee's; a group has 8 tokens whatever their use.
        unsafe {
            match (T::SUB_LEN, T::HAS_MIN) {
                (16, false) => tiles::<16, false>(panel, group, tokens, out),
                (16, true) => tiles::<16, true>(panel, group, tokens, out),
                (_, false) => tiles::<32, false>(panel, group, tokens, out),
                (_, true) => tiles::<32, true>(panel, group, tokens, out),
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
        // SAFETY: the caller's promises are the callee's.
        unsafe { float_tile(panel, x, depth, out) }
    }

    #[inline(always)]
    unsafe fn row_dot<T: CpuCode, const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
        // SAFETY: the caller's promises are the callee's.
        unsafe { T::dot_avx512(row, x) }
    }
}

/// One function for all types.
///
/// # Safety
/// As [`Level::float_tile`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline(never)]
unsafe fn float_tile<const N: usize>(
    panel: *const f32,
    x: *const f32,
    depth: usize,
    out: &mut [[f32; panel::ROWS]; N],
) {
    // SAFETY: the caller says that panel and rows are `depth` long.
    unsafe {
        let mut total = [[_mm512_setzero_ps(); 2]; N];
        for k in 0..depth {
            let weights = panel.add(k * panel::ROWS);
            let (low, high) = (_mm512_loadu_ps(weights), _mm512_loadu_ps(weights.add(16)));
            for t in 0..N {
                let value = _mm512_set1_ps(*x.add(t * panel::STEP + k));
                total[t][0] = _mm512_fmadd_ps(low, value, total[t][0]);
                total[t][1] = _mm512_fmadd_ps(high, value, total[t][1]);
            }
        }
        for t in 0..N {
            _mm512_storeu_ps(out[t].as_mut_ptr(), total[t][0]);
            _mm512_storeu_ps(out[t].as_mut_ptr().add(16), total[t][1]);
        }
    }
}

/// One function for all types of these sub-blocks.
///
/// # Safety
/// As [`Level::code_tile`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline(never)]
unsafe fn tiles<const SUB_LEN: usize, const HAS_MIN: bool>(
    panel: CodePanel<'_>,
    group: TokenGroup<'_>,
    tokens: usize,
    out: &mut TileOut,
) {
    // SAFETY: the caller's promises are the callee's; a group has 8 tokens whatever their use.
    unsafe {
        if tokens > 4 {
            tile::<SUB_LEN, HAS_MIN, 8>(panel, group, out);
        } else {
            tile::<SUB_LEN, HAS_MIN, 4>(panel, group, out);
        }
    }
}

/// The product of one panel with the first `N` rows of a group.
///
/// Per 16 or 32 columns the integer sums of a row and token start from what the offset of the codes contributes, and
/// end in one fused multiply-add with the product of both scales.
///
/// # Safety
/// As [`Level::code_tile`].
#[inline(always)]
unsafe fn tile<const SUB_LEN: usize, const HAS_MIN: bool, const N: usize>(
    panel: CodePanel<'_>,
    group: TokenGroup<'_>,
    out: &mut TileOut,
) {
    const ROWS: usize = Avx512::ROWS;
    let subs = 32 / SUB_LEN;
    let blocks = group.scales.len() / GROUP;
    debug_assert_eq!(panel.codes.len(), blocks * 32 * ROWS);
    debug_assert_eq!(panel.scales.len(), blocks * subs * ROWS);
    debug_assert_eq!(group.codes.len(), blocks * 32 * GROUP);
    debug_assert_eq!(group.sums.len(), blocks * subs * GROUP);
    // SAFETY: every access is inside the lengths above.
    unsafe {
        let (mut codes, mut scales, mut mins) = (
            panel.codes.as_ptr(),
            panel.scales.as_ptr(),
            panel.mins.as_ptr(),
        );
        let (mut x, mut x_scales, mut sums) = (
            group.codes.as_ptr(),
            group.scales.as_ptr(),
            group.sums.as_ptr(),
        );
        let mut total = [_mm512_setzero_ps(); N];
        for _ in 0..blocks {
            for sub in 0..subs {
                let mut dots = [_mm512_setzero_si512(); N];
                if !HAS_MIN {
                    for t in 0..N {
                        dots[t] = _mm512_set1_epi32(*sums.add(t) as i32);
                    }
                }
                for step in 0..SUB_LEN / 4 {
                    let weights = _mm512_loadu_si512(codes.cast());
                    codes = codes.add(4 * ROWS);
                    for t in 0..N {
                        let four = x.add(t * 32 + sub * SUB_LEN + step * 4).cast::<i32>();
                        dots[t] = _mm512_dpbusd_epi32(
                            dots[t],
                            weights,
                            _mm512_set1_epi32(four.read_unaligned()),
                        );
                    }
                }
                let row_scales = _mm512_loadu_ps(scales);
                scales = scales.add(ROWS);
                for t in 0..N {
                    let scale = _mm512_mul_ps(row_scales, _mm512_set1_ps(*x_scales.add(t)));
                    total[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), scale, total[t]);
                }
                if HAS_MIN {
                    let row_mins = _mm512_loadu_ps(mins);
                    mins = mins.add(ROWS);
                    for t in 0..N {
                        let sum = _mm512_set1_ps(f32::from_bits(*sums.add(t)));
                        total[t] = _mm512_fnmadd_ps(row_mins, sum, total[t]);
                    }
                }
                sums = sums.add(GROUP);
            }
            x = x.add(32 * GROUP);
            x_scales = x_scales.add(GROUP);
        }
        for t in 0..N {
            _mm512_storeu_ps(out.as_mut_ptr().add(t * ROWS), total[t]);
        }
    }
}
