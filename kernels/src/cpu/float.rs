//! Matrix products in `f32`: types of plain numbers always, every other type under `Arithmetic::Exact`.
//!
//! For many activation rows, 16 weight rows are decoded 256 columns at a time into a panel that the first-level cache
//! holds, and used for all of them. For few, each row is widened in registers, or decoded piece by piece on the stack.

use super::dequantize::{Decoder, decode};
use super::isa::Isa;
use super::level::{FLOAT_ROWS, Kernel, Level};
use super::linear::RowTask;
use super::types::CpuType;
use crate::GgmlType;
use std::marker::PhantomData;

/// Columns decoded at a time: a multiple of every block length.
const DEPTH: usize = 256;

/// From how many activation rows a panel pays.
const PANEL_TOKENS: usize = 4;

/// Partial sums of a row product: enough to hide the latency of the multiply-adds at every level.
const LANES: usize = 32;

/// How the rows of a matrix are decoded.
trait Decode: Copy + Sync {
    /// Values per block.
    fn block_len(self) -> usize;
    /// Bytes per block.
    fn block_bytes(self) -> usize;
    /// Decodes whole blocks.
    ///
    /// # Safety
    /// The CPU must have the features of `L`.
    unsafe fn decode<L: Level>(self, bytes: &[u8], out: &mut [f32]);
    /// Dot products of `len` values with rows as long, for types that widen in registers.
    ///
    /// # Safety
    /// The CPU must have the features of `L`, and the slices be that long.
    unsafe fn dot<L: Level, const N: usize>(
        self,
        row: &[u8],
        x: &[*const f32; N],
        len: usize,
    ) -> Option<[f32; N]>;
}

/// Plain numbers: decoded inline, since little else is done.
struct Inline<T>(PhantomData<fn() -> T>);

impl<T> Clone for Inline<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Inline<T> {}

impl<T: CpuType> Decode for Inline<T> {
    #[inline(always)]
    fn block_len(self) -> usize {
        T::LEN
    }
    #[inline(always)]
    fn block_bytes(self) -> usize {
        T::BYTES
    }
    #[inline(always)]
    unsafe fn decode<L: Level>(self, bytes: &[u8], out: &mut [f32]) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { T::decode::<L>(bytes, out) }
    }
    #[inline(always)]
    unsafe fn dot<L: Level, const N: usize>(
        self,
        row: &[u8],
        x: &[*const f32; N],
        len: usize,
    ) -> Option<[f32; N]> {
        // SAFETY: the caller's promises are the callee's.
        T::WIDENS.then(|| unsafe { L::float_dot::<T, N>(row, x, len) })
    }
}

/// Every other type: decoded by a call for [`DEPTH`] values, so that they share one multiplication.
#[derive(Clone, Copy)]
struct ByCall {
    isa: Isa,
    decoder: Decoder,
    ty: GgmlType,
}

impl Decode for ByCall {
    #[inline(always)]
    fn block_len(self) -> usize {
        self.ty.block_len()
    }
    #[inline(always)]
    fn block_bytes(self) -> usize {
        self.ty.block_bytes()
    }
    #[inline(always)]
    unsafe fn decode<L: Level>(self, bytes: &[u8], out: &mut [f32]) {
        (self.decoder)(self.isa, bytes, out);
    }
    #[inline(always)]
    unsafe fn dot<L: Level, const N: usize>(
        self,
        _: &[u8],
        _: &[*const f32; N],
        _: usize,
    ) -> Option<[f32; N]> {
        None
    }
}

/// Multiplies the rows of a task with its activation rows, which are rows of `x`, `[_, cols]`. For types of plain
/// numbers.
pub(super) fn rows<T: CpuType>(task: &RowTask<'_>, x: &[f32]) {
    let decode = Inline::<T>(PhantomData);
    // SAFETY: levels are checked where they enter.
    unsafe { task.isa.run(Multiply { task, x, decode }) }
}

/// As [`rows`], for types of codes.
pub(super) fn code_rows<T: CpuType>(task: &RowTask<'_>, x: &[f32]) {
    let decode = ByCall {
        isa: task.isa,
        decoder: decode::<T>,
        ty: T::TYPE,
    };
    multiply_by_call(task, x, decode);
}

#[inline(never)]
fn multiply_by_call(task: &RowTask<'_>, x: &[f32], decode: ByCall) {
    // SAFETY: levels are checked where they enter.
    unsafe { task.isa.run(Multiply { task, x, decode }) }
}

struct Multiply<'a, D> {
    task: &'a RowTask<'a>,
    x: &'a [f32],
    decode: D,
}

impl<D: Decode> Kernel for Multiply<'_, D> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Level>(self) {
        // SAFETY: `run` is called with the features of `L` present.
        unsafe {
            if self.task.tokens < PANEL_TOKENS {
                match self.task.tokens {
                    1 => self.row_by_row::<L, 1>(),
                    2 => self.row_by_row::<L, 2>(),
                    _ => self.row_by_row::<L, { PANEL_TOKENS - 1 }>(),
                }
            } else {
                self.by_panels::<L>();
            }
        }
    }
}

impl<D: Decode> Multiply<'_, D> {
    /// The bytes of columns `start..start + len` of a row.
    #[inline(always)]
    fn columns<'r>(&self, row: &'r [u8], start: usize, len: usize) -> &'r [u8] {
        let (block, bytes) = (self.decode.block_len(), self.decode.block_bytes());
        &row[start / block * bytes..][..len / block * bytes]
    }

    /// The products with `N` activation rows, which must be all.
    ///
    /// # Safety
    /// The CPU must have the features of `L`.
    #[inline(always)]
    unsafe fn row_by_row<L: Level, const N: usize>(&self) {
        let cols = self.task.cols;
        let mut decoded = [0.0; DEPTH];
        for row in 0..self.task.rows.len() {
            let bytes = self.task.row(row);
            let x: [*const f32; N] =
                std::array::from_fn(|t| self.x[self.task.input(t) * cols..][..cols].as_ptr());
            // SAFETY: row and inputs have `cols` values; a task's rows of the output are its own.
            if let Some(dots) = unsafe { self.decode.dot::<L, N>(bytes, &x, cols) } {
                for (token, dot) in dots.into_iter().enumerate() {
                    // SAFETY: as above.
                    let out = unsafe { self.task.out(token, row, 1) };
                    out[0] = dot;
                }
                continue;
            }
            let mut lanes = [[0.0; LANES]; N];
            let mut rest = [0.0; N];
            for start in (0..cols).step_by(DEPTH) {
                let decoded = &mut decoded[..DEPTH.min(cols - start)];
                // SAFETY: the caller says so.
                unsafe {
                    let bytes = self.columns(bytes, start, decoded.len());
                    self.decode.decode::<L>(bytes, decoded);
                }
                let (weights, weights_rest) = decoded.as_chunks::<LANES>();
                for token in 0..N {
                    let x = &self.x[self.task.input(token) * cols + start..][..decoded.len()];
                    let (x, x_rest) = x.as_chunks::<LANES>();
                    let mut sums = lanes[token];
                    for (weights, x) in weights.iter().zip(x) {
                        for lane in 0..LANES {
                            // SAFETY: the caller says so.
                            sums[lane] = unsafe { L::mul_add(weights[lane], x[lane], sums[lane]) };
                        }
                    }
                    lanes[token] = sums;
                    rest[token] += weights_rest
                        .iter()
                        .zip(x_rest)
                        .map(|(w, x)| w * x)
                        .sum::<f32>();
                }
            }
            for token in 0..N {
                // SAFETY: a task's rows are its own.
                let out = unsafe { self.task.out(token, row, 1) };
                out[0] = lanes[token].iter().sum::<f32>() + rest[token];
            }
        }
    }

    /// # Safety
    /// The CPU must have the features of `L`.
    #[inline(always)]
    unsafe fn by_panels<L: Level>(&self) {
        let task = self.task;
        let mut panel = [0.0; DEPTH * FLOAT_ROWS];
        let mut decoded = [0.0; DEPTH * FLOAT_ROWS];
        for start in (0..task.cols).step_by(DEPTH) {
            let depth = DEPTH.min(task.cols - start);
            for first in (0..task.rows.len()).step_by(FLOAT_ROWS) {
                let rows = FLOAT_ROWS.min(task.rows.len() - first);
                for row in 0..rows {
                    let bytes = self.columns(task.row(first + row), start, depth);
                    // SAFETY: the caller says so.
                    unsafe {
                        self.decode
                            .decode::<L>(bytes, &mut decoded[row * DEPTH..][..depth])
                    };
                }
                for column in (0..depth).step_by(8) {
                    for row in (0..FLOAT_ROWS).step_by(8) {
                        let from = decoded[row * DEPTH + column..][..7 * DEPTH + 8]
                            .as_ptr()
                            .cast();
                        let to = &mut panel[column * FLOAT_ROWS + row..][..7 * FLOAT_ROWS + 8];
                        // SAFETY: the slices reach from the first to the last word.
                        unsafe { L::transpose(from, DEPTH, to.as_mut_ptr().cast(), FLOAT_ROWS) };
                    }
                }
                let mut token = 0;
                while token < task.tokens {
                    // SAFETY: as for the task; `tokens - token` rows are left.
                    token += unsafe {
                        match task.tokens - token {
                            8.. => self.add_tile::<L, 8>(&panel, start, depth, first, rows, token),
                            4.. => self.add_tile::<L, 4>(&panel, start, depth, first, rows, token),
                            _ => self.add_tile::<L, 1>(&panel, start, depth, first, rows, token),
                        }
                    };
                }
            }
        }
    }

    /// Adds the product of a panel with `N` activation rows to the output, and returns `N`.
    ///
    /// # Safety
    /// The CPU must have the features of `L`; there must be `N` rows from `token`.
    #[inline(always)]
    unsafe fn add_tile<L: Level, const N: usize>(
        &self,
        panel: &[f32],
        start: usize,
        depth: usize,
        first: usize,
        rows: usize,
        token: usize,
    ) -> usize {
        let x: [*const f32; N] = std::array::from_fn(|t| {
            self.x[self.task.input(token + t) * self.task.cols + start..][..depth].as_ptr()
        });
        // SAFETY: panel and rows are `depth` long; a task's rows of the output are its own.
        unsafe {
            let tile = L::float_tile::<N>(panel, &x, depth);
            for (t, sums) in tile.iter().enumerate() {
                let out = self.task.out(token + t, first, rows);
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
