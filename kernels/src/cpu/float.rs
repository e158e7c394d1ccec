//! Matrix products in `f32`: types of plain numbers always, every other type under `Arithmetic::Exact`.
//!
//! For many activation rows, weight rows are decoded into panels (`panel.rs`) that serve all of them. For few, each row
//! is widened in registers, or decoded piece by piece on the stack.

use super::dequantize::{Decoder, decode};
use super::isa::Isa;
use super::level::{Kernel, Level};
use super::linear::RowTask;
use super::panel::{self, DEPTH, Packed, Words};
use super::types::CpuType;
use crate::GgmlType;
use std::marker::PhantomData;

/// From how many activation rows panels pay.
pub(super) const PANEL_TOKENS: usize = 4;

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
    /// Dot products of `R` rows of `len` values with `N` as long, for types that widen in registers.
    ///
    /// # Safety
    /// The CPU must have the features of `L`, and the rows be that long.
    unsafe fn dots<L: Level, const R: usize, const N: usize>(
        self,
        rows: [*const u8; R],
        x: [*const f32; N],
        len: usize,
    ) -> Option<[[f32; N]; R]>;
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
    unsafe fn dots<L: Level, const R: usize, const N: usize>(
        self,
        rows: [*const u8; R],
        x: [*const f32; N],
        len: usize,
    ) -> Option<[[f32; N]; R]> {
        // SAFETY: the caller's promises are the callee's.
        T::WIDENS.then(|| unsafe { L::float_dots::<T, R, N>(rows, x, len) })
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
    unsafe fn dots<L: Level, const R: usize, const N: usize>(
        self,
        _: [*const u8; R],
        _: [*const f32; N],
        _: usize,
    ) -> Option<[[f32; N]; R]> {
        None
    }
}

/// Activation rows as they are and, where a task has [`PANEL_TOKENS`] of them, packed.
#[derive(Clone, Copy)]
pub(super) struct FloatInput<'a> {
    /// `[_, cols]`.
    pub rows: &'a [f32],
    pub packed: &'a Packed,
}

/// Packs activation rows, `[_, cols]`. Runs on rayon's current pool.
pub(super) fn pack(x: &[f32], cols: usize, packed: &mut Packed) {
    packed.pack(x.len() / cols, cols, |row, start, out| {
        let x = &x[row * cols + start..][..out.len()];
        out.copy_from_slice(bytemuck::cast_slice(x));
    });
}

/// Multiplies the rows of a task with its activation rows, which are some of `x`. For types of plain numbers.
pub(super) fn rows<T: CpuType>(task: &RowTask<'_>, x: FloatInput<'_>) {
    let decode = Inline::<T>(PhantomData);
    // SAFETY: levels are checked where they enter.
    unsafe { task.isa.run(Multiply { task, x, decode }) }
}

/// As [`rows`], for types of codes.
pub(super) fn code_rows<T: CpuType>(task: &RowTask<'_>, x: FloatInput<'_>) {
    let decode = ByCall {
        isa: task.isa,
        decoder: decode::<T>,
        ty: T::TYPE,
    };
    multiply_by_call(task, x, decode);
}

#[inline(never)]
fn multiply_by_call(task: &RowTask<'_>, x: FloatInput<'_>, decode: ByCall) {
    // SAFETY: levels are checked where they enter.
    unsafe { task.isa.run(Multiply { task, x, decode }) }
}

struct Multiply<'a, D> {
    task: &'a RowTask<'a>,
    x: FloatInput<'a>,
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
                    1 => self.by_rows::<L, 8, 1>(),
                    2 => self.by_rows::<L, 4, 2>(),
                    _ => self.by_rows::<L, 4, { PANEL_TOKENS - 1 }>(),
                }
            } else {
                panel::multiply::<L, _>(self.task, self.x.packed, Numbers(self.decode));
            }
        }
    }
}

impl<D: Decode> Multiply<'_, D> {
    /// The products with `N` activation rows, which must be all, `R` weight rows at a time where they widen in
    /// registers: memory is read faster in several streams than in one.
    ///
    /// # Safety
    /// The CPU must have the features of `L`.
    #[inline(always)]
    unsafe fn by_rows<L: Level, const R: usize, const N: usize>(&self) {
        let (task, cols) = (self.task, self.task.cols);
        let x = std::array::from_fn(|t| self.x.rows[task.input(t) * cols..][..cols].as_ptr());
        for first in (0..task.rows.len()).step_by(R) {
            let count = R.min(task.rows.len() - first);
            // The last row again where there are fewer.
            let rows = std::array::from_fn(|r| task.row(first + r.min(count - 1)).as_ptr());
            // SAFETY: rows and inputs have `cols` values.
            let Some(dots) = (unsafe { self.decode.dots::<L, R, N>(rows, x, cols) }) else {
                // SAFETY: the caller says so.
                return unsafe { self.row_by_row::<L, N>() };
            };
            for token in 0..N {
                // SAFETY: a task's rows of the output are its own.
                let out = unsafe { task.out(token, first, count) };
                for (out, dots) in out.iter_mut().zip(&dots) {
                    *out = dots[token];
                }
            }
        }
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
            let mut lanes = [[0.0; LANES]; N];
            let mut rest = [0.0; N];
            for start in (0..cols).step_by(DEPTH) {
                let decoded = &mut decoded[..DEPTH.min(cols - start)];
                // SAFETY: the caller says so.
                unsafe {
                    let bytes = columns(self.decode, bytes, start, decoded.len());
                    self.decode.decode::<L>(bytes, decoded);
                }
                let (weights, weights_rest) = decoded.as_chunks::<LANES>();
                for token in 0..N {
                    let x = &self.x.rows[self.task.input(token) * cols + start..][..decoded.len()];
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
}

/// Products that are added one after the other: rounding grows with their number.
const CHAIN: usize = 256;

/// Words that are numbers.
#[derive(Clone, Copy)]
struct Numbers<D>(D);

impl<D: Decode> Words for Numbers<D> {
    #[inline(always)]
    fn bytes(self, row: &[u8], start: usize, len: usize) -> &[u8] {
        columns(self.0, row, start, len)
    }

    #[inline(always)]
    unsafe fn read<L: Level>(self, bytes: &[u8], out: &mut [u32]) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { self.0.decode::<L>(bytes, bytemuck::cast_slice_mut(out)) }
    }

    #[inline(always)]
    unsafe fn tile<L: Level, const N: usize>(
        self,
        panel: *const u32,
        x: *const u32,
        depth: usize,
        out: &mut [[f32; panel::ROWS]; N],
    ) {
        let mut part = [[0.0; panel::ROWS]; N];
        for from in (0..depth).step_by(CHAIN) {
            let len = CHAIN.min(depth - from);
            // SAFETY: panel and rows are `depth` long, of which `len` words are left at `from`.
            unsafe {
                let (panel, x) = (panel.add(from * panel::ROWS), x.add(from));
                L::float_tile::<N>(panel.cast(), x.cast(), len, &mut part);
            }
            for (out, part) in out.as_flattened_mut().iter_mut().zip(part.as_flattened()) {
                *out = if from == 0 { *part } else { *out + part };
            }
        }
    }
}

/// The bytes of columns `start..start + len` of a row.
#[inline(always)]
fn columns<D: Decode>(decode: D, row: &[u8], start: usize, len: usize) -> &[u8] {
    let (block, bytes) = (decode.block_len(), decode.block_bytes());
    &row[start / block * bytes..][..len / block * bytes]
}
