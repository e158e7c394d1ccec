//! Products of many activation rows with panels of weight rows, both in words of four bytes: numbers, or pairs of
//! `BF16`.
//!
//! [`DEPTH`] words of all rows of a task are laid out as panels that the second-level cache holds. Activation rows are
//! laid out once per call ([`Packed`]), as deep and side by side: where they come from they are often a power of two
//! apart, and would take turns at the same few cache lines.

use super::buffer::Buffer;
use super::level::Level;
use super::linear::RowTask;
use super::vector::prefetch;
use rayon::prelude::*;
use std::cell::Cell;

/// Weight rows of a panel.
pub(super) const ROWS: usize = 32;

/// Words multiplied at a time: as `f32` a multiple of every block length.
pub(super) const DEPTH: usize = 512;

/// Words from one packed activation row to the next: an odd number of cache lines, so that they spread over the cache.
pub(super) const STEP: usize = DEPTH + LINE;

/// Most weight rows of a task: its panels take half a megabyte.
pub(super) const MAX_ROWS: usize = 256;

/// Most activation rows of a tile: the products fill 24 of 32 registers.
const TOKENS: usize = 12;

/// Words of a cache line.
const LINE: usize = 16;

thread_local! {
    // Taken out while in use: a task that waits inside rayon may find itself running another one.
    static PANELS: Cell<Buffer<u32>> = Cell::default();
}

/// Activation rows, `[len / DEPTH, rows, STEP]` words.
#[derive(Default)]
pub(super) struct Packed {
    rows: usize,
    len: usize,
    words: Buffer<u32>,
}

impl Packed {
    /// Packs rows of `len` words. `words(row, start, out)` is to write words `start..start + out.len()` of a row. Runs
    /// on rayon's current pool.
    pub(super) fn pack(
        &mut self,
        rows: usize,
        len: usize,
        words: impl Fn(usize, usize, &mut [u32]) + Sync,
    ) {
        /// Rows of a parallel task: some ten microseconds of work.
        const TASK: usize = 32;
        (self.rows, self.len) = (rows, len);
        let count = len.div_ceil(DEPTH) * rows;
        self.words.grow(count * STEP);
        self.words[..count * STEP]
            .par_chunks_mut(TASK * STEP)
            .enumerate()
            .for_each(|(task, out)| {
                for (i, out) in out.chunks_exact_mut(STEP).enumerate() {
                    let at = task * TASK + i;
                    let start = at / rows * DEPTH;
                    words(at % rows, start, &mut out[..DEPTH.min(len - start)]);
                }
            });
    }

    /// Words `start..` of a row and of those after it, [`STEP`] apart; `start` is a multiple of [`DEPTH`].
    #[inline(always)]
    pub(super) fn from(&self, row: usize, start: usize) -> &[u32] {
        let at = (start / DEPTH * self.rows + row) * STEP;
        self.words.get(at..).unwrap_or_default()
    }
}

/// What the words are.
pub(super) trait Words: Copy {
    /// The bytes of words `start..start + len` of a weight row; `start` is a multiple of [`DEPTH`].
    fn bytes(self, row: &[u8], start: usize, len: usize) -> &[u8];

    /// Reads all words of `bytes`.
    ///
    /// # Safety
    /// The CPU must have the features of `L`, and what else the words need.
    unsafe fn read<L: Level>(self, bytes: &[u8], out: &mut [u32]);

    /// The products of a panel `[depth, ROWS]` with `N` activation rows that lie [`STEP`] words apart.
    ///
    /// # Safety
    /// As for `read`; panel and rows must be `depth` long.
    unsafe fn tile<L: Level, const N: usize>(
        self,
        panel: *const u32,
        x: *const u32,
        depth: usize,
        out: &mut [[f32; ROWS]; N],
    );
}

/// Multiplies the rows of a task with its activation rows, which are some of `x`.
///
/// # Safety
/// As [`Words::read`].
#[inline(always)]
pub(super) unsafe fn multiply<L: Level, W: Words>(task: &RowTask<'_>, x: &Packed, words: W) {
    let mut panels = PANELS.take();
    panels.grow(task.rows.len().next_multiple_of(ROWS) * DEPTH);
    for start in (0..x.len).step_by(DEPTH) {
        let part = Part {
            task,
            x,
            words,
            start,
            depth: DEPTH.min(x.len - start),
        };
        // SAFETY: the caller's promise is the callees'.
        unsafe {
            part.fill::<L>(&mut panels);
            let mut token = 0;
            while token < task.tokens {
                token += match task.tokens - token {
                    TOKENS.. => part.tiles::<L, TOKENS>(&panels, token),
                    8.. => part.tiles::<L, 8>(&panels, token),
                    _ => part.tiles::<L, 4>(&panels, token),
                };
            }
        }
    }
    PANELS.set(panels);
}

/// Words `start..start + depth` of all rows of a task.
struct Part<'a, W> {
    task: &'a RowTask<'a>,
    x: &'a Packed,
    words: W,
    start: usize,
    depth: usize,
}

impl<W: Words> Part<'_, W> {
    /// Lays the weights out as panels. Rows past the end are anything; their products are dropped.
    ///
    /// # Safety
    /// As [`Words::read`].
    #[inline(always)]
    unsafe fn fill<L: Level>(&self, panels: &mut [u32]) {
        let mut rows = [0; 8 * STEP];
        for first in (0..self.task.rows.len()).step_by(8) {
            for row in 0..8.min(self.task.rows.len() - first) {
                let bytes = self.task.row(first + row);
                let bytes = self.words.bytes(bytes, self.start, self.depth);
                let out = &mut rows[row * STEP..][..self.depth];
                // SAFETY: the caller's promise is the callee's.
                unsafe { self.words.read::<L>(bytes, out) };
            }
            let panel = &mut panels[first / ROWS * ROWS * DEPTH..][..ROWS * DEPTH];
            for column in (0..self.depth).step_by(8) {
                let from = rows[column..][..7 * STEP + 8].as_ptr();
                let to = &mut panel[column * ROWS + first % ROWS..][..7 * ROWS + 8];
                // SAFETY: the slices reach from the first to the last word.
                unsafe { L::transpose(from, STEP, to.as_mut_ptr(), ROWS) };
            }
        }
    }

    /// Asks for the words of a weight row that the next part will read.
    #[inline(always)]
    fn prefetch_next(&self, row: usize) {
        let start = self.start + self.depth;
        let len = DEPTH.min(self.x.len - start);
        let bytes = self.words.bytes(self.task.row(row), start, len);
        bytes
            .chunks(4 * LINE)
            .for_each(|line| prefetch(line.as_ptr()));
    }

    /// Adds the products of all panels with `N` activation rows from `token`, or as many as there are, to the output,
    /// and returns `N`.
    ///
    /// # Safety
    /// As [`Words::tile`].
    #[inline(always)]
    unsafe fn tiles<L: Level, const N: usize>(&self, panels: &[u32], token: usize) -> usize {
        let &Self {
            task,
            x,
            start,
            depth,
            ..
        } = self;
        let tokens = N.min(task.tokens - token);
        let mut side_by_side;
        let mut next = &[][..];
        let x = if task.order.is_none() && tokens == N {
            next = x.from(token + N, start);
            next = &next[..next.len().min(N * STEP)];
            &x.from(token, start)[..N * STEP]
        } else {
            side_by_side = [0; TOKENS * STEP];
            for t in 0..N {
                // The last row again where there are fewer.
                let row = task.input(token + t.min(tokens - 1));
                side_by_side[t * STEP..][..depth].copy_from_slice(&x.from(row, start)[..depth]);
            }
            &side_by_side[..]
        };
        let mut tile = [[0.0; ROWS]; N];
        let panel_count = task.rows.len().div_ceil(ROWS);
        for first in (0..task.rows.len()).step_by(ROWS) {
            let rows = ROWS.min(task.rows.len() - first);
            // What is wanted after the tile: its outputs, and shares of the next activation rows and weights.
            for t in 0..tokens {
                // SAFETY: a task's rows of the output are its own.
                let out = unsafe { task.out(token + t, first, rows) };
                out.chunks(LINE).for_each(|line| prefetch(line.as_ptr()));
            }
            for line in next.chunks(LINE).skip(first / ROWS).step_by(panel_count) {
                prefetch(line.as_ptr());
            }
            for row in (token / N..rows).step_by(task.tokens.div_ceil(N)) {
                self.prefetch_next(first + row);
            }
            let panel = panels[first * DEPTH..][..ROWS * DEPTH].as_ptr();
            // SAFETY: the caller's; panel and rows are `depth` long.
            unsafe { self.words.tile::<L, N>(panel, x.as_ptr(), depth, &mut tile) };
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
        N
    }
}
