//! Searches for a signed scale: `value` is about `scale * (code - half)`, with codes of `0..2 half`.

use super::rounding::{largest, nearest, nearest_within};

/// Values whose magnitudes are all below this are zero.
pub(crate) const NOTHING: f32 = 1e-15;

/// Inverse scales that are tried, 19, and what fills up registers.
const LANES: usize = 24;

/// Sums over the values `x` and their rounded multiples `q`, with weights `w`.
#[derive(Clone, Copy)]
struct Fit {
    /// `w x q`
    xq: f32,
    /// `w q q`
    qq: f32,
}

impl Fit {
    /// The fits of `K` inverse scales, which must take no value beyond 2^22. Each sum is in the order of the values.
    #[inline(always)]
    fn of<const K: usize>(
        values: &[f32],
        weights: &[f32],
        inverses: &[f32; K],
        half: i32,
    ) -> [Self; K] {
        let (low, high) = (-half as f32, (half - 1) as f32);
        let (mut xq, mut qq) = ([0.0f32; K], [0.0f32; K]);
        for (&x, &w) in values.iter().zip(weights) {
            let wx = w * x;
            for k in 0..K {
                let q = nearest_within(inverses[k] * x, low, high);
                xq[k] += wx * q;
                qq[k] += w * q * q;
            }
        }
        std::array::from_fn(|k| Self {
            xq: xq[k],
            qq: qq[k],
        })
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
    // No step, then the steps from -9 to 9 but zero, then some that are not looked at.
    let steps: [i32; LANES] = std::array::from_fn(|i| match i as i32 {
        0 => 0,
        i if i < 10 => i - 10,
        i => i - 9,
    });
    let inverses = steps.map(|step| -(half as f32 + 0.1 * step as f32) / most);
    let fits = Fit::of(values, weights, &inverses, half);
    let mut best_inverse = inverses[0];
    let mut scale = if fits[0].qq == 0.0 {
        0.0
    } else {
        fits[0].xq / fits[0].qq
    };
    // What of the weighted energy the scale explains: the error is the rest.
    let mut best = scale * fits[0].xq;
    for (fit, inverse) in fits[1..19].iter().zip(&inverses[1..19]) {
        if fit.qq > 0.0 && fit.xq * fit.xq > best * fit.qq {
            scale = fit.xq / fit.qq;
            best = scale * fit.xq;
            best_inverse = *inverse;
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
    let [mut fit] = Fit::of(values, &values.map(|x| x * x), &[inverse], half);
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
