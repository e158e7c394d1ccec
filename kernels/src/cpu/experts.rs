//! `linear_experts`: each activation row times the matrices of the experts chosen for it.
//!
//! Activations are quantized once, then the chosen slots are sorted by expert, so that an expert's matrix is read once
//! for all tokens that chose it: row by row for few, panel by panel for many. One parallel region covers the row
//! ranges of all experts of all stacks. Every output is bit-equal to what [`linear`](super::linear) gives for the rows
//! of the same expert.

use super::dequantize::check_bytes;
use super::error::CpuError;
use super::float::{FloatInput, PANEL_TOKENS};
use super::input::Group;
use super::isa::Isa;
use super::level::GROUP;
use super::linear::{
    Arithmetic, CodeOps, INPUTS, Inputs, MAX_GEMV_TOKENS, Matrix, Ops, Order, Output, PickOps,
    RowTask, TASKS_PER_THREAD, distinct, rows_per_task,
};
use super::types::visit;
use super::{bf16, input, parallel};
use crate::GgmlType;
use rayon::prelude::*;
use std::ops::Range;

/// A stack of weight matrices of one shape and type, as GGUF stores them: expert after expert.
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a> {
    /// The block type.
    pub ty: GgmlType,
    /// `experts` matrices of `rows` rows of `ty.row_bytes(cols)` bytes, at any alignment.
    pub bytes: &'a [u8],
    /// Matrices.
    pub experts: usize,
    /// Outputs of each.
    pub rows: usize,
    /// Inputs; whole blocks.
    pub cols: usize,
}

impl<'a> Experts<'a> {
    /// The matrix of one expert.
    fn matrix(&self, expert: usize) -> Matrix<'a> {
        let size = self.bytes.len() / self.experts;
        Matrix {
            ty: self.ty,
            bytes: &self.bytes[expert * size..][..size],
            rows: self.rows,
            cols: self.cols,
        }
    }
}

/// The activation rows of [`linear_experts`].
#[derive(Clone, Copy, Debug)]
pub enum ExpertInput<'a> {
    /// `[tokens, cols]`: every expert chosen for a token gets the token's row, as gate and up projections do.
    Tokens(&'a [f32]),
    /// `[tokens, chosen, cols]`: every chosen slot has a row of its own, as the down projection needs.
    Slots(&'a [f32]),
}

/// Values quantized at a time: bounds the buffers.
const MAX_VALUES: usize = 1 << 24;

/// Multiplies activation rows with the experts chosen for them: row `[token, slot]` of `y`, `[tokens, chosen, rows]`,
/// is the product of the token's (or slot's) activation row with matrix `ids[token, slot]`. `ids` is
/// `[tokens, chosen]`.
///
/// Runs on rayon's current pool; best called from inside it (`ThreadPool::install`).
///
/// # Errors
/// If the type is not implemented, a size does not fit, or an id is outside the stack.
pub fn linear_experts(
    w: Experts<'_>,
    x: ExpertInput<'_>,
    ids: &[i64],
    chosen: usize,
    y: &mut [f32],
    arithmetic: Arithmetic,
) -> Result<(), CpuError> {
    linear_experts_many(&[w], x, ids, chosen, &mut [y], arithmetic)
}

/// As [`linear_experts`] with several stacks of the same `experts` and `cols` (gate and up), the `i`th into `outs[i]`:
/// in one parallel region, with the activations quantized once.
///
/// # Errors
/// As [`linear_experts`], and if the stacks differ in `experts` or `cols`.
pub fn linear_experts_many(
    stacks: &[Experts<'_>],
    x: ExpertInput<'_>,
    ids: &[i64],
    chosen: usize,
    outs: &mut [&mut [f32]],
    arithmetic: Arithmetic,
) -> Result<(), CpuError> {
    multiply(stacks, x, ids, chosen, outs, arithmetic, Isa::current())
}

/// As [`linear_experts_many`], at a given level: for tests and benchmarks.
///
/// # Errors
/// As [`linear_experts_many`], and if this CPU lacks the level.
pub fn linear_experts_many_at(
    isa: Isa,
    stacks: &[Experts<'_>],
    x: ExpertInput<'_>,
    ids: &[i64],
    chosen: usize,
    outs: &mut [&mut [f32]],
    arithmetic: Arithmetic,
) -> Result<(), CpuError> {
    if !isa.is_available() {
        return Err(CpuError::IsaUnavailable(isa));
    }
    multiply(stacks, x, ids, chosen, outs, arithmetic, isa)
}

/// The slots of a call in the order of their experts.
#[derive(Default)]
struct Sorted {
    /// The input row of each slot.
    inputs: Vec<u32>,
    /// The output row of each slot.
    outputs: Vec<u32>,
    /// For each expert in use, its number, its part of the slots, and the first of its groups of quantized rows,
    /// counted over the experts that have any.
    experts: Vec<(usize, Range<usize>, usize)>,
    /// Groups of all experts.
    groups: usize,
}

impl Sorted {
    /// Sorts the ids, all below `experts`; each input row serves `outputs_per_input` consecutive ones.
    fn new(ids: &[i64], experts: usize, outputs_per_input: usize) -> Self {
        let mut starts = vec![0usize; experts + 1];
        for &id in ids {
            starts[id as usize + 1] += 1;
        }
        let mut sorted = Self::default();
        for expert in 0..experts {
            let count = starts[expert + 1];
            starts[expert + 1] += starts[expert];
            if count > 0 {
                let slots = starts[expert]..starts[expert + 1];
                sorted.experts.push((expert, slots, sorted.groups));
                if count > MAX_GEMV_TOKENS {
                    sorted.groups += count.div_ceil(GROUP);
                }
            }
        }
        sorted.inputs.resize(ids.len(), 0);
        sorted.outputs.resize(ids.len(), 0);
        for (output, &id) in ids.iter().enumerate() {
            let at = &mut starts[id as usize];
            sorted.outputs[*at] = output as u32;
            sorted.inputs[*at] = (output / outputs_per_input) as u32;
            *at += 1;
        }
        sorted
    }
}

fn multiply(
    stacks: &[Experts<'_>],
    x: ExpertInput<'_>,
    ids: &[i64],
    chosen: usize,
    outs: &mut [&mut [f32]],
    arithmetic: Arithmetic,
    isa: Isa,
) -> Result<(), CpuError> {
    let ops = check(stacks, x, ids, chosen, outs)?;
    let (Some(&Experts { cols, experts, .. }), false) = (stacks.first(), ids.is_empty()) else {
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
    let kinds = distinct(codes.iter().flatten().map(|code| code.sums));
    let (x, per_token, shared) = match x {
        ExpertInput::Tokens(x) => (x, cols, chosen),
        ExpertInput::Slots(x) => (x, cols * chosen, 1),
    };
    let most = (MAX_VALUES / per_token.max(chosen)).max(1);
    let mut inputs = INPUTS.take();
    for (index, (x, ids)) in x
        .chunks(most * per_token)
        .zip(ids.chunks(most * chosen))
        .enumerate()
    {
        let sorted = Sorted::new(ids, experts, shared);
        if !kinds.is_empty() {
            inputs.rows.quantize(x, cols, isa);
            gather(&mut inputs, &sorted, &kinds);
        }
        let pairs = arithmetic == Arithmetic::Fast && bf16::is_usable(isa, cols);
        let many = sorted
            .experts
            .iter()
            .any(|(_, slots, _)| slots.len() >= PANEL_TOKENS);
        inputs.pack(x, cols, &ops, &codes, pairs, many);
        let floats = FloatInput {
            rows: x,
            packed: &inputs.floats,
        };
        let tasks = tasks(isa, stacks, &codes, outs, index * most * chosen, &sorted);
        parallel::for_each(tasks.len(), |i| {
            let Task {
                stack,
                groups,
                rows,
            } = &tasks[i];
            match codes[*stack] {
                None if pairs && ops[*stack].is_bf16 => bf16::rows(rows, &inputs.bf16),
                None => (ops[*stack].float)(rows, floats),
                Some(code) if rows.tokens <= MAX_GEMV_TOKENS => (code.gemv)(rows, &inputs.rows),
                Some(code) => (code.gemm)(rows, &inputs.groups[groups.clone()]),
            }
        });
    }
    INPUTS.set(inputs);
    Ok(())
}

/// Collects the quantized rows of every expert that many tokens chose.
fn gather(inputs: &mut Inputs, sorted: &Sorted, kinds: &[input::SumKind]) {
    input::grow(&mut inputs.groups, sorted.groups);
    let mut rest = &mut inputs.groups[..];
    let mut parts = Vec::new();
    for (_, slots, _) in &sorted.experts {
        if slots.len() > MAX_GEMV_TOKENS {
            let (groups, after) = rest.split_at_mut(slots.len().div_ceil(GROUP));
            let rows = sorted.inputs[slots.clone()].chunks(GROUP);
            parts.extend(groups.chunks_mut(1).zip(rows));
            rest = after;
        }
    }
    let from = &inputs.rows;
    parts
        .into_par_iter()
        .for_each(|(groups, rows)| Group::gather_all(groups, from, rows, kinds));
}

/// Some rows of one expert, for all slots that chose it.
struct Task<'a> {
    /// Which of the stacks.
    stack: usize,
    /// Where the slots' rows lie, quantized and grouped, if they are many.
    groups: Range<usize>,
    rows: RowTask<'a>,
}

/// The work on all slots; their outputs start at row `first` of each of `outs`.
fn tasks<'a>(
    isa: Isa,
    stacks: &[Experts<'a>],
    codes: &[Option<CodeOps>],
    outs: &mut [&mut [f32]],
    first: usize,
    sorted: &'a Sorted,
) -> Vec<Task<'a>> {
    let rows: usize = stacks.iter().map(|stack| stack.rows).sum();
    let threads = rayon::current_num_threads();
    // In rows times slots.
    let even = rows.saturating_mul(sorted.inputs.len()) / (threads * TASKS_PER_THREAD);
    let mut tasks = Vec::new();
    for (stack, (of, out)) in stacks.iter().zip(outs).enumerate() {
        let out = Output(out[first * of.rows..].as_mut_ptr());
        for (expert, slots, group) in &sorted.experts {
            let (matrix, tokens) = (of.matrix(*expert), slots.len());
            let groups = if tokens <= MAX_GEMV_TOKENS {
                0..0
            } else {
                *group..group + tokens.div_ceil(GROUP)
            };
            let step = rows_per_task(even / tokens, tokens, of.cols, codes[stack].is_some());
            for start in (0..of.rows).step_by(step) {
                let rows = RowTask {
                    isa,
                    matrix,
                    row_bytes: matrix.bytes.len() / of.rows,
                    cols: of.cols,
                    rows: start..of.rows.min(start + step),
                    tokens,
                    order: Some(Order {
                        inputs: &sorted.inputs[slots.clone()],
                        outputs: &sorted.outputs[slots.clone()],
                    }),
                    out,
                };
                let groups = groups.clone();
                tasks.push(Task {
                    stack,
                    groups,
                    rows,
                });
            }
        }
    }
    tasks
}

/// Checks all arguments, and returns the functions of every stack's type.
fn check(
    stacks: &[Experts<'_>],
    x: ExpertInput<'_>,
    ids: &[i64],
    chosen: usize,
    outs: &[&mut [f32]],
) -> Result<Vec<Ops>, CpuError> {
    if stacks.len() != outs.len() {
        return Err(CpuError::OutputCount {
            matrices: stacks.len(),
            outputs: outs.len(),
        });
    }
    if ids.len() != ids.len().checked_div(chosen).unwrap_or(0) * chosen {
        return Err(CpuError::PartialChoice {
            ids: ids.len(),
            chosen,
        });
    }
    let Some(&Experts { experts, cols, .. }) = stacks.first() else {
        return Ok(Vec::new());
    };
    let mut ops = Vec::with_capacity(stacks.len());
    for (index, (stack, out)) in stacks.iter().zip(outs).enumerate() {
        ops.push(visit(stack.ty, "linear_experts", PickOps)?);
        check_stack(index, stack, &stacks[0])?;
        check_length("y", ids.len(), stack.rows, out.len())?;
    }
    match x {
        ExpertInput::Tokens(x) => check_length(
            "x",
            ids.len().checked_div(chosen).unwrap_or(0),
            cols,
            x.len(),
        )?,
        ExpertInput::Slots(x) => check_length("x", ids.len(), cols, x.len())?,
    }
    for (at, &id) in ids.iter().enumerate() {
        if usize::try_from(id).is_err() || id as usize >= experts {
            return Err(CpuError::ExpertOutOfRange {
                id,
                token: at / chosen,
                slot: at % chosen,
                experts,
            });
        }
    }
    Ok(ops)
}

/// Checks a stack's bytes, and that it fits the first one.
fn check_stack(index: usize, stack: &Experts<'_>, first: &Experts<'_>) -> Result<(), CpuError> {
    let &Experts {
        ty,
        bytes,
        experts,
        rows,
        cols,
    } = stack;
    if cols != first.cols {
        return Err(CpuError::MixedColumns {
            index,
            expected: first.cols,
            actual: cols,
        });
    }
    if experts != first.experts {
        return Err(CpuError::MixedExperts {
            index,
            expected: first.experts,
            actual: experts,
        });
    }
    if !cols.is_multiple_of(ty.block_len()) {
        return Err(CpuError::PartialBlock { ty, len: cols });
    }
    let values = rows
        .checked_mul(experts)
        .and_then(|rows| rows.checked_mul(cols))
        .ok_or(CpuError::Overflow { rows, cols })?;
    check_bytes(ty, values, bytes)
}

/// Checks that a buffer holds `rows` rows of `cols` values.
fn check_length(
    what: &'static str,
    rows: usize,
    cols: usize,
    actual: usize,
) -> Result<(), CpuError> {
    let expected = rows
        .checked_mul(cols)
        .ok_or(CpuError::Overflow { rows, cols })?;
    if actual == expected {
        return Ok(());
    }
    Err(CpuError::BufferLength {
        what,
        expected,
        actual,
    })
}
