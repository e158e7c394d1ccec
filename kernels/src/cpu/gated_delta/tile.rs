//! The passes over columns of a state.

use super::BLOCK;
use crate::cpu::vector::Vector;

/// What the tokens of a block are to each other.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    /// Tokens: [`BLOCK`] or 1.
    pub len: usize,
    /// Of each token; after [`fade`](Self::fade) of all tokens up to it.
    pub decay: [f32; BLOCK],
    pub strength: [f32; BLOCK],
    /// `k_j . k_i` of token `i` with those before it; after [`fade`](Self::fade) times the decays between them.
    pub keys: [[f32; BLOCK]; BLOCK],
    /// `k_j . q_i` of token `i` with itself and those before it; likewise.
    pub queries: [[f32; BLOCK]; BLOCK],
    /// The decays after each token.
    pub rest: [f32; BLOCK],
}

impl Block {
    /// Puts the decays of single tokens into the products. No quotients: decays may be zero.
    pub fn fade(&mut self) {
        for i in 0..self.len {
            let mut between = 1.0;
            for j in (0..i).rev() {
                between *= self.decay[j + 1];
                self.keys[i][j] *= between;
                self.queries[i][j] *= between;
            }
        }
        let mut after = 1.0;
        for i in (0..self.len).rev() {
            self.rest[i] = after;
            after *= self.decay[i];
        }
        for i in 1..self.len {
            self.decay[i] *= self.decay[i - 1];
        }
    }
}

/// A chunk of tokens of one head.
pub(super) struct Tile<'a> {
    pub dim: usize,
    /// Block by block, `[dim, 2 * tokens]`: keys, then queries, of each component.
    pub keys: *const f32,
    pub blocks: &'a [Block],
    /// The first token's values.
    pub values: *const f32,
    pub value_stride: usize,
    /// The first token's output.
    pub out: *mut f32,
    pub out_stride: usize,
}

impl Tile<'_> {
    /// Takes the chunk through `state` `[dim, dim]`; `few` tokens go over it in place, others by way of `scratch`, which
    /// holds two registers a row.
    ///
    /// # Safety
    /// The state and the outputs must be this thread's alone, and all pointers valid for the blocks' tokens.
    #[inline(always)]
    pub unsafe fn run<V: Vector>(&self, state: *mut f32, scratch: *mut f32, few: bool) {
        // SAFETY: the caller's promise; the columns are those of the state.
        unsafe {
            if few && self.dim.is_multiple_of(8 * V::LANES) && V::LANES > 8 {
                self.in_place::<V, 8>(state);
            } else if few && self.dim.is_multiple_of(4 * V::LANES) {
                self.in_place::<V, 4>(state);
            } else if V::LANES > 8 {
                self.by_copies::<V, 2>(state, scratch);
            } else {
                // Half as many registers.
                self.by_copies::<V, 1>(state, scratch);
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run); `dim` must be a multiple of `W` registers.
    #[inline(always)]
    unsafe fn in_place<V: Vector, const W: usize>(&self, state: *mut f32) {
        for column in (0..self.dim).step_by(W * V::LANES) {
            let (mut keys, mut t) = (self.keys, 0);
            for block in self.blocks {
                // SAFETY: whole registers from `column` on, rows `dim` apart.
                unsafe {
                    let state = state.add(column);
                    match block.len {
                        BLOCK => self.step::<V, BLOCK, { 2 * BLOCK }, W>(
                            state, self.dim, block, keys, t, column,
                        ),
                        _ => self.step::<V, 1, 2, W>(state, self.dim, block, keys, t, column),
                    }
                    keys = keys.add(2 * block.len * self.dim);
                }
                t += block.len;
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run); `scratch` must hold `W` registers a row.
    #[inline(always)]
    unsafe fn by_copies<V: Vector, const W: usize>(&self, state: *mut f32, scratch: *mut f32) {
        let width = W * V::LANES;
        for column in (0..self.dim).step_by(width) {
            let here = (self.dim - column).min(width);
            // SAFETY: `here` columns of each of `dim` rows, cut there; the scratch has `width` a row.
            unsafe {
                for row in 0..self.dim {
                    let from = state.add(row * self.dim + column);
                    for w in (0..width).step_by(V::LANES) {
                        let v = load_n::<V>(from.wrapping_add(w), here.saturating_sub(w));
                        v.store(scratch.add(row * width + w));
                    }
                }
                let (mut keys, mut t) = (self.keys, 0);
                for block in self.blocks {
                    match block.len {
                        BLOCK => self.step::<V, BLOCK, { 2 * BLOCK }, W>(
                            scratch, width, block, keys, t, column,
                        ),
                        _ => self.step::<V, 1, 2, W>(scratch, width, block, keys, t, column),
                    }
                    keys = keys.add(2 * block.len * self.dim);
                    t += block.len;
                }
                for row in 0..self.dim {
                    let to = state.add(row * self.dim + column);
                    for w in (0..here).step_by(V::LANES) {
                        let v = V::load(scratch.add(row * width + w));
                        store_n(v, to.add(w), here - w);
                    }
                }
            }
        }
    }

    /// A block of `C` tokens from `t` on, on `W` registers a row of the columns from `column` on; `C2` is `2 * C`.
    ///
    /// # Safety
    /// `state` must have `W` whole registers in each of `dim` rows `stride` apart, `keys` the block's; see
    /// [`run`](Self::run).
    #[inline(always)]
    unsafe fn step<V: Vector, const C: usize, const C2: usize, const W: usize>(
        &self,
        state: *mut f32,
        stride: usize,
        block: &Block,
        keys: *const f32,
        t: usize,
        column: usize,
    ) {
        // What the old state says of the keys and the queries.
        let mut said = [[V::splat(0.0); W]; C2];
        for i in 0..self.dim {
            // SAFETY: row `i`, of the caller's promise.
            unsafe {
                let row = state.add(i * stride);
                let row: [V; W] = std::array::from_fn(|w| V::load(row.add(w * V::LANES)));
                for (c, said) in said.iter_mut().enumerate() {
                    let key = V::splat(*keys.add(i * C2 + c));
                    for w in 0..W {
                        said[w] = row[w].fma(key, said[w]);
                    }
                }
            }
        }
        let mut correction = [[V::splat(0.0); W]; C];
        for c in 0..C {
            let left = |w: usize| self.dim.saturating_sub(column + w * V::LANES);
            let (decay, strength) = (V::splat(block.decay[c]), V::splat(block.strength[c]));
            for w in 0..W {
                let at = column + w * V::LANES;
                let mut of_key = said[c][w].mul(decay);
                for (j, correction) in correction.iter().enumerate().take(c) {
                    of_key = correction[w].fma(V::splat(block.keys[c][j]), of_key);
                }
                // SAFETY: `left(w)` columns from `at` on, cut there.
                let value = unsafe {
                    let row = self.values.add((t + c) * self.value_stride);
                    load_n::<V>(row.wrapping_add(at), left(w))
                };
                correction[c][w] = value.sub(of_key).mul(strength);
                let mut out = said[C + c][w].mul(decay);
                for (j, correction) in correction.iter().enumerate().take(c + 1) {
                    out = correction[w].fma(V::splat(block.queries[c][j]), out);
                }
                // SAFETY: likewise.
                unsafe {
                    let row = self.out.add((t + c) * self.out_stride);
                    store_n(out, row.wrapping_add(at), left(w));
                }
            }
        }
        for (correction, &rest) in correction.iter_mut().zip(&block.rest) {
            *correction = correction.map(|v| v.mul(V::splat(rest)));
        }
        let decay = V::splat(block.decay[C - 1]);
        for i in 0..self.dim {
            // SAFETY: row `i`, of the caller's promise.
            unsafe {
                let row = state.add(i * stride);
                let mut new: [V; W] =
                    std::array::from_fn(|w| V::load(row.add(w * V::LANES)).mul(decay));
                for (c, correction) in correction.iter().enumerate() {
                    let key = V::splat(*keys.add(i * C2 + c));
                    for w in 0..W {
                        new[w] = correction[w].fma(key, new[w]);
                    }
                }
                for (w, new) in new.iter().enumerate() {
                    new.store(row.add(w * V::LANES));
                }
            }
        }
    }
}

/// The first `n` elements, or as many as a register has; zero in the other lanes.
///
/// # Safety
/// `p` must be readable for these.
#[inline(always)]
pub(super) unsafe fn load_n<V: Vector>(p: *const f32, n: usize) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        match n {
            0 => V::splat(0.0),
            n if n < V::LANES => V::load_partial(p, n),
            _ => V::load(p),
        }
    }
}

/// Stores the first `n` lanes, or as many as there are.
///
/// # Safety
/// `p` must be writable for these.
#[inline(always)]
pub(super) unsafe fn store_n<V: Vector>(v: V, p: *mut f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match n {
            0 => {}
            n if n < V::LANES => v.store_partial(p, n),
            _ => v.store(p),
        }
    }
}
