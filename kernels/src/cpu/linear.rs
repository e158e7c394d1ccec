//! `linear`: activation rows times the transpose of a weight matrix, the product of a linear layer.

use super::check::check;
use super::error::CpuError;
use super::float::{FloatInput, PANEL_TOKENS};
use super::input::{Group, RowBuffers, SumKind};
use super::isa::Isa;
use super::level::GROUP;
use super::panel::{self, Packed};
use super::types::{CpuCode, CpuType, TypeVisitor};
use super::{bf16, float, gemm, gemv, parallel};
use crate::GgmlType;
use std::cell::Cell;
use std::ops::Range;

/// A weight matrix as GGUF stores it: row after row of blocks, `y = W x` with one output per row.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The block type.
    pub ty: GgmlType,
    /// `rows` rows of `ty.row_bytes(cols)` bytes, at any alignment.
    pub bytes: &'a [u8],
    /// Outputs.
    pub rows: usize,
    /// Inputs; whole blocks.
    pub cols: usize,
}

/// How to multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Weights decoded to `f32` and multiplied in `f32`.
    Exact,
    /// Activations rounded to 8 bits per 32 values, products in integers. About 1e-5 of the output's energy is lost
    /// (NMSE). Types of plain numbers are multiplied in `f32` here too, except that activations are rounded to `BF16`
    /// (2e-6 of the energy) for `BF16` weights, where the CPU multiplies those.
    #[default]
    Fast,
}

/// Up to how many activation rows quantized weights are multiplied row by row instead of panel by panel.
pub(super) const MAX_GEMV_TOKENS: usize = 6;

/// Activation rows quantized at a time: bounds the buffers, and is enough to forget the cost of unpacking.
const MAX_TOKENS: usize = 512;

/// Most bytes of unpacked codes per task: they should stay in the second-level cache.
const PANEL_BYTES: usize = 256 << 10;

/// Tasks per thread to aim at: enough to even out threads of unequal speed.
pub(super) const TASKS_PER_THREAD: usize = 16;

/// Least multiply-accumulates per task: some ten microseconds of work.
const MIN_TASK_WORK: usize = 1 << 17;

/// Rows per task are a multiple of this: every level's height of a panel of codes.
const ROW_STEP: usize = 16;

/// Multiplies `n` activation rows `x`, `[n, cols]`, with one matrix into `y`, `[n, rows]`.
///
/// Runs on rayon's current pool; best called from inside it (`ThreadPool::install`).
///
/// # Errors
/// If the type is not implemented or a size does not fit.
pub fn linear(
    w: Matrix<'_>,
    x: &[f32],
    n: usize,
    y: &mut [f32],
    arithmetic: Arithmetic,
) -> Result<(), CpuError> {
    linear_many(&[w], x, n, &mut [y], arithmetic)
}

/// Multiplies `n` activation rows `x`, `[n, cols]`, with several matrices of the same `cols`, the `i`th into
/// `outs[i]`, `[n, rows]`: in one parallel region, with the activations quantized once.
///
/// # Errors
/// If a type is not implemented, a size does not fit, or the matrices differ in `cols`.
pub fn linear_many(
    matrices: &[Matrix<'_>],
    x: &[f32],
    n: usize,
    outs: &mut [&mut [f32]],
    arithmetic: Arithmetic,
) -> Result<(), CpuError> {
    multiply(matrices, x, n, outs, arithmetic, Isa::current())
}

/// As [`linear_many`], at a given level: for tests and benchmarks.
///
/// # Errors
/// As [`linear_many`], and if this CPU lacks the level.
pub fn linear_many_at(
    isa: Isa,
    matrices: &[Matrix<'_>],
    x: &[f32],
    n: usize,
    outs: &mut [&mut [f32]],
    arithmetic: Arithmetic,
) -> Result<(), CpuError> {
    if !isa.is_available() {
        return Err(CpuError::IsaUnavailable(isa));
    }
    multiply(matrices, x, n, outs, arithmetic, isa)
}

/// Which rows of the input and of the output a task's activation rows are.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub inputs: &'a [u32],
    pub outputs: &'a [u32],
}

/// Some rows of one matrix, for all activation rows.
pub(super) struct RowTask<'a> {
    pub isa: Isa,
    pub matrix: Matrix<'a>,
    pub row_bytes: usize,
    /// Values per row.
    pub cols: usize,
    /// Which rows of the matrix; all other row numbers here count from its start.
    pub rows: Range<usize>,
    /// Activation rows.
    pub tokens: usize,
    /// Where they are; one after the other if `None`.
    pub order: Option<Order<'a>>,
    pub out: Output,
}

impl RowTask<'_> {
    /// Which row of the input an activation row is.
    #[inline(always)]
    pub fn input(&self, token: usize) -> usize {
        self.order
            .map_or(token, |order| order.inputs[token] as usize)
    }

    /// The blocks of a row.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &[u8] {
        &self.matrix.bytes[(self.rows.start + row) * self.row_bytes..][..self.row_bytes]
    }

    /// The outputs of `len` rows from `first` for one activation row.
    ///
    /// # Safety
    /// No other reference to them may be alive: a task asks for its own rows only, one slice at a time.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "tasks write disjoint parts of one buffer"
    )]
    pub unsafe fn out(&self, token: usize, first: usize, len: usize) -> &mut [f32] {
        debug_assert!(token < self.tokens && first + len <= self.rows.len());
        let at = self
            .order
            .map_or(token, |order| order.outputs[token] as usize);
        // SAFETY: the buffer holds `matrix.rows` outputs for each activation row, and the caller says that this part
        // is unshared.
        unsafe {
            let start = self
                .out
                .0
                .add(at * self.matrix.rows + self.rows.start + first);
            std::slice::from_raw_parts_mut(start, len)
        }
    }
}

/// The start of an output buffer that tasks write disjoint parts of.
#[derive(Clone, Copy)]
pub(super) struct Output(pub *mut f32);

// SAFETY: only `RowTask::out` uses the pointer, under its contract.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// The functions that multiply with a matrix of one type.
#[derive(Clone, Copy)]
pub(super) struct Ops {
    pub float: fn(&RowTask<'_>, FloatInput<'_>),
    /// Whether activations may be rounded to `BF16`.
    pub is_bf16: bool,
    pub code: Option<CodeOps>,
}

#[derive(Clone, Copy)]
pub(super) struct CodeOps {
    pub gemv: fn(&RowTask<'_>, &RowBuffers),
    pub gemm: fn(&RowTask<'_>, &[Group]),
    pub sums: SumKind,
}

pub(super) struct PickOps;

impl TypeVisitor for PickOps {
    type Output = Ops;

    fn float<T: CpuType>(self) -> Ops {
        Ops {
            float: float::rows::<T>,
            is_bf16: T::TYPE == GgmlType::BF16,
            code: None,
        }
    }

    fn code<T: CpuCode>(self) -> Ops {
        let sums = const { SumKind::of::<T>() };
        let code = CodeOps {
            gemv: gemv::rows::<T>,
            gemm: gemm::rows::<T>,
            sums,
        };
        Ops {
            float: float::code_rows::<T>,
            is_bf16: false,
            code: Some(code),
        }
    }
}

/// Activations in other forms, kept by each calling thread so that a call need not allocate.
#[derive(Default)]
pub(super) struct Inputs {
    pub rows: RowBuffers,
    pub groups: Vec<Group>,
    pub floats: Packed,
    pub bf16: Packed,
}

impl Inputs {
    /// Packs activation rows, `[_, cols]`, for the operations that want it: in `BF16` if `pairs`, in `f32` if some task
    /// has enough of them.
    pub(super) fn pack(
        &mut self,
        x: &[f32],
        cols: usize,
        ops: &[Ops],
        codes: &[Option<CodeOps>],
        pairs: bool,
        many: bool,
    ) {
        let mut of_floats = ops.iter().zip(codes).filter(|(_, codes)| codes.is_none());
        if pairs && ops.iter().any(|ops| ops.is_bf16) {
            bf16::pack(x, cols, &mut self.bf16);
        }
        if many && of_floats.any(|(ops, _)| !(pairs && ops.is_bf16)) {
            float::pack(x, cols, &mut self.floats);
        }
    }
}

thread_local! {
    // Taken out while in use: a caller that waits inside rayon may find itself in another call.
    pub(super) static INPUTS: Cell<Inputs> = Cell::default();
}

fn multiply(
    matrices: &[Matrix<'_>],
    x: &[f32],
    n: usize,
    outs: &mut [&mut [f32]],
    arithmetic: Arithmetic,
    isa: Isa,
) -> Result<(), CpuError> {
    let ops = check(matrices, x, n, outs)?;
    let Some(&Matrix { cols, .. }) = matrices.first() else {
        return Ok(());
    };
    if cols == 0 {
        outs.iter_mut().for_each(|out| out.fill(0.0));
        return Ok(());
    }
    let codes: Vec<Option<CodeOps>> = match arithmetic {
        Arithmetic::Exact => vec![None; ops.len()],
        Arithmetic::Fast => ops.iter().map(|ops| ops.code).collect(),
    };
    let mut inputs = INPUTS.take();
    for first in (0..n).step_by(MAX_TOKENS) {
        let tokens = MAX_TOKENS.min(n - first);
        let x = &x[first * cols..][..tokens * cols];
        let gemv = tokens <= MAX_GEMV_TOKENS;
        if gemv {
            if codes.iter().any(Option::is_some) {
                inputs.rows.quantize(x, cols, isa);
            }
        } else {
            let kinds = distinct(codes.iter().flatten().map(|code| code.sums));
            if !kinds.is_empty() {
                Group::quantize_all(&mut inputs.groups, x, cols, &kinds, isa);
            }
        }
        let pairs = arithmetic == Arithmetic::Fast && bf16::is_usable(isa, cols);
        inputs.pack(x, cols, &ops, &codes, pairs, tokens >= PANEL_TOKENS);
        let floats = FloatInput {
            rows: x,
            packed: &inputs.floats,
        };
        let tasks = tasks(isa, matrices, &codes, outs, first, tokens);
        parallel::for_each(tasks.len(), |i| {
            let (index, task) = &tasks[i];
            match codes[*index] {
                None if pairs && ops[*index].is_bf16 => bf16::rows(task, &inputs.bf16),
                None => (ops[*index].float)(task, floats),
                Some(code) if gemv => (code.gemv)(task, &inputs.rows),
                Some(code) => (code.gemm)(task, &inputs.groups[..tokens.div_ceil(GROUP)]),
            }
        });
    }
    INPUTS.set(inputs);
    Ok(())
}

/// The work on activation rows `first..first + tokens`: for each task the index of its matrix, and its rows.
fn tasks<'a>(
    isa: Isa,
    matrices: &[Matrix<'a>],
    codes: &[Option<CodeOps>],
    outs: &mut [&mut [f32]],
    first: usize,
    tokens: usize,
) -> Vec<(usize, RowTask<'a>)> {
    let threads = rayon::current_num_threads();
    let total: usize = matrices.iter().map(|matrix| matrix.rows).sum();
    // An even share of all rows of the call.
    let even = if threads == 1 {
        total
    } else {
        total.div_ceil(threads * TASKS_PER_THREAD)
    };
    let mut tasks = Vec::new();
    for (index, (&matrix, out)) in matrices.iter().zip(outs).enumerate() {
        let out = Output(out[first * matrix.rows..].as_mut_ptr());
        let step = rows_per_task(even, tokens, matrix.cols, codes[index].is_some());
        for start in (0..matrix.rows).step_by(step) {
            let rows = start..matrix.rows.min(start + step);
            let (row_bytes, cols) = (matrix.bytes.len() / matrix.rows, matrix.cols);
            tasks.push((
                index,
                RowTask {
                    isa,
                    matrix,
                    row_bytes,
                    cols,
                    rows,
                    tokens,
                    order: None,
                    out,
                },
            ));
        }
    }
    tasks
}

/// Rows of one task: `even` within bounds, and whole panels.
pub(super) fn rows_per_task(even: usize, tokens: usize, cols: usize, codes: bool) -> usize {
    let least = MIN_TASK_WORK.div_ceil(tokens * cols);
    let (even, most, step) = match codes {
        // Fewer and larger tasks: each reads all activations.
        false if tokens >= PANEL_TOKENS => (2 * even, panel::MAX_ROWS, panel::ROWS),
        true if tokens > MAX_GEMV_TOKENS => (even, (PANEL_BYTES / cols).max(1), ROW_STEP),
        _ => (even, usize::MAX / 2, ROW_STEP),
    };
    even.max(least).clamp(1, most).next_multiple_of(step)
}

/// The values without repetition, in order of first appearance.
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
