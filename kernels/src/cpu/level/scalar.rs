//! Portable inner loops: the reference for the other levels.

use super::{CodePanel, GROUP, Level, TileOut, TokenGroup, float_rest};
use crate::cpu::gemv::{RowInput, dot_unpacked};
use crate::cpu::panel;
use crate::cpu::types::{CpuCode, CpuType};

/// The portable level.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Scalar;

impl Level for Scalar {
    const ROWS: usize = 8;
    const SIGNED_8BIT: bool = false;

    #[inline(always)]
    unsafe fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    #[inline(always)]
    unsafe fn widen<T: CpuType>(bytes: &[u8], out: &mut [f32]) {
        for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(T::BYTES)) {
            T::dequantize_block(bytes, std::slice::from_mut(out));
        }
    }

    #[inline(always)]
    unsafe fn float_dots<T: CpuType, const R: usize, const N: usize>(
        rows: [*const u8; R],
        x: [*const f32; N],
        len: usize,
    ) -> [[f32; N]; R] {
        // In parts, or the sums would lose what is added last.
        const PART: usize = 64;
        rows.map(|row| {
            let mut out = [0.0; N];
            for start in (0..len).step_by(PART) {
                let mut part = [0.0; N];
                // SAFETY: the caller's promises are the callee's.
                unsafe { float_rest::<T, N>(row, &x, start..len.min(start + PART), &mut part) };
                for (out, part) in out.iter_mut().zip(part) {
                    *out += part;
                }
            }
            out
        })
    }

    #[inline(always)]
    unsafe fn unpack<T: CpuCode>(
        block: &[u8],
        codes: &mut [u8],
        scales: &mut [f32],
        mins: &mut [f32],
    ) {
        T::unpack_block(block, codes, scales, mins);
    }

    #[inline(always)]
    unsafe fn scale_codes<T: CpuCode>(codes: &[u8], scale: f32, min: f32, out: &mut [f32]) {
        for (out, &code) in out.iter_mut().zip(codes) {
            let value = scale * (i32::from(code) - T::OFFSET) as f32;
            *out = if T::HAS_MIN { value - min } else { value };
        }
    }

    #[inline(always)]
    unsafe fn add_dot<T: CpuCode>(
        codes: &[u8; 32],
        x: &[i8; 32],
        scales: [f32; 2],
        total: [f32; 8],
    ) -> [f32; 8] {
        std::array::from_fn(|lane| {
            let fours = codes[4 * lane..4 * lane + 4]
                .iter()
                .zip(&x[4 * lane..4 * lane + 4]);
            let dot: i32 = fours
                .map(|(&code, &x)| (i32::from(code) - T::OFFSET) * i32::from(x))
                .sum();
            total[lane] + scales[lane / 4] * dot as f32
        })
    }

    #[inline(always)]
    unsafe fn transpose(from: *const u32, from_step: usize, to: *mut u32, to_step: usize) {
        for i in 0..8 {
            for j in 0..8 {
                // SAFETY: the caller says that both have these rows and words.
                unsafe {
                    let word = from.add(i * from_step + j).read_unaligned();
                    to.add(j * to_step + i).write_unaligned(word);
                }
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
        const ROWS: usize = Scalar::ROWS;
        let subs = 32 / T::SUB_LEN;
        for (token, out) in out.chunks_exact_mut(ROWS).take(tokens).enumerate() {
            let mut total = [0.0; ROWS];
            for (sub, codes) in panel.codes.chunks_exact(T::SUB_LEN * ROWS).enumerate() {
                let block = sub / subs;
                let start = (block * GROUP + token) * 32 + sub % subs * T::SUB_LEN;
                let x = &group.codes[start..start + T::SUB_LEN];
                let bits = group.sums[sub * GROUP + token];
                let mut dots = [if T::HAS_MIN { 0 } else { bits as i32 }; ROWS];
                for (codes, x) in codes.chunks_exact(4 * ROWS).zip(x.chunks_exact(4)) {
                    for (dot, codes) in dots.iter_mut().zip(codes.chunks_exact(4)) {
                        *dot += (0..4)
                            .map(|i| i32::from(codes[i]) * i32::from(x[i]))
                            .sum::<i32>();
                    }
                }
                let scale = group.scales[block * GROUP + token];
                for row in 0..ROWS {
                    total[row] += panel.scales[sub * ROWS + row] * scale * dots[row] as f32;
                    if T::HAS_MIN {
                        total[row] -= panel.mins[sub * ROWS + row] * f32::from_bits(bits);
                    }
                }
            }
            out.copy_from_slice(&total);
        }
    }

    #[inline(always)]
    unsafe fn float_tile<const N: usize>(
        panel: *const f32,
        x: *const f32,
        depth: usize,
        out: &mut [[f32; panel::ROWS]; N],
    ) {
        for (t, out) in out.iter_mut().enumerate() {
            let mut total = [0.0; panel::ROWS];
            for k in 0..depth {
                // SAFETY: the caller says that panel and rows are `depth` long.
                let (weights, x) = unsafe {
                    let weights = panel.add(k * panel::ROWS).cast::<[f32; panel::ROWS]>();
                    (&*weights, *x.add(t * panel::STEP + k))
                };
                for (total, weight) in total.iter_mut().zip(weights) {
                    *total += weight * x;
                }
            }
            *out = total;
        }
    }

    #[inline(always)]
    unsafe fn row_dot<T: CpuCode, const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
        // SAFETY: portable code; the caller's promise on `row` is the callee's.
        unsafe { dot_unpacked::<T, Self, N>(row, x) }
    }
}
