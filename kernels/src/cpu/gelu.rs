//! Ungated activations of feed-forward layers.

use super::Isa;
use super::glu::{Activation, GeluTanh};
use super::shape_error::{ShapeError, check};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};

/// GELU's tanh approximation, `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`; accuracy as
/// [`geglu_tanh`](super::geglu_tanh)'s.
///
/// # Errors
/// When the slices differ in length.
pub fn gelu_tanh(x: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    map::<GeluTanh>(Isa::current(), x, out)
}

/// `x * sigmoid(1.702 x)`, an approximation of GELU.
///
/// # Errors
/// When the slices differ in length.
pub fn gelu_quick(x: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    map::<GeluQuick>(Isa::current(), x, out)
}

struct GeluQuick;

impl Activation for GeluQuick {
    #[inline(always)]
    fn apply<V: Vector>(x: V) -> V {
        x.div(x.mul(V::splat(-1.702)).exp().add(V::splat(1.0)))
    }
}

fn map<A: Activation>(isa: Isa, x: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    let n = x.len();
    check("out", out.len(), &[n])?;
    let shared = SharedMut::new(out);
    let per_task = items_per_task(n, 0.6).next_multiple_of(16);
    for_each_range(n, per_task, &|r| {
        // SAFETY: the ranges are disjoint and lie inside `out`.
        let out = unsafe { std::slice::from_raw_parts_mut(shared.get().add(r.start), r.len()) };
        let (x, activation) = (&x[r], std::marker::PhantomData);
        dispatch(isa, Map::<A> { x, out, activation });
    });
    Ok(())
}

struct Map<'a, A> {
    x: &'a [f32],
    out: &'a mut [f32],
    activation: std::marker::PhantomData<A>,
}

impl<A: Activation> Kernel for Map<'_, A> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { x, out, .. } = self;
        let n = out.len();
        let whole = n / V::LANES * V::LANES;
        for i in (0..whole).step_by(V::LANES) {
            // SAFETY: `i + LANES <= n`, the length of both.
            unsafe { A::apply(V::load(x.as_ptr().add(i))).store(out.as_mut_ptr().add(i)) };
        }
        if whole < n {
            // SAFETY: `n - whole` elements remain in both.
            unsafe {
                A::apply(V::load_partial(x.as_ptr().add(whole), n - whole))
                    .store_partial(out.as_mut_ptr().add(whole), n - whole);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{GEGLU, Rng, Tolerance, assert_close, isas};

    fn check_activation<A: Activation>(oracle: fn(f64) -> f64, tolerance: Tolerance) {
        let mut rng = Rng::new(14);
        for isa in isas() {
            for n in [0, 1, 15, 16, 17, 4097, 200_003] {
                let x: Vec<f32> = rng.normal(n).iter().map(|v| v * 4.0).collect();
                let mut out = vec![f32::NAN; n];
                map::<A>(isa, &x, &mut out).unwrap();
                let expect: Vec<f64> = x.iter().map(|&v| oracle(v as f64)).collect();
                assert_close(&out, &expect, tolerance, &format!("{isa:?} {n}"));
            }
        }
    }

    #[test]
    fn tanh_form_matches_the_oracle() {
        check_activation::<GeluTanh>(
            |x| {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                x / (1.0 + (-2.0 * inner).exp())
            },
            GEGLU,
        );
    }

    #[test]
    fn quick_form_matches_the_oracle() {
        // As in the tanh form the argument is rounded before the exponential.
        check_activation::<GeluQuick>(|x| x / (1.0 + (-1.702 * x).exp()), GEGLU);
    }

    #[test]
    fn lengths_must_agree() {
        let result = gelu_tanh(&[0.0; 3], &mut [0.0; 2]);
        assert!(matches!(
            result,
            Err(ShapeError::Length { what: "out", .. })
        ));
    }
}
