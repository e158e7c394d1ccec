//! The sum of what a token's experts say.

use super::Isa;
use super::shape_error::{ShapeError, check, positive};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};
use std::ops::Range;

/// Columns summed at a time: a multiple of any register.
const TILE: usize = 256;

/// Sizes of an [`expert_sum`] call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertSumShape {
    /// Tokens.
    pub tokens: usize,
    /// Experts of a token.
    pub used: usize,
    /// Values of a token.
    pub width: usize,
}

/// `out[t] = sum_s shares[t, s] * y[t, s]` with `y` `[tokens, used, width]`, `shares` `[tokens, used]` and `out`
/// `[tokens, width]`. With `shared`, values `[tokens, width]` and their gate `[tokens]`, plus
/// `sigmoid(gate[t]) * shared[t]`.
///
/// # Errors
/// When a slice does not have its shape, or a token uses no expert.
pub fn expert_sum(
    y: &[f32],
    shares: &[f32],
    shared: Option<(&[f32], &[f32])>,
    shape: &ExpertSumShape,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    expert_sum_with(Isa::current(), y, shares, shared, shape, out)
}

pub(crate) fn expert_sum_with(
    isa: Isa,
    y: &[f32],
    shares: &[f32],
    shared: Option<(&[f32], &[f32])>,
    shape: &ExpertSumShape,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let &ExpertSumShape {
        tokens,
        used,
        width,
    } = shape;
    positive("used", used)?;
    check("y", y.len(), &[tokens, used, width])?;
    check("shares", shares.len(), &[tokens, used])?;
    check("out", out.len(), &[tokens, width])?;
    if let Some((values, gate)) = shared {
        check("shared", values.len(), &[tokens, width])?;
        check("gate", gate.len(), &[tokens])?;
    }
    let out = SharedMut::new(out);
    // A tenth of a nanosecond per product.
    let per_task = items_per_task(tokens, 0.1 * (used * width) as f64);
    for_each_range(tokens, per_task, &|tokens| {
        let sum = Sum {
            y,
            shares,
            shared,
            shape,
            out,
            tokens,
        };
        dispatch(isa, sum);
    });
    Ok(())
}

struct Sum<'a> {
    y: &'a [f32],
    shares: &'a [f32],
    shared: Option<(&'a [f32], &'a [f32])>,
    shape: &'a ExpertSumShape,
    /// Checked against the shape; the rows of `tokens` are this task's alone.
    out: SharedMut<f32>,
    tokens: Range<usize>,
}

impl Kernel for Sum<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let &ExpertSumShape { used, width, .. } = self.shape;
        for t in self.tokens.clone() {
            let y = &self.y[t * used * width..][..used * width];
            let shares = &self.shares[t * used..][..used];
            // SAFETY: the row of an existing token, this task's alone.
            let out =
                unsafe { std::slice::from_raw_parts_mut(self.out.get().add(t * width), width) };
            // A tile stays in the first-level cache while the experts are added to it.
            for (at, out) in (0..width).step_by(TILE).zip(out.chunks_mut(TILE)) {
                out.fill(0.0);
                for (slot, &share) in shares.iter().enumerate() {
                    let y = &y[slot * width + at..][..out.len()];
                    for (out, y) in out.iter_mut().zip(y) {
                        *out += share * y;
                    }
                }
                if let Some((values, gate)) = self.shared {
                    let open = 1.0 / (1.0 + (-gate[t]).exp());
                    let values = &values[t * width + at..][..out.len()];
                    for (out, value) in out.iter_mut().zip(values) {
                        *out += open * value;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Rng, isas};

    #[test]
    fn matches_the_definition() {
        let mut rng = Rng::new(6);
        for isa in isas() {
            for (tokens, used, width) in [(1, 1, 1), (3, 8, 100), (1, 2, 2048), (40, 4, 300)] {
                for with_shared in [false, true] {
                    let shape = ExpertSumShape {
                        tokens,
                        used,
                        width,
                    };
                    let (y, shares) =
                        (rng.normal(tokens * used * width), rng.normal(tokens * used));
                    let (values, gate) = (rng.normal(tokens * width), rng.normal(tokens));
                    let shared = with_shared.then_some((&values[..], &gate[..]));
                    let mut out = vec![f32::NAN; tokens * width];
                    expert_sum_with(isa, &y, &shares, shared, &shape, &mut out).unwrap();
                    for (i, &got) in out.iter().enumerate() {
                        let (t, column) = (i / width, i % width);
                        let mut want: f64 = (0..used)
                            .map(|s| {
                                let at = t * used + s;
                                f64::from(shares[at]) * f64::from(y[at * width + column])
                            })
                            .sum();
                        if with_shared {
                            want += f64::from(values[i]) / (1.0 + (-f64::from(gate[t])).exp());
                        }
                        let error = (f64::from(got) - want).abs();
                        assert!(error < 1e-5, "{isa:?} {shape:?}: {got} for {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        let shape = ExpertSumShape {
            tokens: 1,
            used: 2,
            width: 3,
        };
        let mut out = [0.0; 3];
        let y = expert_sum(&[0.0; 5], &[0.0; 2], None, &shape, &mut out);
        assert!(matches!(y, Err(ShapeError::Length { what: "y", .. })));
        let none = ExpertSumShape { used: 0, ..shape };
        let used = expert_sum(&[], &[], None, &none, &mut out);
        assert_eq!(used, Err(ShapeError::Zero { what: "used" }));
    }
}
