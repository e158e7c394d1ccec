//! `BF16` weights times activations rounded to `BF16`, with the instruction that multiplies pairs of them and adds to
//! `f32` (AVX512-BF16): twice the rate of `f32`.
//!
//! Rounding the activations costs about 2e-6 of the output's energy (NMSE), a tenth of what 8-bit activations do. It
//! is done for `Arithmetic::Fast` only.

use super::isa::Isa;
use super::linear::RowTask;
use super::panel::Packed;

/// Whether these products are for matrices of `cols` columns at this level.
pub(super) fn is_usable(isa: Isa, cols: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        isa == Isa::Avx512Vnni && cols.is_multiple_of(32) && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        _ = (isa, cols);
        false
    }
}

/// Packs activation rows, `[_, cols]`, each value rounded to the nearest `BF16`, ties to even. Runs on rayon's current
/// pool.
#[cfg(target_arch = "x86_64")]
pub(super) fn pack(x: &[f32], cols: usize, packed: &mut Packed) {
    packed.pack(x.len() / cols, cols / 2, |row, start, out| {
        let x = &x[row * cols + 2 * start..][..2 * out.len()];
        for (out, x) in bytemuck::cast_slice_mut::<_, u16>(out).iter_mut().zip(x) {
            *out = half::bf16::from_f32(*x).to_bits();
        }
    });
}

/// Multiplies the rows of a task with its activation rows, which are some of `x`.
#[cfg(target_arch = "x86_64")]
pub(super) fn rows(task: &RowTask<'_>, x: &Packed) {
    // SAFETY: tasks come here if `is_usable` says so.
    unsafe { x86::rows(task, x) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn pack(_: &[f32], _: usize, _: &mut Packed) {}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn rows(_: &RowTask<'_>, _: &Packed) {
    unreachable!("not usable here")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::RowTask;
    use crate::cpu::float::PANEL_TOKENS;
    use crate::cpu::level::{Avx512, Level};
    use crate::cpu::panel::{self, DEPTH, Packed, Words};
    use core::arch::x86_64::*;

    /// # Safety
    /// The CPU must have AVX-512 F, BW, VL, VNNI and BF16; `task.cols` must be a multiple of 32.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")]
    pub(super) unsafe fn rows(task: &RowTask<'_>, x: &Packed) {
        match task.tokens {
            // SAFETY: the caller's.
            1 => return unsafe { by_rows::<8, 1>(task, x) },
            // SAFETY: the caller's.
            2 => return unsafe { by_rows::<4, 2>(task, x) },
            // SAFETY: the caller's.
            3 => return unsafe { by_rows::<4, 3>(task, x) },
            _ => debug_assert!(task.tokens >= PANEL_TOKENS),
        }
        // SAFETY: the caller's promise is the callee's.
        unsafe { panel::multiply::<Avx512, _>(task, x, Pairs) }
    }

    /// Words that are pairs of `BF16`.
    #[derive(Clone, Copy)]
    struct Pairs;

    impl Words for Pairs {
        #[inline(always)]
        fn bytes(self, row: &[u8], start: usize, len: usize) -> &[u8] {
            &row[4 * start..][..4 * len]
        }

        #[inline(always)]
        unsafe fn read<L: Level>(self, bytes: &[u8], out: &mut [u32]) {
            bytemuck::cast_slice_mut(out).copy_from_slice(bytes);
        }

        #[inline(always)]
        unsafe fn tile<L: Level, const N: usize>(
            self,
            panel: *const u32,
            x: *const u32,
            depth: usize,
            out: &mut [[f32; panel::ROWS]; N],
        ) {
            // SAFETY: the caller's promises are the callee's.
            unsafe { tile(panel, x, depth, out) }
        }
    }

    /// The products with `N` activation rows, which must be all, `R` weight rows at a time: memory is read faster in
    /// several streams than in one.
    ///
    /// # Safety
    /// As [`rows`].
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")]
    unsafe fn by_rows<const R: usize, const N: usize>(task: &RowTask<'_>, x: &Packed) {
        let inputs: [usize; N] = std::array::from_fn(|t| task.input(t));
        for first in (0..task.rows.len()).step_by(R) {
            let count = R.min(task.rows.len() - first);
            // The last row again where there are fewer.
            let rows: [&[u8]; R] = std::array::from_fn(|r| task.row(first + r.min(count - 1)));
            // Two sums in turn: one would wait for itself.
            let mut total = [[[_mm512_setzero_ps(); 2]; N]; R];
            let words = task.cols / 2;
            for start in (0..words).step_by(DEPTH) {
                let depth = DEPTH.min(words - start);
                let rows = rows.map(|row| row[4 * start..][..4 * depth].as_ptr());
                let x = inputs.map(|input| x.from(input, start)[..depth].as_ptr());
                for k in (0..depth).step_by(32) {
                    for (chain, k) in [k, k + 16].into_iter().enumerate() {
                        if k == depth {
                            break;
                        }
                        for t in 0..N {
                            // SAFETY: a register, since `cols` is a multiple of 32 values.
                            let x = unsafe { load(x[t].add(k)) };
                            for r in 0..R {
                                // SAFETY: as above.
                                let weights = unsafe { load(rows[r].add(4 * k).cast()) };
                                let to = &mut total[r][t][chain];
                                *to = _mm512_dpbf16_ps(*to, weights, x);
                            }
                        }
                    }
                }
            }
            for t in 0..N {
                // SAFETY: a task's rows of the output are its own.
                let out = unsafe { task.out(t, first, count) };
                for (out, total) in out.iter_mut().zip(&total) {
                    *out = _mm512_reduce_add_ps(_mm512_add_ps(total[t][0], total[t][1]));
                }
            }
        }
    }

    /// 16 pairs.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F and BF16; there must be as many.
    #[target_feature(enable = "avx512f,avx512bf16")]
    #[inline]
    unsafe fn load(at: *const u32) -> __m512bh {
        // SAFETY: the caller says so; both types are a register of bits.
        unsafe { core::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(at.cast())) }
    }

    /// As [`Words::tile`].
    ///
    /// # Safety
    /// As there; the CPU must have AVX-512 F and BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    #[inline(never)]
    unsafe fn tile<const N: usize>(
        panel: *const u32,
        x: *const u32,
        depth: usize,
        out: &mut [[f32; panel::ROWS]; N],
    ) {
        // SAFETY: the caller says that panel and rows are `depth` long.
        unsafe {
            let mut total = [[_mm512_setzero_ps(); 2]; N];
            for k in 0..depth {
                let weights = panel.add(k * panel::ROWS);
                let (low, high) = (load(weights), load(weights.add(16)));
                for (t, total) in total.iter_mut().enumerate() {
                    let pair = _mm512_set1_epi32(*x.add(t * panel::STEP + k) as i32);
                    let pair = core::mem::transmute::<__m512i, __m512bh>(pair);
                    total[0] = _mm512_dpbf16_ps(total[0], low, pair);
                    total[1] = _mm512_dpbf16_ps(total[1], high, pair);
                }
            }
            for (out, total) in out.iter_mut().zip(total) {
                _mm512_storeu_ps(out.as_mut_ptr(), total[0]);
                _mm512_storeu_ps(out.as_mut_ptr().add(16), total[1]);
            }
        }
    }
}
