//! Attention that sees some blocks of keys only.
//!
//! What no token of an item sees is not computed; of a block that some of them see, the scores of the others are hidden.

use super::{AttentionParams, AttentionShape, Item, Problem, attention_with};
use crate::cpu::Isa;
use crate::cpu::kv_cache::KvView;
use crate::cpu::shape_error::{ShapeError, check, positive};
use crate::cpu::vector::Element;
use std::ops::Range;

/// The blocks of keys that each token sees; block `b` is the rows `b * size` up to `(b + 1) * size` of the cache.
#[derive(Clone, Copy, Debug)]
pub struct KeyBlocks<'a> {
    /// `[tokens, n_kv_heads, words]`: bit `b % 32` of word `b / 32` is 1 where block `b` is seen, with as many
    /// [`words`](Self::words) as the valid rows of the cache need.
    pub bits: &'a [u32],
    /// Rows of a block.
    pub size: usize,
}

impl KeyBlocks<'_> {
    /// Words for `len` rows in blocks of `size`.
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn words(len: usize, size: usize) -> usize {
        len.div_ceil(size).div_ceil(32)
    }

    pub(super) fn check(&self, shape: &AttentionShape) -> Result<(), ShapeError> {
        positive("size", self.size)?;
        let words = Self::words(shape.len, self.size);
        check(
            "bits",
            self.bits.len(),
            &[shape.tokens, shape.n_kv_heads, words],
        )
    }

    fn sees(&self, shape: &AttentionShape, token: usize, kv_head: usize, block: usize) -> bool {
        let words = Self::words(shape.len, self.size);
        let row = (token * shape.n_kv_heads + kv_head) * words;
        self.bits[row + block / 32] >> (block % 32) & 1 == 1
    }
}

/// As [`attention`](super::attention), where a token sees of the keys only those of its [`KeyBlocks`]. A token that sees
/// none gives zeros.
///
/// # Errors
/// As [`attention`](super::attention), and when the bits do not have their shape or a block has no rows.
#[allow(clippy::too_many_arguments)]
pub fn attention_blocks(
    q: &[f32],
    k: KvView<'_>,
    v: KvView<'_>,
    shape: &AttentionShape,
    params: &AttentionParams,
    blocks: KeyBlocks<'_>,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let isa = Isa::current();
    attention_with(isa, None, q, k, v, shape, params, Some(blocks), out)
}

impl<K: Element, V: Element> Problem<'_, K, V> {
    /// The first keys of the item from `from` on that some token of it sees, as far as they follow each other; empty where
    /// there are none.
    pub(super) fn stretch(&self, item: &Item, from: usize) -> Range<usize> {
        let end = item.keys.end;
        let Some(blocks) = &self.blocks else {
            return from..end;
        };
        let some = |block: usize| {
            let mut tokens = item.tokens.clone();
            tokens.any(|t| blocks.sees(&self.shape, t, item.kv_head, block))
        };
        let last = end.div_ceil(blocks.size);
        let Some(first) = (from / blocks.size..last).find(|&block| some(block)) else {
            return end..end;
        };
        let after = (first + 1..last)
            .find(|&block| !some(block))
            .unwrap_or(last);
        from.max(first * blocks.size)..end.min(after * blocks.size)
    }

    /// Where block by block lies in the `n` keys from `first` on, and its number.
    pub(super) fn spans(
        &self,
        first: usize,
        n: usize,
    ) -> impl Iterator<Item = (Range<usize>, usize)> + use<K, V> {
        let size = self.blocks.map_or(1, |blocks| blocks.size);
        let last = match self.blocks {
            Some(_) => (first + n).div_ceil(size),
            None => 0,
        };
        (first / size..last).map(move |block| {
            let start = (block * size).max(first) - first;
            (start..((block + 1) * size).min(first + n) - first, block)
        })
    }

    /// Whether token `t` sees a block of the item's head.
    pub(super) fn sees(&self, item: &Item, t: usize, block: usize) -> bool {
        (self.blocks.as_ref()).is_none_or(|blocks| blocks.sees(&self.shape, t, item.kv_head, block))
    }
}
