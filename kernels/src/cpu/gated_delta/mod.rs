//! The gated delta rule (Yang et al. 2024): linear attention with a matrix of state per head that each token fades,
//! corrects and reads.
//!
//! With `a` the decay and `b` the strength of a token, `S' = a S`, `d = b (v - S'^T k)`, `S = S' + k d^T` and
//! `o = S^T q = a S^T q + (k . q) d`: both products read the old state, so a token needs one pass that reads and one that
//! updates. [`BLOCK`] tokens share the two passes, what they do to each other being sums over their few keys (the WY
//! form of the paper, on blocks small enough to stay in registers). Longer chunks would save no arithmetic here:
//! the passes then cost `3 + 1 / BLOCK` operations a value and token, and the products of chunks of 32 or 64 about 3.5.
//!
//! A prompt's passes run over tiles of a few columns, copied to where they lie densely: a tile stays in the first-level
//! cache for [`CHUNK`] tokens. A single token goes over the state as it lies.

mod tile;

#[cfg(test)]
mod tests;

use super::Isa;
use super::shape_error::{ShapeError, check, positive, product};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};
use std::ops::Range;
use tile::{Block, Tile, load_n, store_n};

/// Tokens that share passes over the state.
const BLOCK: usize = 4;
/// Tokens for which a tile of the state stays in cache.
const CHUNK: usize = 32;

/// Sizes of a [`gated_delta`] call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedDeltaShape {
    /// Independent sequences.
    pub batch: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads, a multiple of the key heads.
    pub value_heads: usize,
    /// Values of a head, of any kind.
    pub head_dim: usize,
    /// Whether the value heads of one key head follow each other; else value head `n` reads key head `n % key_heads`.
    pub grouped: bool,
    /// Epsilon of the norms.
    pub eps: f32,
}

/// What a [`gated_delta`] call reads.
#[derive(Clone, Copy, Debug)]
pub struct GatedDeltaInput<'a> {
    /// Queries, keys and values side by side, `[batch, tokens, (2 * key_heads + value_heads) * head_dim]`.
    pub mixed: &'a [f32],
    /// The output's gate before its activation, `[batch, tokens, value_heads * head_dim]`.
    pub gate: &'a [f32],
    /// Strength of the correction before its activation, `[batch, tokens, value_heads]`.
    pub beta: &'a [f32],
    /// Decay before its activation, `[batch, tokens, value_heads]`.
    pub alpha: &'a [f32],
    /// Factor of the decay's exponent, negative, `[value_heads]`.
    pub a: &'a [f32],
    /// Added to `alpha`, `[value_heads]`.
    pub dt: &'a [f32],
    /// Weight of the output's norm, `[head_dim]`.
    pub norm: &'a [f32],
}

/// Token by token, for each value head with its matrix `S` of `state` `[batch, value_heads, head_dim (key), head_dim
/// (value)]`: `q` and `k` are normalized (`x / sqrt(sum x^2 + eps)`, `q` also divided by `sqrt(head_dim)`);
/// `S *= exp(a * softplus(alpha + dt))`; `S += k (sigmoid(beta) (v - S^T k))^T`;
/// `out = rms_norm(S^T q) * norm * silu(gate)`, `[batch, tokens, value_heads * head_dim]`.
///
/// # Errors
/// When a slice does not have its shape, a size is zero, or the heads do not divide.
pub fn gated_delta(
    input: GatedDeltaInput<'_>,
    shape: &GatedDeltaShape,
    state: &mut [f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    gated_delta_with(Isa::current(), input, shape, state, out)
}

pub(crate) fn gated_delta_with(
    isa: Isa,
    input: GatedDeltaInput<'_>,
    shape: &GatedDeltaShape,
    state: &mut [f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let &GatedDeltaShape {
        batch,
        tokens,
        key_heads,
        value_heads,
        head_dim,
        ..
    } = shape;
    positive("key_heads", key_heads)?;
    positive("value_heads", value_heads)?;
    positive("head_dim", head_dim)?;
    if !value_heads.is_multiple_of(key_heads) {
        return Err(ShapeError::HeadGroups {
            n_heads: value_heads,
            n_kv_heads: key_heads,
        });
    }
    let heads = key_heads
        .checked_mul(2)
        .and_then(|n| n.checked_add(value_heads))
        .ok_or(ShapeError::Overflow { what: "mixed" })?;
    let inner = product("gate", &[value_heads, head_dim])?;
    check(
        "mixed",
        input.mixed.len(),
        &[batch, tokens, heads, head_dim],
    )?;
    check("gate", input.gate.len(), &[batch, tokens, inner])?;
    check("out", out.len(), &[batch, tokens, inner])?;
    check("beta", input.beta.len(), &[batch, tokens, value_heads])?;
    check("alpha", input.alpha.len(), &[batch, tokens, value_heads])?;
    check("a", input.a.len(), &[value_heads])?;
    check("dt", input.dt.len(), &[value_heads])?;
    check("norm", input.norm.len(), &[head_dim])?;
    check("state", state.len(), &[batch, inner, head_dim])?;
    if tokens == 0 {
        return Ok(());
    }
    let (state, out) = (SharedMut::new(state), SharedMut::new(out));
    let n = batch * value_heads;
    // A quarter of a nanosecond a value and token in cache; bringing a value there and back costs as much again.
    let ns = (head_dim * head_dim) as f64 * 0.25 * (tokens + 1) as f64;
    for_each_range(n, items_per_task(n, ns), &|heads| {
        let run = Run {
            input,
            shape,
            state,
            out,
            heads,
        };
        dispatch(isa, run);
    });
    Ok(())
}

struct Run<'a> {
    input: GatedDeltaInput<'a>,
    shape: &'a GatedDeltaShape,
    /// Both checked against the shape; the matrices and outputs of `heads` are this task's alone.
    state: SharedMut<f32>,
    out: SharedMut<f32>,
    /// Value heads, counted over the batch.
    heads: Range<usize>,
}

impl Kernel for Run<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let shape = self.shape;
        let mut scratch = Scratch::new(shape.tokens.min(CHUNK), shape.head_dim, 2 * V::LANES);
        for index in self.heads.clone() {
            let head = Head::new(&self, index);
            let mut start = 0;
            while start < shape.tokens {
                let end = shape.tokens.min(start + CHUNK);
                head.chunk::<V>(start..end, &mut scratch);
                start = end;
            }
        }
    }
}

/// Buffers of a task.
struct Scratch {
    /// The normalized keys and queries of a block, `[2 * BLOCK, head_dim]`.
    rows: Vec<f32>,
    /// Those of a chunk, block by block `[head_dim, 2 * tokens]`.
    keys: Vec<f32>,
    /// A tile of the state.
    tile: Vec<f32>,
    blocks: Vec<Block>,
}

impl Scratch {
    fn new(tokens: usize, dim: usize, columns: usize) -> Self {
        Self {
            rows: vec![0.0; 2 * BLOCK * dim],
            keys: vec![0.0; 2 * tokens * dim],
            tile: vec![0.0; dim * columns],
            blocks: Vec::with_capacity(tokens),
        }
    }
}

/// One value head of one sequence.
struct Head<'a> {
    input: GatedDeltaInput<'a>,
    shape: &'a GatedDeltaShape,
    state: *mut f32,
    out: *mut f32,
    /// The first row of its sequence.
    first: usize,
    index: usize,
    key_head: usize,
}

impl<'a> Head<'a> {
    fn new(run: &Run<'a>, index: usize) -> Self {
        let shape = run.shape;
        let dim = shape.head_dim;
        let (item, head) = (index / shape.value_heads, index % shape.value_heads);
        let key_head = match shape.grouped {
            true => head / (shape.value_heads / shape.key_heads),
            false => head % shape.key_heads,
        };
        let first = item * shape.tokens;
        Self {
            input: run.input,
            shape,
            // SAFETY: `index` is below `batch * value_heads`, the number of matrices.
            state: unsafe { run.state.get().add(index * dim * dim) },
            // SAFETY: a head of an existing row.
            out: unsafe { run.out.get().add((first * shape.value_heads + head) * dim) },
            first,
            index: head,
            key_head,
        }
    }

    /// Tokens of the sequence, at most [`CHUNK`].
    #[inline(always)]
    fn chunk<V: Vector>(&self, tokens: Range<usize>, scratch: &mut Scratch) {
        let n = tokens.len();
        scratch.blocks.clear();
        let mut at = 0;
        while at < n {
            let len = if n - at >= BLOCK { BLOCK } else { 1 };
            self.prepare::<V>(tokens.start + at, at, len, scratch);
            at += len;
        }
        let tile = Tile {
            dim: self.shape.head_dim,
            keys: scratch.keys.as_ptr(),
            blocks: &scratch.blocks,
            values: self.value(tokens.start),
            value_stride: self.row_len(),
            // SAFETY: `tokens` are of the sequence.
            out: unsafe { self.out.add(tokens.start * self.inner()) },
            out_stride: self.inner(),
        };
        // SAFETY: the state is `[dim, dim]`, this task's alone, and the scratch tile has two registers a row; keys,
        // values and outputs have the rows of the blocks, which are the tokens.
        unsafe { tile.run::<V>(self.state, scratch.tile.as_mut_ptr(), n < BLOCK) };
        for t in tokens {
            self.gate::<V>(t);
        }
    }

    fn inner(&self) -> usize {
        self.shape.value_heads * self.shape.head_dim
    }

    fn row_len(&self) -> usize {
        2 * self.shape.key_heads * self.shape.head_dim + self.inner()
    }

    /// This head's values of token `t`.
    fn value(&self, t: usize) -> *const f32 {
        let shape = self.shape;
        let at = (2 * shape.key_heads + self.index) * shape.head_dim;
        self.input.mixed[(self.first + t) * self.row_len() + at..].as_ptr()
    }

    /// Normalizes keys and queries of the `len` tokens from `t` on, the chunk's from `at` on, and what they are to
    /// each other.
    #[inline(always)]
    fn prepare<V: Vector>(&self, t: usize, at: usize, len: usize, scratch: &mut Scratch) {
        let shape = self.shape;
        let dim = shape.head_dim;
        let scale = 1.0 / (dim as f32).sqrt();
        let mut block = Block {
            len,
            ..Block::default()
        };
        for i in 0..len {
            let row = &self.input.mixed[(self.first + t + i) * self.row_len()..];
            let query = &row[self.key_head * dim..][..dim];
            let key = &row[(shape.key_heads + self.key_head) * dim..][..dim];
            for (from, to, scale) in [(key, i, 1.0), (query, len + i, scale)] {
                let factor = scale / (dot::<V>(from, from) + shape.eps).sqrt();
                let to = &mut scratch.rows[to * dim..][..dim];
                to.iter_mut().zip(from).for_each(|(to, x)| *to = x * factor);
            }
            let at = (self.first + t + i) * shape.value_heads + self.index;
            let step = self.input.alpha[at] + self.input.dt[self.index];
            block.decay[i] = (self.input.a[self.index] * softplus(step)).exp();
            block.strength[i] = sigmoid(self.input.beta[at]);
        }
        let row = |i: usize| &scratch.rows[i * dim..][..dim];
        for i in 0..len {
            for j in 0..=i {
                block.keys[i][j] = dot::<V>(row(i), row(j));
                block.queries[i][j] = dot::<V>(row(len + i), row(j));
            }
        }
        block.fade();
        let to = &mut scratch.keys[2 * at * dim..][..2 * len * dim];
        interleave(&scratch.rows, to, dim, len);
        scratch.blocks.push(block);
    }

    /// `rms_norm(out) * norm * silu(gate)` of token `t`.
    #[inline(always)]
    fn gate<V: Vector>(&self, t: usize) {
        let dim = self.shape.head_dim;
        let at = (self.first + t) * self.inner() + self.index * dim;
        let gate = &self.input.gate[at..][..dim];
        // SAFETY: a row of the head's output, which no other task touches.
        let out = unsafe { std::slice::from_raw_parts_mut(self.out.add(t * self.inner()), dim) };
        let norm = 1.0 / (dot::<V>(out, out) / dim as f32 + self.shape.eps).sqrt();
        let norm = V::splat(norm);
        for i in (0..dim).step_by(V::LANES) {
            let n = dim - i;
            // SAFETY: `n` elements are left in each, and a register is cut there.
            unsafe {
                let g = load_n::<V>(gate.as_ptr().add(i), n);
                let silu = g.div(V::splat(0.0).sub(g).exp().add(V::splat(1.0)));
                let weight = load_n::<V>(self.input.norm.as_ptr().add(i), n);
                let o = load_n::<V>(out.as_ptr().add(i), n).mul(norm).mul(weight);
                store_n(o.mul(silu), out.as_mut_ptr().add(i), n);
            }
        }
    }
}

/// `[2 * len, dim]` to `[dim, 2 * len]`.
#[inline(always)]
fn interleave(rows: &[f32], to: &mut [f32], dim: usize, len: usize) {
    if len == BLOCK {
        let rows: [&[f32]; 2 * BLOCK] = std::array::from_fn(|i| &rows[i * dim..][..dim]);
        for (i, to) in to.as_chunks_mut::<{ 2 * BLOCK }>().0.iter_mut().enumerate() {
            *to = std::array::from_fn(|r| rows[r][i]);
        }
    } else {
        let n = 2 * len;
        for (i, to) in to.chunks_exact_mut(n).enumerate() {
            to.iter_mut()
                .enumerate()
                .for_each(|(r, to)| *to = rows[r * dim + i]);
        }
    }
}

#[inline(always)]
fn dot<V: Vector>(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [V::splat(0.0); 4];
    for (r, i) in (0..a.len().min(b.len())).step_by(V::LANES).enumerate() {
        let n = a.len().min(b.len()) - i;
        // SAFETY: `n` elements are left in both, and a register is cut there.
        unsafe {
            let (a, b) = (
                load_n::<V>(a.as_ptr().add(i), n),
                load_n::<V>(b.as_ptr().add(i), n),
            );
            sums[r % 4] = a.fma(b, sums[r % 4]);
        }
    }
    sums[0].add(sums[1]).add(sums[2].add(sums[3])).reduce_add()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`, without overflow.
fn softplus(x: f32) -> f32 {
    match x > 20.0 {
        true => x,
        false => x.exp().ln_1p(),
    }
}
