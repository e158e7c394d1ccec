//! Search for a scale and a minimum: `value` is about `scale * code - min`, with codes of `0..=max_code` and a `min`
//! that is not negative.

use super::rounding::nearest;

/// What to try: the range of the values is spread over `max_code + first + step * i` codes for each `i` of
/// `0..=count`.
#[derive(Clone, Copy)]
pub(crate) struct Trials {
    pub first: f32,
    pub step: f32,
    pub count: u32,
    /// The error that is made least.
    pub error: Error,
}

/// How a difference counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    Absolute,
    Squared,
}

impl Trials {
    /// What ggml tries with an importance matrix, for every type.
    pub(crate) const WEIGHTED: Self = Self {
        first: -0.9,
        step: 0.05,
        count: 36,
        error: Error::Squared,
    };
}

/// Scale and minimum of a sub-block.
#[derive(Clone, Copy)]
pub(crate) struct Affine {
    pub scale: f32,
    /// What is subtracted: not negative.
    pub min: f32,
}

/// The scale and minimum with the least weighted error, and their codes.
///
/// Every trial spreads the range from the best minimum so far, rounds the values to codes, and fits scale and minimum
/// to them by least squares.
#[inline(always)]
pub(crate) fn search<const N: usize>(
    values: &[f32; N],
    weights: &[f32; N],
    max_code: i32,
    trials: Trials,
    codes: &mut [u8; N],
) -> Affine {
    let (mut lowest, mut highest) = (values[0], values[0]);
    let mut sum_w = weights[0];
    let mut sum_x = sum_w * values[0];
    for (&x, &w) in values.iter().zip(weights).skip(1) {
        lowest = if x < lowest { x } else { lowest };
        highest = if x > highest { x } else { highest };
        sum_w += w;
        sum_x += w * x;
    }
    // Zero is kept a value that can be had.
    let mut min = if lowest > 0.0 { 0.0 } else { lowest };
    if highest <= min {
        codes.fill(0);
        return Affine {
            scale: 0.0,
            min: -min,
        };
    }
    let round = |inverse: f32, min: f32| {
        values.map(|x| nearest(inverse * (x - min)).clamp(0, max_code) as u8)
    };
    let error_of = |codes: &[u8; N], scale: f32, min: f32| {
        let mut sum = 0.0f32;
        for i in 0..N {
            let difference = scale * f32::from(codes[i]) + min - values[i];
            sum += weights[i]
                * match trials.error {
                    Error::Absolute => difference.abs(),
                    Error::Squared => difference * difference,
                };
        }
        sum
    };

    let inverse = max_code as f32 / (highest - min);
    let mut scale = 1.0 / inverse;
    *codes = round(inverse, min);
    let mut least = error_of(codes, scale, min);
    for i in 0..=trials.count {
        let inverse = (trials.first + trials.step * i as f32 + max_code as f32) / (highest - min);
        let trial = round(inverse, min);
        let (mut sum_q, mut sum_qq, mut sum_xq) = (0.0f32, 0.0f32, 0.0f32);
        for i in 0..N {
            let (w, q) = (weights[i], f32::from(trial[i]));
            sum_q += w * q;
            sum_qq += w * q * q;
            sum_xq += w * q * values[i];
        }
        let determinant = sum_w * sum_qq - sum_q * sum_q;
        if determinant <= 0.0 || determinant.is_nan() {
            continue;
        }
        let mut trial_scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
        let mut trial_min = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
        if trial_min > 0.0 {
            trial_min = 0.0;
            trial_scale = sum_xq / sum_qq;
        }
        let error = error_of(&trial, trial_scale, trial_min);
        if error < least {
            (least, scale, min) = (error, trial_scale, trial_min);
            *codes = trial;
        }
    }
    Affine { scale, min: -min }
}
