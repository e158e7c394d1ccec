//! `BF16` weights times many activation rows rounded to `BF16`, with the instruction that multiplies pairs of them and
//! adds to `f32` (AVX512-BF16): twice the rate of `f32`.
//!
//! Rounding the activations costs about 1e-6 of the output's energy (NMSE), a tenth of what 8-bit activations do. So
//! it is done for `Arithmetic::Fast` only, and only where there are enough rows to be bound by multiplying.

use super::isa::Isa;
use super::linear::RowTask;

/// From how many activation rows on.
const MIN_TOKENS: usize = 4;

/// Whether these products are for matrices of `cols` columns and `tokens` activation rows at this level.
pub(super) fn is_usable(isa: Isa, cols: usize, tokens: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        isa == Isa::Avx512Vnni
            && tokens >= MIN_TOKENS
            && cols.is_multiple_of(32)
            && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        _ = (isa, cols, tokens, MIN_TOKENS);
        false
    }
}

/// Rounds activations to the nearest `BF16`, ties to even. Runs on rayon's current pool.
#[cfg(target_arch = "x86_64")]
pub(super) fn round(x: &[f32], out: &mut Vec<u16>) {
    use rayon::prelude::*;
    const PART: usize = 1 << 15;
    super::input::grow(out, x.len());
    out.par_chunks_mut(PART)
        .zip(x.par_chunks(PART))
        .for_each(|(out, x)| {
            for (out, x) in out.iter_mut().zip(x) {
                *out = half::bf16::from_f32(*x).to_bits();
            }
        });
}

/// Multiplies the rows of a task with its activation rows, which are rows of `x`, `[_, cols]`.
#[cfg(target_arch = "x86_64")]
pub(super) fn rows(task: &RowTask<'_>, x: &[u16]) {
    // SAFETY: tasks come here if `is_usable` says so.
    unsafe { x86::rows(task, x) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn round(_: &[f32], _: &mut Vec<u16>) {}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn rows(_: &RowTask<'_>, _: &[u16]) {
    unreachable!("not usable here")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::RowTask;
    use crate::cpu::level::{Avx512, Level};
    use core::arch::x86_64::*;

    /// Weight rows of a panel.
    const ROWS: usize = 16;

    /// Activation rows of a tile.
    const TOKENS: usize = 8;

    /// Pairs of columns packed at a time: a panel stays in the first-level cache.
    const PAIRS: usize = 256;

    /// # Safety
    /// The CPU must have AVX-512 F, BW, VL, VNNI and BF16; `task.cols` must be a multiple of 32.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")]
    pub(super) unsafe fn rows(task: &RowTask<'_>, x: &[u16]) {
        let pairs = task.cols / 2;
        let mut panel = [0u32; PAIRS * ROWS];
        for start in (0..pairs).step_by(PAIRS) {
            let depth = PAIRS.min(pairs - start);
            for first in (0..task.rows.len()).step_by(ROWS) {
                let rows = ROWS.min(task.rows.len() - first);
                for half in (0..ROWS).step_by(8) {
                    for column in (0..depth).step_by(8) {
                        let mut words = [0u32; 64];
                        for row in 0..8.min(rows.saturating_sub(half)) {
                            let bytes = &task.row(first + half + row)[4 * (start + column)..][..32];
                            for (word, bytes) in
                                words[8 * row..].iter_mut().zip(bytes.as_chunks().0)
                            {
                                *word = u32::from_ne_bytes(*bytes);
                            }
                        }
                        let to = &mut panel[column * ROWS + half..][..7 * ROWS + 8];
                        // SAFETY: the arrays reach from the first to the last word.
                        unsafe { Avx512::transpose(words.as_ptr(), 8, to.as_mut_ptr(), ROWS) };
                    }
                }
                for token in (0..task.tokens).step_by(TOKENS) {
                    let tokens = TOKENS.min(task.tokens - token);
                    // The last row again where there are fewer.
                    let x: [*const u16; TOKENS] = std::array::from_fn(|t| {
                        let row = task.input(token + t.min(tokens - 1));
                        x[row * task.cols + 2 * start..][..2 * depth].as_ptr()
                    });
                    // SAFETY: the caller's; panel and rows are `depth` pairs long.
                    let tile = unsafe { tile(&panel, &x, depth) };
                    for (t, sums) in tile.iter().enumerate().take(tokens) {
                        // SAFETY: a task's rows of the output are its own.
                        let out = unsafe { task.out(token + t, first, rows) };
                        if start == 0 {
                            out.copy_from_slice(&sums[..rows]);
                        } else {
                            for (out, sum) in out.iter_mut().zip(sums) {
                                *out += sum;
                            }
                        }
                    }
                }
            }
        }
    }

    /// The products of a panel with `TOKENS` rows of `depth` pairs.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F and BF16; panel and rows must be that long.
    #[target_feature(enable = "avx512f,avx512bf16")]
    #[inline]
    unsafe fn tile(panel: &[u32], x: &[*const u16; TOKENS], depth: usize) -> [[f32; ROWS]; TOKENS] {
        // SAFETY: the caller says so.
        unsafe {
            let mut total = [_mm512_setzero_ps(); TOKENS];
            for k in 0..depth {
                let weights = _mm512_loadu_si512(panel.as_ptr().add(k * ROWS).cast());
                for (total, x) in total.iter_mut().zip(x) {
                    let pair = x.add(2 * k).cast::<i32>().read_unaligned();
                    *total = _mm512_dpbf16_ps(
                        *total,
                        core::mem::transmute::<__m512i, __m512bh>(weights),
                        core::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(pair)),
                    );
                }
            }
            let mut out = [[0.0; ROWS]; TOKENS];
            for (out, total) in out.iter_mut().zip(total) {
                _mm512_storeu_ps(out.as_mut_ptr(), total);
            }
            out
        }
    }
}
