//! The choice of the blocks of keys that attention sees: an indexer's queries are scored against its keys, of which each
//! token has one, and the blocks with the best single keys are kept.
//!
//! Scores are `f32` sums and exist block by block: what is kept of a block is its largest score, for a group of tokens at a
//! time.

use super::Isa;
use super::attention::KeyBlocks;
use super::shape_error::{ShapeError, check, positive};
use super::split::{SharedMut, for_each_range, items_per_task, least_items};
use super::vector::{Kernel, Vector, dispatch};
use std::ops::Range;

/// Sizes of a [`choose_blocks`] call.
#[derive(Clone, Copy, Debug)]
pub struct BlockChoiceShape {
    /// Tokens of this call.
    pub tokens: usize,
    /// Heads of the queries; each chooses for itself, over the same keys.
    pub heads: usize,
    /// Elements of a query and of a key.
    pub dim: usize,
    /// Valid keys, those of this call's tokens at their end: token `t` is at `len - tokens + t` and sees no later ones.
    pub len: usize,
    /// Keys of a block.
    pub size: usize,
    /// Blocks a head sees of those that begin at the token or before it, at most.
    pub top: usize,
    /// How many of them are the last ones, the token's own first, whatever their scores.
    pub local: usize,
}

/// Scores that are held at a time.
const MOST_SCORES: usize = 1 << 18;

/// Sets the bits of the blocks that each token's heads see, `[tokens, heads, words]` as in [`KeyBlocks`]: the `local` last
/// ones, and those where `max_j q[t, h] . k[j]` over the keys `j` of the block up to the token is largest. `q` is
/// `[tokens, heads, dim]`, `k` `[len, dim]` or longer.
///
/// Of equal blocks the earlier one is taken. The original models leave that open: they sort by scores alone.
///
/// # Errors
/// When a slice does not have its shape, a dimension is zero, or `len` is less than `tokens`.
pub fn choose_blocks(
    q: &[f32],
    k: &[f32],
    shape: &BlockChoiceShape,
    bits: &mut [u32],
) -> Result<(), ShapeError> {
    choose_blocks_with(Isa::current(), q, k, shape, bits)
}

pub(crate) fn choose_blocks_with(
    isa: Isa,
    q: &[f32],
    k: &[f32],
    shape: &BlockChoiceShape,
    bits: &mut [u32],
) -> Result<(), ShapeError> {
    let &BlockChoiceShape {
        tokens,
        heads,
        dim,
        len,
        size,
        ..
    } = shape;
    positive("heads", heads)?;
    positive("dim", dim)?;
    positive("size", size)?;
    if tokens > len {
        return Err(ShapeError::CacheTooShort { tokens, len });
    }
    check("q", q.len(), &[tokens, heads, dim])?;
    if k.len() < len.saturating_mul(dim) {
        check("k", k.len(), &[len, dim])?;
    }
    let words = KeyBlocks::words(len, size);
    check("bits", bits.len(), &[tokens, heads, words])?;
    let blocks = len.div_ceil(size);
    let group = (MOST_SCORES / (heads * blocks).max(1)).clamp(1, 64);
    let mut scores = vec![0f32; group.min(tokens) * heads * blocks];
    for first in (0..tokens).step_by(group) {
        let rows = first * heads..(first + group).min(tokens) * heads;
        let scores = &mut scores[..rows.len() * blocks];
        let tile = Tile {
            q: &q[rows.start * dim..rows.end * dim],
            k,
            shape,
            first,
        };
        tile.score(isa, scores);
        let bits = SharedMut::new(&mut bits[rows.start * words..rows.end * words]);
        let ns = 20.0 * blocks as f64;
        for_each_range(rows.len(), items_per_task(rows.len(), ns), &|range| {
            for row in range {
                // SAFETY: each row has its own `words` words.
                let bits =
                    unsafe { std::slice::from_raw_parts_mut(bits.get().add(row * words), words) };
                let position = shape.len - shape.tokens + first + row / heads;
                let seen = position / size + 1;
                keep(&scores[row * blocks..][..seen], shape, bits);
            }
        });
    }
    Ok(())
}

/// Sets the bits of the blocks to be kept, whose scores these are.
fn keep(scores: &[f32], shape: &BlockChoiceShape, bits: &mut [u32]) {
    bits.fill(0);
    let forced = scores.len().saturating_sub(shape.local);
    let better = |&a: &usize, &b: &usize| {
        let near = (b >= forced).cmp(&(a >= forced));
        near.then(scores[b].total_cmp(&scores[a])).then(a.cmp(&b))
    };
    let mut order: Vec<usize> = (0..scores.len()).collect();
    if shape.top == 0 {
        return;
    }
    if shape.top < order.len() {
        order.select_nth_unstable_by(shape.top - 1, better);
        order.truncate(shape.top);
    }
    for block in order {
        bits[block / 32] |= 1 << (block % 32);
    }
}

/// Tokens that are scored together.
struct Tile<'a> {
    /// Their queries, `[rows, dim]`, a row being a token's head.
    q: &'a [f32],
    k: &'a [f32],
    shape: &'a BlockChoiceShape,
    /// The first token.
    first: usize,
}

impl Tile<'_> {
    /// Writes the scores `[rows, blocks]`.
    fn score(&self, isa: Isa, scores: &mut [f32]) {
        let BlockChoiceShape { dim, len, size, .. } = *self.shape;
        let rows = self.q.len() / dim;
        let blocks = len.div_ceil(size);
        // Multiplications, or reading the keys.
        let ns = (size * dim) as f64 * (rows as f64 / 16.0).max(0.4);
        let per_task = items_per_task(blocks, ns).max(least_items(ns));
        let shared = SharedMut::new(scores);
        for_each_range(blocks, per_task, &|range| {
            let work = Work {
                tile: self,
                blocks: range,
                scores: shared,
            };
            dispatch(isa, work);
        });
    }
}

/// Some blocks of a tile at the register type of an ISA.
struct Work<'a> {
    tile: &'a Tile<'a>,
    blocks: Range<usize>,
    scores: SharedMut<f32>,
}

impl Kernel for Work<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let shape = self.tile.shape;
        let (dim, all) = (shape.dim, shape.len.div_ceil(shape.size));
        for block in self.blocks {
            let start = block * shape.size;
            for (row, q) in self.tile.q.chunks_exact(dim).enumerate() {
                let token = self.tile.first + row / shape.heads;
                let end = (start + shape.size).min(shape.len - shape.tokens + token + 1);
                let best = match start < end {
                    true => largest::<V>(q, &self.tile.k[start * dim..end * dim]),
                    false => f32::NEG_INFINITY,
                };
                // SAFETY: the tasks have blocks of their own, and `scores` is `[rows, all]`.
                unsafe { *self.scores.get().add(row * all + block) = best };
            }
        }
    }
}

/// The largest product of `q` and a key of `k` `[.., dim]`.
#[inline(always)]
fn largest<V: Vector>(q: &[f32], k: &[f32]) -> f32 {
    let dim = q.len();
    let mut best = f32::NEG_INFINITY;
    let mut keys = k.chunks_exact(4 * dim);
    for four in &mut keys {
        for score in dots::<V, 4>(q, four) {
            best = best.max(score);
        }
    }
    for key in keys.remainder().chunks_exact(dim) {
        let [score, ..] = dots::<V, 1>(q, key);
        best = best.max(score);
    }
    best
}

/// The products of `q` and `N` keys, 1 or 4; of one, in the first place.
#[inline(always)]
fn dots<V: Vector, const N: usize>(q: &[f32], keys: &[f32]) -> [f32; 4] {
    let dim = q.len();
    assert!(keys.len() == N * dim);
    let whole = dim / V::LANES * V::LANES;
    let mut sums = [V::splat(0.0); N];
    // SAFETY: whole registers below `whole`, then the rest of each row.
    unsafe {
        for i in (0..whole).step_by(V::LANES) {
            let q = V::load(q.as_ptr().add(i));
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = q.fma(V::load(keys.as_ptr().add(n * dim + i)), *sum);
            }
        }
        if whole < dim {
            let q = V::load_partial(q.as_ptr().add(whole), dim - whole);
            for (n, sum) in sums.iter_mut().enumerate() {
                let key = V::load_partial(keys.as_ptr().add(n * dim + whole), dim - whole);
                *sum = q.fma(key, *sum);
            }
        }
    }
    match N {
        4 => V::reduce_add4([sums[0], sums[1 % N], sums[2 % N], sums[3 % N]]),
        _ => [sums[0].reduce_add(), 0.0, 0.0, 0.0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Rng, isas};

    /// Block by block as the definition reads, sorted as a whole.
    fn naive(q: &[f32], k: &[f32], shape: &BlockChoiceShape) -> Vec<u32> {
        let words = KeyBlocks::words(shape.len, shape.size);
        let mut bits = Vec::new();
        for (row, q) in q.chunks_exact(shape.dim).enumerate() {
            let position = shape.len - shape.tokens + row / shape.heads;
            let own = position / shape.size;
            let mut blocks: Vec<(f64, usize)> = (0..=own)
                .map(|block| {
                    let last = position.min((block + 1) * shape.size - 1);
                    let score = |j: usize| -> f64 {
                        let key = &k[j * shape.dim..][..shape.dim];
                        q.iter().zip(key).map(|(&a, &b)| a as f64 * b as f64).sum()
                    };
                    let best = (block * shape.size..=last)
                        .map(score)
                        .fold(f64::MIN, f64::max);
                    let forced = block + shape.local > own;
                    (if forced { f64::MAX } else { best }, block)
                })
                .collect();
            blocks.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut row = vec![0u32; words];
            for (_, block) in blocks.into_iter().take(shape.top) {
                row[block / 32] |= 1 << (block % 32);
            }
            bits.extend(row);
        }
        bits
    }

    #[test]
    fn the_best_blocks_and_the_last_ones() {
        let mut rng = Rng::new(30);
        for (tokens, heads, dim, len, size, top, local) in [
            (1, 1, 8, 1, 4, 1, 1),
            (1, 2, 32, 100, 8, 3, 1),
            (48, 2, 32, 48, 8, 3, 1),
            (70, 4, 17, 1000, 8, 5, 2),
            (5, 1, 128, 5000, 128, 16, 1),
            (3, 3, 5, 700, 1, 4, 0),
            (9, 2, 16, 90, 16, 0, 1),
            (9, 2, 16, 90, 16, 100, 3),
            (0, 2, 16, 90, 16, 2, 1),
        ] {
            let shape = BlockChoiceShape {
                tokens,
                heads,
                dim,
                len,
                size,
                top,
                local,
            };
            let (q, k) = (
                rng.normal(tokens * heads * dim),
                rng.normal((len + 2) * dim),
            );
            let want = naive(&q, &k, &shape);
            for isa in isas() {
                let mut bits = vec![u32::MAX; want.len()];
                choose_blocks_with(isa, &q, &k, &shape, &mut bits).unwrap();
                assert_eq!(bits, want, "{isa:?} {shape:?}");
            }
        }
    }

    #[test]
    fn of_equal_blocks_the_earlier_is_kept() {
        let shape = BlockChoiceShape {
            tokens: 1,
            heads: 1,
            dim: 1,
            len: 64,
            size: 8,
            top: 3,
            local: 1,
        };
        let mut bits = [0];
        choose_blocks(&[1.0], &[2.0; 64], &shape, &mut bits).unwrap();
        assert_eq!(bits, [0b1000_0011]);
    }

    #[test]
    fn bad_shapes_are_errors() {
        let shape = BlockChoiceShape {
            tokens: 2,
            heads: 1,
            dim: 4,
            len: 9,
            size: 4,
            top: 1,
            local: 1,
        };
        let call = |shape: &BlockChoiceShape, q: usize, k: usize, bits: usize| {
            choose_blocks(&vec![0.0; q], &vec![0.0; k], shape, &mut vec![0; bits])
        };
        assert_eq!(call(&shape, 8, 36, 2), Ok(()));
        let wrong = |what, expected, got| {
            Err(ShapeError::Length {
                what,
                expected,
                got,
            })
        };
        assert_eq!(call(&shape, 7, 36, 2), wrong("q", 8, 7));
        assert_eq!(call(&shape, 8, 35, 2), wrong("k", 36, 35));
        assert_eq!(call(&shape, 8, 36, 3), wrong("bits", 2, 3));
        let shape = BlockChoiceShape { size: 0, ..shape };
        assert_eq!(
            call(&shape, 8, 36, 2),
            Err(ShapeError::Zero { what: "size" })
        );
    }
}
