//! The choice of experts from a router's logits.

use super::Isa;
use super::shape_error::{ShapeError, check, positive};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};
use std::ops::Range;

/// How router logits become the shares of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// A sigmoid for each expert.
    Sigmoid,
}

/// Sizes and rules of a choice of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChoiceShape {
    /// Tokens.
    pub tokens: usize,
    /// Experts.
    pub experts: usize,
    /// Experts a token uses.
    pub used: usize,
    /// How logits become shares.
    pub gating: Gating,
    /// Whether the shares of the chosen experts are divided by their sum.
    pub normalize: bool,
    /// That sum is taken to be at least this.
    pub least_sum: f32,
    /// Factor on the shares.
    pub scale: f32,
}

/// The `used` best experts of each token of `logits` `[tokens, experts]`, best first, and their shares,
/// `[tokens, used]` each. The best have the largest logits or, with a `bias` `[experts]`, the largest sums of share and
/// bias; of equals that of the lower number. The bias does not enter the shares.
///
/// # Errors
/// When a slice does not have its shape, or no expert or more than there are are to be chosen.
pub fn choose_experts(
    logits: &[f32],
    bias: Option<&[f32]>,
    shape: &ChoiceShape,
    ids: &mut [i32],
    shares: &mut [f32],
) -> Result<(), ShapeError> {
    choose_experts_with(Isa::current(), logits, bias, shape, ids, shares)
}

pub(crate) fn choose_experts_with(
    isa: Isa,
    logits: &[f32],
    bias: Option<&[f32]>,
    shape: &ChoiceShape,
    ids: &mut [i32],
    shares: &mut [f32],
) -> Result<(), ShapeError> {
    let &ChoiceShape {
        tokens,
        experts,
        used,
        ..
    } = shape;
    positive("used", used)?;
    if used > experts {
        return Err(ShapeError::Choice { used, experts });
    }
    check("logits", logits.len(), &[tokens, experts])?;
    check("ids", ids.len(), &[tokens, used])?;
    check("shares", shares.len(), &[tokens, used])?;
    if let Some(bias) = bias {
        check("bias", bias.len(), &[experts])?;
    }
    let (ids, shares) = (SharedMut::new(ids), SharedMut::new(shares));
    // Two nanoseconds per logit: an exponential, and a comparison with the worst of the best.
    let per_task = items_per_task(tokens, 2.0 * experts as f64);
    for_each_range(tokens, per_task, &|tokens| {
        let choose = Choose {
            logits,
            bias,
            shape,
            ids,
            shares,
            tokens,
        };
        dispatch(isa, choose);
    });
    Ok(())
}

struct Choose<'a> {
    logits: &'a [f32],
    bias: Option<&'a [f32]>,
    shape: &'a ChoiceShape,
    /// Both checked against the shape; the rows of `tokens` are this task's alone.
    ids: SharedMut<i32>,
    shares: SharedMut<f32>,
    tokens: Range<usize>,
}

impl Kernel for Choose<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let shape = self.shape;
        let (experts, used) = (shape.experts, shape.used);
        let mut all = vec![0f32; experts];
        let mut scores = vec![0f32; experts];
        let mut best = vec![(0f32, 0u32); used];
        for t in self.tokens.clone() {
            let logits = &self.logits[t * experts..][..experts];
            match shape.gating {
                Gating::Softmax => softmax::<V>(logits, &mut all),
                Gating::Sigmoid => map::<V>(logits, &mut all, |x| {
                    let one = V::splat(1.0);
                    one.div(V::splat(0.0).sub(x).exp().add(one))
                }),
            }
            // Without a bias logits have the order of shares, and are not rounded.
            let scores = match self.bias {
                None => logits,
                Some(bias) => {
                    let sums = scores.iter_mut().zip(&all).zip(bias);
                    sums.for_each(|((score, share), bias)| *score = share + bias);
                    &scores[..]
                }
            };
            select(scores, &mut best);
            // SAFETY: rows of existing tokens, this task's alone.
            let (ids, shares) = unsafe {
                (
                    std::slice::from_raw_parts_mut(self.ids.get().add(t * used), used),
                    std::slice::from_raw_parts_mut(self.shares.get().add(t * used), used),
                )
            };
            for ((id, share), best) in ids.iter_mut().zip(&mut *shares).zip(&best) {
                *id = best.1 as i32;
                *share = all[best.1 as usize];
            }
            let factor = match shape.normalize {
                true => shape.scale / shares.iter().sum::<f32>().max(shape.least_sum),
                false => shape.scale,
            };
            shares.iter_mut().for_each(|share| *share *= factor);
        }
    }
}

/// The largest scores and their places, largest first, of equals the first.
#[inline(always)]
fn select(scores: &[f32], best: &mut [(f32, u32)]) {
    let used = best.len();
    let mut insert = |mut at: usize, score: f32, e: usize| {
        while at > 0 && score > best[at - 1].0 {
            best[at] = best[at - 1];
            at -= 1;
        }
        best[at] = (score, e as u32);
        best[used - 1].0
    };
    let mut least = f32::NEG_INFINITY;
    for (e, &score) in scores[..used].iter().enumerate() {
        least = insert(e, score, e);
    }
    for (e, &score) in scores.iter().enumerate().skip(used) {
        if score > least {
            least = insert(used - 1, score, e);
        }
    }
}

#[inline(always)]
fn softmax<V: Vector>(logits: &[f32], shares: &mut [f32]) {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let top = V::splat(top);
    map::<V>(logits, shares, |x| x.sub(top).exp());
    let scale = 1.0 / shares.iter().sum::<f32>();
    shares.iter_mut().for_each(|share| *share *= scale);
}

#[inline(always)]
fn map<V: Vector>(from: &[f32], to: &mut [f32], f: impl Fn(V) -> V) {
    for i in (0..from.len()).step_by(V::LANES) {
        let left = from.len() - i;
        // SAFETY: `left` elements remain in both, and a register is cut there.
        unsafe {
            if left < V::LANES {
                let x = V::load_partial(from.as_ptr().add(i), left);
                f(x).store_partial(to.as_mut_ptr().add(i), left);
            } else {
                f(V::load(from.as_ptr().add(i))).store(to.as_mut_ptr().add(i));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Rng, isas};

    const SHAPE: ChoiceShape = ChoiceShape {
        tokens: 1,
        experts: 4,
        used: 2,
        gating: Gating::Softmax,
        normalize: true,
        least_sum: 0.0,
        scale: 1.0,
    };

    fn run(
        isa: Isa,
        logits: &[f32],
        bias: Option<&[f32]>,
        shape: ChoiceShape,
    ) -> (Vec<i32>, Vec<f32>) {
        let mut ids = vec![-1; shape.tokens * shape.used];
        let mut shares = vec![f32::NAN; ids.len()];
        choose_experts_with(isa, logits, bias, &shape, &mut ids, &mut shares).unwrap();
        (ids, shares)
    }

    #[test]
    fn matches_sorting() {
        let mut rng = Rng::new(4);
        for isa in isas() {
            for (tokens, experts, used) in [(1, 4, 4), (3, 7, 1), (40, 128, 8), (2, 100, 10)] {
                for gating in [Gating::Softmax, Gating::Sigmoid] {
                    for (biased, normalize) in [(false, true), (true, false)] {
                        let shape = ChoiceShape {
                            tokens,
                            experts,
                            used,
                            gating,
                            normalize,
                            scale: 2.5,
                            ..SHAPE
                        };
                        let logits = rng.normal(tokens * experts);
                        let bias = rng.normal(experts);
                        let bias = biased.then_some(&bias[..]);
                        let (ids, shares) = run(isa, &logits, bias, shape);
                        for (t, row) in logits.chunks(experts).enumerate() {
                            let total: f64 = row.iter().map(|&v| f64::from(v).exp()).sum();
                            let share = |e: usize| {
                                let x = f64::from(row[e]);
                                match gating {
                                    Gating::Softmax => x.exp() / total,
                                    Gating::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                                }
                            };
                            let score = |e: usize| share(e) + bias.map_or(0.0, |b| f64::from(b[e]));
                            let mut order: Vec<usize> = (0..experts).collect();
                            order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
                            let sum: f64 = order[..used].iter().map(|&e| share(e)).sum();
                            let scale = 2.5 / if normalize { sum } else { 1.0 };
                            for (slot, &expert) in order[..used].iter().enumerate() {
                                let at = t * used + slot;
                                assert_eq!(ids[at] as usize, expert, "{isa:?} {shape:?}");
                                let want = share(expert) * scale;
                                let error = (f64::from(shares[at]) - want).abs();
                                assert!(error <= 2e-6 * want, "{isa:?} {shape:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn of_equals_the_first_is_chosen() {
        for isa in isas() {
            assert_eq!(run(isa, &[1.0; 4], None, SHAPE), (vec![0, 1], vec![0.5; 2]));
            let (ids, _) = run(isa, &[0.0, 2.0, 1.0, 2.0], None, SHAPE);
            assert_eq!(ids, [1, 3]);
            let bias = [0.0, 0.0, 0.5, 0.5];
            assert_eq!(run(isa, &[1.0; 4], Some(&bias), SHAPE).0, [2, 3]);
        }
    }

    #[test]
    fn ids_are_experts_even_of_no_numbers() {
        for isa in isas() {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let (ids, _) = run(isa, &[bad; 4], None, SHAPE);
                assert!(ids.iter().all(|id| (0..4).contains(id)), "{ids:?}");
            }
        }
    }

    #[test]
    fn small_sums_are_bounded() {
        let shape = ChoiceShape {
            gating: Gating::Sigmoid,
            least_sum: 0.5,
            ..SHAPE
        };
        for isa in isas() {
            let (_, shares) = run(isa, &[-100.0; 4], None, shape);
            assert!(shares.iter().all(|&share| share < 1e-30));
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        let mut ids = [0; 2];
        let mut shares = [0.0; 2];
        let none = ChoiceShape { used: 0, ..SHAPE };
        let result = choose_experts(&[0.0; 4], None, &none, &mut ids, &mut shares);
        assert_eq!(result, Err(ShapeError::Zero { what: "used" }));
        let many = ChoiceShape { used: 5, ..SHAPE };
        let result = choose_experts(&[0.0; 4], None, &many, &mut ids, &mut shares);
        assert_eq!(
            result,
            Err(ShapeError::Choice {
                used: 5,
                experts: 4
            })
        );
        let result = choose_experts(&[0.0; 4], Some(&[0.0; 3]), &SHAPE, &mut ids, &mut shares);
        assert!(matches!(
            result,
            Err(ShapeError::Length { what: "bias", .. })
        ));
    }
}
