//! Rotary position embedding.
//!
//! The angles depend on position and frequency only, so [`RopeTable`] holds their cosines and sines and is built once
//! per forward pass for all heads of all layers. Angles are formed and reduced in `f64`: at position 100000 an `f32`
//! angle is already wrong in the third digit.

use super::shape_error::{ShapeError, positive};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};
use super::{Isa, shape_error};

/// Which elements of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairing {
    /// `i` and `i + n_rot / 2` (GPT-NeoX, Qwen, Gemma).
    Neox,
    /// `2 i` and `2 i + 1` (the original; Llama files in GGUF).
    Norm,
}

/// Cosines and sines for a run of tokens.
#[derive(Clone, Debug)]
pub struct RopeTable {
    pairing: RopePairing,
    tokens: usize,
    n_rot: usize,
    /// `Neox`: `[tokens, n_rot / 2]`. `Norm`: `[tokens, n_rot]`, each value twice, so that a register of them lies
    /// beside a register of pairs.
    cos: Vec<f32>,
    /// As `cos`; for `Norm` the first of each pair is negated.
    sin: Vec<f32>,
}

impl RopeTable {
    /// The table for angles `positions[t] * freq_scale * inv_freq[i]` radians.
    ///
    /// `inv_freq` has `n_rot / 2` entries, usually `base^(-2 i / n_rot)`; `freq_scale` is linear position scaling (1
    /// for none); `magnitude` multiplies the rotated elements (YaRN's attention factor, 1 for none).
    pub fn new(
        positions: &[i32],
        inv_freq: &[f32],
        freq_scale: f32,
        magnitude: f32,
        pairing: RopePairing,
    ) -> RopeTable {
        Self::from_angles(
            positions.len(),
            inv_freq.len(),
            magnitude,
            pairing,
            |t, i| positions[t] as f64 * freq_scale as f64 * inv_freq[i] as f64,
        )
    }

    /// The table for `n_rot / 2 = half` angles per token, `angle(token, i)` in radians: for positions with several
    /// axes, where the axis depends on `i`.
    pub fn from_angles(
        tokens: usize,
        half: usize,
        magnitude: f32,
        pairing: RopePairing,
        mut angle: impl FnMut(usize, usize) -> f64,
    ) -> RopeTable {
        let n_rot = 2 * half;
        let size = tokens
            * if pairing == RopePairing::Norm {
                n_rot
            } else {
                half
            };
        let (mut cos, mut sin) = (Vec::with_capacity(size), Vec::with_capacity(size));
        for t in 0..tokens {
            for i in 0..half {
                let (s, c) = angle(t, i).sin_cos();
                let (s, c) = ((s * magnitude as f64) as f32, (c * magnitude as f64) as f32);
                match pairing {
                    RopePairing::Neox => {
                        cos.push(c);
                        sin.push(s);
                    }
                    RopePairing::Norm => {
                        cos.extend([c, c]);
                        sin.extend([-s, s]);
                    }
                }
            }
        }
        RopeTable {
            pairing,
            tokens,
            n_rot,
            cos,
            sin,
        }
    }

    /// The table of given cosines and sines, `[tokens, half]` each.
    ///
    /// # Errors
    /// When the two differ in length, or `half` does not divide it.
    pub fn from_cos_sin(
        cos: &[f32],
        sin: &[f32],
        half: usize,
        pairing: RopePairing,
    ) -> Result<RopeTable, ShapeError> {
        positive("half", half)?;
        let tokens = cos.len() / half;
        shape_error::check("cos", cos.len(), &[tokens, half])?;
        shape_error::check("sin", sin.len(), &[tokens, half])?;
        let (cos, sin) = match pairing {
            RopePairing::Neox => (cos.to_vec(), sin.to_vec()),
            RopePairing::Norm => (
                cos.iter().flat_map(|&c| [c, c]).collect(),
                sin.iter().flat_map(|&s| [-s, s]).collect(),
            ),
        };
        Ok(RopeTable {
            pairing,
            tokens,
            n_rot: 2 * half,
            cos,
            sin,
        })
    }

    /// Tokens the table is for.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Elements at the head's start that are rotated.
    pub fn n_rot(&self) -> usize {
        self.n_rot
    }

    /// Rotates `x` `[tokens, heads, head_dim]` in place; elements from `n_rot` on stay as they are.
    ///
    /// # Errors
    /// When `x` has another shape, or a head is smaller than `n_rot`.
    pub fn apply(&self, x: &mut [f32], heads: usize, head_dim: usize) -> Result<(), ShapeError> {
        self.apply_with(Isa::current(), x, heads, head_dim)
    }

    pub(crate) fn apply_with(
        &self,
        isa: Isa,
        x: &mut [f32],
        heads: usize,
        head_dim: usize,
    ) -> Result<(), ShapeError> {
        positive("heads", heads)?;
        positive("head_dim", head_dim)?;
        shape_error::check("x", x.len(), &[self.tokens, heads, head_dim])?;
        if self.n_rot > head_dim {
            return Err(ShapeError::RotaryDims {
                n_rot: self.n_rot,
                head_dim,
            });
        }
        let row = heads * head_dim;
        let shared = SharedMut::new(x);
        // A quarter of a nanosecond per element.
        for_each_range(
            self.tokens,
            items_per_task(self.tokens, row as f64 * 0.25),
            &|r| {
                // SAFETY: ranges of tokens are disjoint and lie inside `x`.
                let x = unsafe {
                    std::slice::from_raw_parts_mut(shared.get().add(r.start * row), r.len() * row)
                };
                dispatch(
                    isa,
                    Rotate {
                        table: self,
                        first: r.start,
                        x,
                        row,
                        head_dim,
                    },
                );
            },
        );
        Ok(())
    }
}

struct Rotate<'a> {
    table: &'a RopeTable,
    /// The table's token that `x` begins with.
    first: usize,
    x: &'a mut [f32],
    row: usize,
    head_dim: usize,
}

impl Kernel for Rotate<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self {
            table,
            first,
            x,
            row,
            head_dim,
        } = self;
        let n_rot = table.n_rot;
        let width = if table.pairing == RopePairing::Norm {
            n_rot
        } else {
            n_rot / 2
        };
        for (t, x) in x.chunks_exact_mut(row).enumerate() {
            let at = (first + t) * width;
            let (cos, sin) = (&table.cos[at..at + width], &table.sin[at..at + width]);
            for head in x.chunks_exact_mut(head_dim) {
                match table.pairing {
                    RopePairing::Neox => neox(&mut head[..n_rot], cos, sin),
                    RopePairing::Norm => norm::<V>(&mut head[..n_rot], cos, sin),
                }
            }
        }
    }
}

#[inline(always)]
fn neox(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (a, b) = x.split_at_mut(cos.len());
    for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
        (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
    }
}

#[inline(always)]
fn norm<V: Vector>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let whole = x.len() / V::LANES * V::LANES;
    for i in (0..whole).step_by(V::LANES) {
        // SAFETY: `i + LANES <= whole`, and the three slices have the same length.
        unsafe {
            let p = x.as_mut_ptr().add(i);
            let v = V::load(p);
            let (c, s) = (V::load(cos.as_ptr().add(i)), V::load(sin.as_ptr().add(i)));
            v.fma(c, v.swap_pairs().mul(s)).store(p);
        }
    }
    for i in (whole..x.len()).step_by(2) {
        let (a, b) = (x[i], x[i + 1]);
        x[i] = a * cos[i] + b * sin[i];
        x[i + 1] = b * cos[i + 1] + a * sin[i + 1];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{ROPE, Rng, assert_close, isas};

    fn inv_freq(n_rot: usize) -> Vec<f32> {
        (0..n_rot / 2)
            .map(|i| 10000f64.powf(-2.0 * i as f64 / n_rot as f64) as f32)
            .collect()
    }

    #[test]
    fn matches_the_oracle() {
        let mut rng = Rng::new(2);
        for isa in isas() {
            for (heads, head_dim, n_rot) in [
                (1, 1, 0),
                (1, 3, 2),
                (2, 64, 64),
                (3, 80, 32),
                (2, 96, 96),
                (1, 128, 126),
                (4, 256, 256),
                (2, 40, 36),
            ] {
                for positions in [vec![], vec![100_000], vec![5, 4, 7, 131_071, 0, -3, 99_999]] {
                    for (pairing, scale, magnitude) in [
                        (RopePairing::Neox, 1.0, 1.0),
                        (RopePairing::Norm, 0.125, 1.5),
                        (RopePairing::Norm, 1.0, 1.0),
                    ] {
                        let freq = inv_freq(n_rot);
                        let x = rng.normal(positions.len() * heads * head_dim);
                        let mut got = x.clone();
                        let table = RopeTable::new(&positions, &freq, scale, magnitude, pairing);
                        table.apply_with(isa, &mut got, heads, head_dim).unwrap();

                        let mut expect: Vec<f64> = x.iter().map(|&v| v as f64).collect();
                        for (i, head) in expect.chunks_mut(head_dim).enumerate() {
                            for (j, &freq) in freq.iter().enumerate() {
                                let angle =
                                    positions[i / heads] as f64 * scale as f64 * freq as f64;
                                let (s, c) = angle.sin_cos();
                                let (s, c) = (s * magnitude as f64, c * magnitude as f64);
                                let (p, q) = match pairing {
                                    RopePairing::Neox => (j, j + n_rot / 2),
                                    RopePairing::Norm => (2 * j, 2 * j + 1),
                                };
                                let (a, b) = (head[p], head[q]);
                                head[p] = a * c - b * s;
                                head[q] = a * s + b * c;
                            }
                        }
                        let what =
                            format!("{isa:?} {pairing:?} {heads}x{head_dim}, {n_rot} rotary");
                        assert_close(&got, &expect, ROPE, &what);
                    }
                }
            }
        }
    }

    #[test]
    fn many_tokens_in_parallel_match_one_by_one() {
        let mut rng = Rng::new(3);
        let positions: Vec<i32> = (0..600).collect();
        let x = rng.normal(600 * 4 * 64);
        let mut whole = x.clone();
        RopeTable::new(&positions, &inv_freq(64), 1.0, 1.0, RopePairing::Neox)
            .apply(&mut whole, 4, 64)
            .unwrap();
        for (t, (x, whole)) in x.chunks(256).zip(whole.chunks(256)).enumerate() {
            let mut x = x.to_vec();
            RopeTable::new(&[t as i32], &inv_freq(64), 1.0, 1.0, RopePairing::Neox)
                .apply(&mut x, 4, 64)
                .unwrap();
            assert_eq!(x, whole);
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        let table = RopeTable::new(&[1], &inv_freq(8), 1.0, 1.0, RopePairing::Neox);
        assert_eq!(
            table.apply(&mut [0.0; 6], 1, 6),
            Err(ShapeError::RotaryDims {
                n_rot: 8,
                head_dim: 6
            })
        );
        assert_eq!(
            table.apply(&mut [0.0; 6], 1, 8),
            Err(ShapeError::Length {
                what: "x",
                expected: 8,
                got: 6
            })
        );
    }
}
