//! Gated activations of feed-forward layers.
//!
//! GELU's tanh form is written with the logistic function, `(1 + tanh u) / 2 = 1 / (1 + e^-2u)`, which does not
//! cancel for negative `u`.

use super::Isa;
use super::shape_error::{ShapeError, check};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};

/// `out = silu(gate) * up`, element by element, `silu(x) = x / (1 + e^-x)`.
///
/// Relative error within 6e-7 (10 units of `f32` rounding) of the exact value.
///
/// # Errors
/// When the slices differ in length.
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    glu::<Silu>(Isa::current(), gate, up, out)
}

/// `out = gelu(gate) * up`, element by element, with GELU's tanh approximation
/// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
///
/// Relative error within 6e-7 for gates above -1, growing to 3e-5 in the tail where the result vanishes.
///
/// # Errors
/// When the slices differ in length.
pub fn geglu_tanh(gate: &[f32], up: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    glu::<GeluTanh>(Isa::current(), gate, up, out)
}

/// `out = x s(1.702 x) (y + 1)`, element by element, where `x` is `gate` up to 7, `y` is `up` within -7 and 7, and `s` the
/// logistic function: the gated unit of GPT-OSS and MiniMax-M3.
///
/// Relative error within 6e-7, of `y + 1` too.
///
/// # Errors
/// When the slices differ in length.
pub fn swiglu_oai(gate: &[f32], up: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    glu::<SwigluOai>(Isa::current(), gate, up, out)
}

pub(super) trait Activation {
    fn apply<V: Vector>(x: V) -> V;

    /// What the activated gate is multiplied by.
    #[inline(always)]
    fn up<V: Vector>(y: V) -> V {
        y
    }
}

struct Silu;

impl Activation for Silu {
    #[inline(always)]
    fn apply<V: Vector>(x: V) -> V {
        x.div(V::splat(0.0).sub(x).exp().add(V::splat(1.0)))
    }
}

pub(super) struct GeluTanh;

impl Activation for GeluTanh {
    #[inline(always)]
    fn apply<V: Vector>(x: V) -> V {
        // 2 sqrt(2 / pi), negated, and that times 0.044715.
        let a = V::splat(-1.595_769);
        let b = V::splat(-0.071354814);
        let minus_2u = x.mul(x.mul(x).fma(b, a));
        x.div(minus_2u.exp().add(V::splat(1.0)))
    }
}

struct SwigluOai;

impl Activation for SwigluOai {
    #[inline(always)]
    fn apply<V: Vector>(x: V) -> V {
        // The operand of `min` and `max` that stands second wins over a NaN in the first, and is kept if it is one.
        let x = V::splat(7.0).min(x);
        x.div(x.mul(V::splat(-1.702)).exp().add(V::splat(1.0)))
    }

    #[inline(always)]
    fn up<V: Vector>(y: V) -> V {
        let y = V::splat(-7.0).max(V::splat(7.0).min(y));
        y.add(V::splat(1.0))
    }
}

fn glu<A: Activation>(
    isa: Isa,
    gate: &[f32],
    up: &[f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let n = gate.len();
    check("up", up.len(), &[n])?;
    check("out", out.len(), &[n])?;
    let shared = SharedMut::new(out);
    // 0.7 ns per element. Whole cache lines per task.
    let per_task = items_per_task(n, 0.7).next_multiple_of(16);
    for_each_range(n, per_task, &|r| {
        // SAFETY: the ranges are disjoint and lie inside `out`.
        let out = unsafe { std::slice::from_raw_parts_mut(shared.get().add(r.start), r.len()) };
        dispatch(
            isa,
            Glu::<A> {
                gate: &gate[r.clone()],
                up: &up[r],
                out,
                activation: std::marker::PhantomData,
            },
        );
    });
    Ok(())
}

struct Glu<'a, A> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
    activation: std::marker::PhantomData<A>,
}

impl<A: Activation> Kernel for Glu<'_, A> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { gate, up, out, .. } = self;
        let n = out.len();
        let whole = n / V::LANES * V::LANES;
        for i in (0..whole).step_by(V::LANES) {
            // SAFETY: `i + LANES <= n`, the length of all three.
            unsafe {
                let g = A::apply(V::load(gate.as_ptr().add(i)));
                let u = A::up(V::load(up.as_ptr().add(i)));
                g.mul(u).store(out.as_mut_ptr().add(i));
            }
        }
        if whole < n {
            // SAFETY: `n - whole` elements remain in all three.
            unsafe {
                let g = A::apply(V::load_partial(gate.as_ptr().add(whole), n - whole));
                let u = A::up(V::load_partial(up.as_ptr().add(whole), n - whole));
                g.mul(u)
                    .store_partial(out.as_mut_ptr().add(whole), n - whole);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{GEGLU, GLU, Rng, SWIGLU_OAI, Tolerance, assert_close, isas};

    fn check_activation<A: Activation>(oracle: fn(f64) -> f64, tolerance: Tolerance) {
        let mut rng = Rng::new(4);
        for isa in isas() {
            for n in [0, 1, 7, 8, 15, 16, 17, 100, 4864, 200_003] {
                let mut gate: Vec<f32> = rng.normal(n).iter().map(|v| v * 5.0).collect();
                let special = [
                    0.0, -0.0, 1e-30, -1e-30, 20.0, -20.0, -80.0, 80.0, 1e4, -1e4, 3e38, -3e38,
                ];
                for (g, s) in gate.iter_mut().zip(special) {
                    *g = s;
                }
                let up: Vec<f32> = rng.normal(n);
                let mut out = vec![f32::NAN; n];
                glu::<A>(isa, &gate, &up, &mut out).unwrap();
                let expect: Vec<f64> = gate
                    .iter()
                    .zip(&up)
                    .map(|(&g, &u)| oracle(g as f64) * u as f64)
                    .collect();
                // The one product that overflows f32 may be infinite.
                for (o, e) in out.iter_mut().zip(&expect) {
                    if e.abs() > f32::MAX as f64 {
                        assert!(o.is_infinite());
                        *o = 0.0;
                    }
                }
                let expect: Vec<f64> = expect
                    .into_iter()
                    .map(|e| if e.abs() > f32::MAX as f64 { 0.0 } else { e })
                    .collect();
                assert_close(&out, &expect, tolerance, &format!("{isa:?} {n}"));
            }
        }
    }

    #[test]
    fn swiglu_matches_the_oracle() {
        check_activation::<Silu>(|x| x / (1.0 + (-x).exp()), GLU);
    }

    #[test]
    fn geglu_matches_the_oracle() {
        let c = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        // `tanh` itself cancels in f64 for large negative arguments.
        check_activation::<GeluTanh>(
            |x| {
                x / (1.0
                    + (-2.0 * ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))))
                        .exp())
            },
            GEGLU,
        );
        for x in [-2.0, -0.5, 0.3, 4.0] {
            let direct = 0.5 * x * (1.0 + c(x).tanh());
            assert!((direct - x / (1.0 + (-2.0 * c(x)).exp())).abs() < 1e-14);
        }
    }

    #[test]
    fn swiglu_oai_matches_the_oracle() {
        let mut rng = Rng::new(5);
        for isa in isas() {
            for n in [0, 1, 7, 16, 17, 100, 4864] {
                let values = |rng: &mut Rng| -> Vec<f32> {
                    let mut values: Vec<f32> = rng.normal(n).iter().map(|v| v * 5.0).collect();
                    let special = [0.0, -0.0, 7.0, -7.0, 7.5, -7.5, 60.0, -60.0, 3e38, -3e38];
                    for (v, s) in values.iter_mut().zip(special) {
                        *v = s;
                    }
                    values
                };
                let gate = values(&mut rng);
                let mut up = values(&mut rng);
                up.reverse();
                let mut out = vec![f32::NAN; n];
                glu::<SwigluOai>(isa, &gate, &up, &mut out).unwrap();
                let expect: Vec<f64> = gate
                    .iter()
                    .zip(&up)
                    .map(|(&g, &u)| {
                        let (x, y) = (f64::from(g).min(7.0), f64::from(u).clamp(-7.0, 7.0));
                        x / (1.0 + (-1.702 * x).exp()) * (y + 1.0)
                    })
                    .collect();
                assert_close(&out, &expect, SWIGLU_OAI, &format!("{isa:?} {n}"));
            }
        }
    }

    #[test]
    fn nan_is_not_hidden() {
        for isa in isas() {
            let (ones, nan) = ([1.0; 3], [1.0, f32::NAN, 2.0]);
            for (gate, up) in [(nan, ones), (ones, nan)] {
                for glu in [glu::<Silu>, glu::<SwigluOai>] {
                    let mut out = [0.0; 3];
                    glu(isa, &gate, &up, &mut out).unwrap();
                    assert!(out[1].is_nan() && out[0].is_finite() && out[2].is_finite());
                }
            }
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        assert_eq!(
            swiglu(&[0.0; 2], &[0.0; 3], &mut [0.0; 2]),
            Err(ShapeError::Length {
                what: "up",
                expected: 2,
                got: 3
            })
        );
    }
}
