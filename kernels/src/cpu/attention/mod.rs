//! Scaled dot-product attention over a key/value cache, without a score matrix in memory.
//!
//! All query heads that share a key/value head are worked on together, so a key is read once for all of them. A unit
//! of work ([`Item`]) is one key/value head, some tokens of this call and a range of keys; it walks the keys in blocks
//! and keeps, per query row, the largest score so far, the sum of the weights and the weighted sum of values, all
//! rescaled when the largest score grows (the streaming softmax of Milakov and Gimelshein, as used by FlashAttention).
//! Scores are kept in units of ln 2, so weights are powers of two.
//!
//! Two kernels do this. [`tile`] has query rows in the lanes and serves many rows; [`stream`] has the head's elements
//! in the lanes and serves the few rows of decoding. Where there are fewer items than threads can share, the keys are
//! split too, and the partial results merged by [`merge`].

mod blocks;
mod merge;
mod scratch;
// Inner loops: sizes and pointers as plain arguments, and blocks of registers read best by index.
#[allow(clippy::needless_range_loop, clippy::too_many_arguments)]
mod stream;
#[allow(clippy::needless_range_loop, clippy::too_many_arguments)]
mod tile;

#[cfg(test)]
mod tests;

pub use blocks::{KeyBlocks, attention_blocks};

use super::Isa;
use super::kv_cache::KvView;
use super::shape_error::{ShapeError, check, positive};
use super::split::{SharedMut, for_each_range, least_items};
use super::vector::{Element, Kernel, Vector, dispatch};
use std::ops::Range;

/// Sizes of an attention call.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Tokens of this call.
    pub tokens: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; query head `h` reads key/value head `h / (n_heads / n_kv_heads)`.
    pub n_kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Rows the cache holds per head.
    pub capacity: usize,
    /// Rows of the cache that are valid, this call's tokens at their end: token `t` is at `len - tokens + t`.
    pub len: usize,
}

/// What is computed from the scores.
#[derive(Clone, Copy, Debug)]
pub struct AttentionParams {
    /// Factor on the dot products, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Whether keys after the query are hidden.
    pub causal: bool,
    /// With `Some(w)`, keys `w` or more positions before the query are hidden.
    pub window: Option<usize>,
    /// With `Some(c)`, `c > 0`, scores become `c * tanh(score / c)`.
    pub softcap: Option<f32>,
}

/// `out[t, h] = sum_k softmax_k(scale * q[t, h] . k[h', k]) * v[h', k]` over the keys visible to token `t`.
///
/// `q` and `out` are `[tokens, n_heads, head_dim]`, `k` and `v` `[n_kv_heads, capacity, head_dim]`. A token that sees
/// no key at all (a window of 0) gives zeros. Products of queries and keys must stay within `f32`.
///
/// # Errors
/// When a slice does not have its shape, a dimension is zero, heads do not divide evenly, or `len` is less than
/// `tokens` or more than `capacity`.
pub fn attention(
    q: &[f32],
    k: KvView<'_>,
    v: KvView<'_>,
    shape: &AttentionShape,
    params: &AttentionParams,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    attention_with(Isa::current(), None, q, k, v, shape, params, None, out)
}

/// Which kernel to use, for tests; chosen by the number of rows otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Tile,
    Stream,
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn attention_with(
    isa: Isa,
    method: Option<Method>,
    q: &[f32],
    k: KvView<'_>,
    v: KvView<'_>,
    shape: &AttentionShape,
    params: &AttentionParams,
    blocks: Option<KeyBlocks<'_>>,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let &AttentionShape {
        tokens,
        n_heads,
        n_kv_heads,
        head_dim,
        capacity,
        len,
    } = shape;
    positive("n_heads", n_heads)?;
    positive("n_kv_heads", n_kv_heads)?;
    positive("head_dim", head_dim)?;
    if !n_heads.is_multiple_of(n_kv_heads) {
        return Err(ShapeError::HeadGroups {
            n_heads,
            n_kv_heads,
        });
    }
    if len > capacity {
        return Err(ShapeError::CacheFull {
            rows: len,
            capacity,
        });
    }
    if tokens > len {
        return Err(ShapeError::CacheTooShort { tokens, len });
    }
    check("q", q.len(), &[tokens, n_heads, head_dim])?;
    check("out", out.len(), &[tokens, n_heads, head_dim])?;
    check("k", k.len(), &[n_kv_heads, capacity, head_dim])?;
    check("v", v.len(), &[n_kv_heads, capacity, head_dim])?;
    if let Some(blocks) = &blocks {
        blocks.check(shape)?;
    }

    // One for each pair of types.
    macro_rules! problem {
        ($k:ident, $v:ident) => {
            Problem {
                q,
                k: $k,
                v: $v,
                shape: *shape,
                params: *params,
                blocks,
            }
        };
    }
    match (k, v) {
        (KvView::F32(k), KvView::F32(v)) => problem!(k, v).solve(isa, method, out),
        (KvView::F32(k), KvView::F16(v)) => problem!(k, v).solve(isa, method, out),
        (KvView::F16(k), KvView::F32(v)) => problem!(k, v).solve(isa, method, out),
        (KvView::F16(k), KvView::F16(v)) => problem!(k, v).solve(isa, method, out),
    }
    Ok(())
}

/// Query rows a tile aims at: six registers of AVX-512. More gain nothing and no longer fit a second-level cache of
/// 512 KiB with heads of 256.
const TILE_ROWS: usize = 96;
/// Tokens a tile has at most: with a causal mask, half of them squared is computed in vain.
const TILE_TOKENS: usize = 64;
/// From this many rows per key/value head on, [`tile`] is faster than [`stream`]: when two registers of lanes are full.
fn min_tile_rows(isa: Isa) -> usize {
    if isa == Isa::Avx512Vnni { 32 } else { 16 }
}

/// Checked arguments.
struct Problem<'a, K, V> {
    q: &'a [f32],
    k: &'a [K],
    v: &'a [V],
    shape: AttentionShape,
    params: AttentionParams,
    blocks: Option<KeyBlocks<'a>>,
}

/// A unit of work. Its query rows are `(token, head of the group)`, tokens outermost.
#[derive(Clone, Debug)]
struct Item {
    kv_head: usize,
    tokens: Range<usize>,
    keys: Range<usize>,
    /// Offset of its partial result, or `None` where it covers all keys.
    partial: Option<usize>,
}

/// The state of the streaming softmax for some query rows.
struct Rows<'s> {
    /// `[rows]`: largest score so far.
    max: &'s mut [f32],
    /// `[rows]`: sum of weights, relative to `max`.
    sum: &'s mut [f32],
    /// `[rows, stride]`: weighted sum of values, relative to `max`.
    acc: &'s mut [f32],
    stride: usize,
}

impl<K: Element, V: Element> Problem<'_, K, V> {
    /// Query heads per key/value head.
    fn group(&self) -> usize {
        self.shape.n_heads / self.shape.n_kv_heads
    }

    /// The keys token `t` may see.
    fn visible(&self, t: usize) -> Range<usize> {
        let position = self.shape.len - self.shape.tokens + t;
        let end = if self.params.causal {
            position + 1
        } else {
            self.shape.len
        };
        let start = self
            .params
            .window
            .map_or(0, |w| (position + 1).saturating_sub(w));
        start.min(end)..end
    }

    /// Factor on the queries, such that scores come out in units of ln 2, or of the soft cap.
    fn query_factor(&self) -> f32 {
        match self.params.softcap {
            Some(cap) => self.params.scale / cap,
            None => self.params.scale * std::f32::consts::LOG2_E,
        }
    }

    /// With a soft cap, the factor that brings its tanh to units of ln 2.
    fn cap_factor(&self) -> Option<f32> {
        self.params
            .softcap
            .map(|cap| cap * std::f32::consts::LOG2_E)
    }

    /// Nanoseconds per key of an item with so many rows: multiplications, or reading memory.
    fn ns_per_key(&self, rows: usize) -> f64 {
        let d = self.shape.head_dim;
        let arithmetic = (2 * rows * d) as f64 / 40.0;
        let memory = (d * (size_of::<K>() + size_of::<V>())) as f64 / 10.0;
        arithmetic.max(memory)
    }

    /// Cuts the call into items; also gives the size of the partial results and the nanoseconds of an item.
    fn plan(&self, method: Method) -> (Vec<Item>, usize, f64) {
        let AttentionShape {
            tokens,
            n_kv_heads,
            head_dim,
            ..
        } = self.shape;
        let group = self.group();
        let tile = if method == Method::Tile {
            (TILE_ROWS / group).clamp(1, TILE_TOKENS)
        } else {
            stream::MAX_ROWS.div_ceil(group)
        };
        let tiles = tokens.div_ceil(tile);
        let tile = tokens.div_ceil(tiles.max(1)).max(1);

        let threads = rayon::current_num_threads();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let splits = wanted.div_ceil((tiles * n_kv_heads).max(1));
        let ns_per_key = self.ns_per_key(tile * group);
        let least = ((MIN_SPLIT_NS / ns_per_key) as usize).max(1);

        let mut items = Vec::with_capacity(tiles * n_kv_heads * splits);
        let (mut partial, mut keys_in_all) = (0, 0);
        for kv_head in 0..n_kv_heads {
            for start in (0..tokens).step_by(tile) {
                let tokens = start..(start + tile).min(tokens);
                let keys = self.visible(tokens.start).start..self.visible(tokens.end - 1).end;
                keys_in_all += keys.len();
                let splits = splits.min(keys.len() / least).max(1);
                if splits == 1 {
                    items.push(Item {
                        kv_head,
                        tokens,
                        keys,
                        partial: None,
                    });
                    continue;
                }
                let size = merge::partial_size(tokens.len() * group, head_dim);
                let step = keys.len().div_ceil(splits);
                for first in keys.clone().step_by(step) {
                    let keys = first..(first + step).min(keys.end);
                    items.push(Item {
                        kv_head,
                        tokens: tokens.clone(),
                        keys,
                        partial: Some(partial),
                    });
                    partial += size;
                }
            }
        }
        let ns = keys_in_all as f64 * ns_per_key / items.len().max(1) as f64;
        (items, partial, ns)
    }

    fn solve(&self, isa: Isa, method: Option<Method>, out: &mut [f32]) {
        let rows = self.shape.tokens * self.group();
        let method = method.unwrap_or(if rows < min_tile_rows(isa) {
            Method::Stream
        } else {
            Method::Tile
        });
        let (items, partial_size, ns) = self.plan(method);
        let mut partials = vec![0.0f32; partial_size];
        let (shared_out, shared_partials) = (SharedMut::new(out), SharedMut::new(&mut partials));
        for_each_range(items.len(), least_items(ns), &|r| {
            for item in &items[r] {
                let work = Work {
                    problem: self,
                    item,
                    method,
                    out: shared_out,
                    partials: shared_partials,
                };
                dispatch(isa, work);
            }
        });
        if partial_size > 0 {
            merge::merge(self.group(), &self.shape, &items, &partials, out);
        }
    }
}

/// Work worth splitting the keys for, in nanoseconds per item.
const MIN_SPLIT_NS: f64 = 15_000.0;

/// One item at the register type of an ISA.
struct Work<'a, K, V> {
    problem: &'a Problem<'a, K, V>,
    item: &'a Item,
    method: Method,
    out: SharedMut<f32>,
    partials: SharedMut<f32>,
}

impl<K: Element, V: Element> Kernel for Work<'_, K, V> {
    #[inline(always)]
    fn run<R: Vector>(self) {
        match self.method {
            Method::Tile => tile::run::<R, K, V>(&self),
            Method::Stream => stream::run::<R, K, V>(&self),
        }
    }
}

impl<K: Element, V: Element> Work<'_, K, V> {
    /// Writes the item's result: final rows to `out`, or the state to `partials`.
    #[inline(always)]
    fn finish(&self, rows: Rows<'_>) {
        let Problem { shape, .. } = self.problem;
        let (d, group) = (shape.head_dim, self.problem.group());
        let n = self.item.tokens.len() * group;
        if let Some(offset) = self.item.partial {
            let size = merge::partial_size(n, d);
            // SAFETY: each item has its own `size` elements at its offset.
            let to =
                unsafe { std::slice::from_raw_parts_mut(self.partials.get().add(offset), size) };
            merge::write(to, d, &rows);
            return;
        }
        for r in 0..n {
            let (t, h) = (
                self.item.tokens.start + r / group,
                self.item.kv_head * group + r % group,
            );
            // A row that saw no key has no weights.
            let scale = if rows.sum[r] == 0.0 {
                0.0
            } else {
                1.0 / rows.sum[r]
            };
            // SAFETY: this (token, head) belongs to this item alone, and is inside `out` as checked at the call.
            let to = unsafe {
                std::slice::from_raw_parts_mut(self.out.get().add((t * shape.n_heads + h) * d), d)
            };
            for (to, &acc) in to.iter_mut().zip(&rows.acc[r * rows.stride..]) {
                *to = acc * scale;
            }
        }
    }
}
