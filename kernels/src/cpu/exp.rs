//! `exp`, `2^x` and `tanh` on registers.
//!
//! `x` is split into `n + f` with `n` integral and `|f| <= 1/2` (in units of ln 2 for `exp`); `2^n` is put together
//! from exponent bits and `2^f` is a polynomial of degree 6 (interpolation at Chebyshev nodes, coefficients rounded to
//! `f32`, relative error 9.2e-9). `tanh` uses `1 - 2 / (e^2x + 1)` from |x| = 0.625 and an odd polynomial below
//! (relative error 1.7e-8), since the quotient cancels there.
//!
//! Against `f64` over the whole range: `exp` and `exp2` within 1 ulp, `tanh` within 4. Results below
//! 2^-126 are flushed to zero, results above 2^127.5 are infinite, and NaN stays NaN.

use super::vector::Vector;

/// `2^f` for `|f| <= 1/2`.
#[inline(always)]
fn exp2_fraction<V: Vector>(f: V) -> V {
    let p = V::splat(1.5453163e-4);
    let p = p.fma(f, V::splat(1.3390863e-3));
    let p = p.fma(f, V::splat(9.618083e-3));
    let p = p.fma(f, V::splat(5.550357e-2));
    let p = p.fma(f, V::splat(0.2402265));
    let p = p.fma(f, V::splat(std::f32::consts::LN_2));
    p.fma(f, V::splat(1.0))
}

/// `2^x`, for any `x`.
#[inline(always)]
pub(crate) fn exp2<V: Vector>(x: V) -> V {
    // The bounds come first: `max` and `min` give their second operand for NaN.
    let x = V::splat(128.0).min(V::splat(-127.0).max(x));
    let n = x.round();
    exp2_fraction(x.sub(n)).mul(V::pow2(n))
}

/// `e^x`, for any `x`.
#[inline(always)]
pub(crate) fn exp<V: Vector>(x: V) -> V {
    // 1 / ln 2 in two parts, so that the fraction keeps its bits when `n` is large.
    let hi = V::splat(std::f32::consts::LOG2_E);
    let lo = V::splat(1.925963e-8);
    let x = V::splat(88.72).min(V::splat(-88.029).max(x));
    let n = x.mul(hi).round();
    let f = x.fma(lo, x.fma(hi, V::splat(0.0).sub(n)));
    exp2_fraction(f).mul(V::pow2(n))
}

/// `tanh x`, for any `x`.
#[inline(always)]
pub(crate) fn tanh<V: Vector>(x: V) -> V {
    let one = V::splat(1.0);
    let z = x.mul(x);
    let p = V::splat(-6.096714e-3);
    let p = p.fma(z, V::splat(2.099718e-2));
    let p = p.fma(z, V::splat(-5.3850908e-2));
    let p = p.fma(z, V::splat(0.1333277));
    let p = p.fma(z, V::splat(-0.33333328));
    let near = p.mul(z).fma(x, x);
    let far = one.sub(V::splat(2.0).div(x.add(x).exp().add(one)));
    V::select_lt(x.abs(), V::splat(0.625), near, far)
}

#[cfg(test)]
mod tests {
    use crate::cpu::testing::{Rng, isas};
    use crate::cpu::vector::{Kernel, Vector, dispatch};

    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp,
        Exp2,
        Tanh,
    }

    struct Map<'a>(Function, &'a mut [f32]);

    impl Kernel for Map<'_> {
        #[inline(always)]
        fn run<V: Vector>(self) {
            for x in self.1.chunks_exact_mut(V::LANES) {
                // SAFETY: a chunk is one register long.
                unsafe {
                    let v = V::load(x.as_ptr());
                    let y = match self.0 {
                        Function::Exp => v.exp(),
                        Function::Exp2 => v.exp2(),
                        Function::Tanh => v.tanh(),
                    };
                    y.store(x.as_mut_ptr());
                }
            }
        }
    }

    #[test]
    fn within_ulps_of_f64() {
        let mut rng = Rng::new(6);
        for isa in isas() {
            for (function, range, limit, oracle) in [
                (Function::Exp, 87.3, 1.0, f64::exp as fn(f64) -> f64),
                (Function::Exp2, 125.9, 1.0, f64::exp2),
                (Function::Tanh, 12.0, 4.0, f64::tanh),
                (Function::Tanh, 0.7, 4.0, f64::tanh),
            ] {
                let x: Vec<f32> = (0..1 << 18).map(|_| rng.uniform() * range).collect();
                let mut y = x.clone();
                dispatch(isa, Map(function, &mut y));
                let mut worst = 0.0f64;
                for (&x, &y) in x.iter().zip(&y) {
                    let expect = oracle(x as f64);
                    let ulp = (expect as f32).abs().next_up() as f64 - (expect as f32).abs() as f64;
                    let error = (y as f64 - expect).abs() / ulp;
                    assert!(
                        error <= limit,
                        "{isa:?} {function:?}({x}) = {y}, expected {expect}: {error} ulp"
                    );
                    worst = worst.max(error);
                }
                eprintln!("{isa:?} {function:?} in +-{range}: {worst:.2} ulp");
            }
        }
    }

    #[test]
    fn edges() {
        for isa in isas() {
            let of = |function, x: f32| {
                let mut v = [x; 16];
                dispatch(isa, Map(function, &mut v));
                v[0]
            };
            for function in [Function::Exp, Function::Exp2] {
                assert_eq!(of(function, 0.0), 1.0);
                assert_eq!(of(function, f32::NEG_INFINITY), 0.0);
                assert_eq!(of(function, f32::MIN), 0.0);
                assert!(of(function, f32::INFINITY) > 1e38);
                assert!(of(function, f32::NAN).is_nan());
            }
            assert_eq!(of(Function::Tanh, 0.0), 0.0);
            assert_eq!(of(Function::Tanh, f32::INFINITY), 1.0);
            assert_eq!(of(Function::Tanh, f32::MIN), -1.0);
            assert!(of(Function::Tanh, f32::NAN).is_nan());
        }
    }
}
