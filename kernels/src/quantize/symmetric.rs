//! Searches for a signed scale: `value` is about `scale * (code - half)`, with codes of `0..2 half`.

use super::rounding::{largest, nearest};

/// Values whose magnitudes are all below this are zero.
pub(crate) const NOTHING: f32 = 1e-15;

/// Sums over the values `x` and their rounded multiples `q`, with weights `w`.
struct Fit {
    /// `w x q`
    xq: f32,
    /// `w q q`
    qq: f32,
}

impl Fit {
    #[inline(always)]
    fn new(values: &[f32], weights: &[f32], inverse: f32, half: i32) -> Self {
        let mut fit = Self { xq: 0.0, qq: 0.0 };
        for (&x, &w) in values.iter().zip(weights) {
            let q = round(inverse * x, half) as f32;
            fit.xq += w * x * q;
            fit.qq += w * q * q;
        }
        fit
    }
}

#[inline(always)]
fn round(value: f32, half: i32) -> i32 {
    nearest(value).clamp(-half, half - 1)
}

/// The scale with the least weighted squared error among 19 of about the largest value over `-half`, and its codes.
///
/// The scale is zero, and so are the codes, where there is nothing but zeros. Where all weights are zero, so is the
/// scale, but not the codes.
#[inline(always)]
pub(crate) fn search(values: &[f32], weights: &[f32], half: i32, codes: &mut [u8]) -> f32 {
    let most = largest(values);
    if most.abs() < NOTHING {
        codes[..values.len()].fill(0);
        return 0.0;
    }
    let mut best_inverse = -half as f32 / most;
    let fit = Fit::new(values, weights, best_inverse, half);
    let mut scale = if fit.qq == 0.0 { 0.0 } else { fit.xq / fit.qq };
    // What of the weighted energy the scale explains: the error is the rest.
    let mut best = scale * fit.xq;
    for step in (-9..=9).filter(|&step| step != 0) {
        let inverse = -(half as f32 + 0.1 * step as f32) / most;
        let fit = Fit::new(values, weights, inverse, half);
        if fit.qq > 0.0 && fit.xq * fit.xq > best * fit.qq {
            scale = fit.xq / fit.qq;
            best = scale * fit.xq;
            best_inverse = inverse;
        }
    }
    for (code, &x) in codes.iter_mut().zip(values) {
        *code = (half + round(best_inverse * x, half)) as u8;
    }
    scale
}

/// The scale found by moving one code at a time, up to five times each, to where the error is least, with the
/// squares of the values as weights.
///
/// The scale is zero, and so are the codes, where there is nothing but zeros.
#[inline(always)]
pub(crate) fn descend<const N: usize>(values: &[f32; N], half: i32, codes: &mut [u8; N]) -> f32 {
    let most = largest(values);
    if most.abs() < NOTHING {
        codes.fill(0);
        return 0.0;
    }
    let inverse = -half as f32 / most;
    let mut rounded = values.map(|x| round(inverse * x, half));
    let mut fit = Fit::new(values, &values.map(|x| x * x), inverse, half);
    for _ in 0..5 {
        let mut changed = false;
        for (q, &x) in rounded.iter_mut().zip(values) {
            let w = x * x;
            let old = *q as f32;
            let mut xq = fit.xq - w * x * old;
            if xq <= 0.0 || xq.is_nan() {
                continue;
            }
            let mut qq = fit.qq - w * old * old;
            let candidate = round(x * qq / xq, half);
            if candidate == *q {
                continue;
            }
            let new = candidate as f32;
            xq += w * x * new;
            qq += w * new * new;
            if qq > 0.0 && xq * xq * fit.qq > fit.xq * fit.xq * qq {
                *q = candidate;
                fit = Fit { xq, qq };
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    *codes = rounded.map(|q| (q + half) as u8);
    if fit.qq > 0.0 { fit.xq / fit.qq } else { 0.0 }
}
