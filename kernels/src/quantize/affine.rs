//! Search for a scale and a minimum: `value` is about `scale * code - min`, with codes of `0..=max_code` and a `min`
//! that is not negative.

use super::rounding::{nearest, nearest_within, range};

/// Trials that are made at a time.
const LANES: usize = 16;

/// Below this, rounding by adding a large number does what it should.
const NEAREST_BOUND: f32 = 4e6;

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

impl Error {
    #[inline(always)]
    fn of(self, difference: f32) -> f32 {
        match self {
            Self::Absolute => difference.abs(),
            Self::Squared => difference * difference,
        }
    }
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
/// to them by least squares. Most trials are no better, so several are made at once as if those before were not.
#[inline(always)]
pub(crate) fn search<const N: usize>(
    values: &[f32; N],
    weights: &[f32; N],
    max_code: i32,
    trials: Trials,
    codes: &mut [u8; N],
) -> Affine {
    let (lowest, highest) = range(values);
    let mut sum_w = weights[0];
    let mut sum_x = sum_w * values[0];
    for (&x, &w) in values.iter().zip(weights).skip(1) {
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
    let inverse = max_code as f32 / (highest - min);
    *codes = round(values, inverse, min, max_code);
    let mut scale = 1.0 / inverse;
    let mut least = 0.0f32;
    for i in 0..N {
        let difference = scale * f32::from(codes[i]) + min - values[i];
        least += weights[i] * trials.error.of(difference);
    }

    let mut best_inverse = None;
    let mut next = 0;
    while next <= trials.count {
        // The trials after one that is taken start from another minimum, and are made again.
        let span = highest - min;
        let inverses: [f32; LANES] = std::array::from_fn(|lane| {
            (trials.first + trials.step * (next + lane as u32) as f32 + max_code as f32) / span
        });
        let farthest = if lowest - min < 0.0 {
            span - (lowest - min)
        } else {
            span
        };
        let bounds = inverses[LANES - 1].abs().max(inverses[0].abs()) * farthest.abs();
        let batch = Batch {
            values,
            weights,
            inverses,
            min,
            max_code,
            sum_w,
            sum_x,
        };
        let fits = if bounds < NEAREST_BOUND {
            batch.fit::<true>(trials.error)
        } else {
            batch.fit::<false>(trials.error)
        };
        let left = (trials.count + 1 - next) as usize;
        let better = fits.iter().take(left).position(|fit| fit.error < least);
        let Some(lane) = better else {
            next += LANES as u32;
            continue;
        };
        best_inverse = Some((inverses[lane], min));
        Fit {
            error: least,
            scale,
            min,
        } = fits[lane];
        next += lane as u32 + 1;
    }
    if let Some((inverse, min)) = best_inverse {
        *codes = round(values, inverse, min, max_code);
    }
    Affine { scale, min: -min }
}

#[inline(always)]
fn round<const N: usize>(values: &[f32; N], inverse: f32, min: f32, max_code: i32) -> [u8; N] {
    values.map(|x| nearest(inverse * (x - min)).clamp(0, max_code) as u8)
}

/// Trials from the same minimum.
struct Batch<'a, const N: usize> {
    values: &'a [f32; N],
    weights: &'a [f32; N],
    inverses: [f32; LANES],
    min: f32,
    max_code: i32,
    /// The sum of the weights.
    sum_w: f32,
    /// The weighted sum of the values.
    sum_x: f32,
}

/// What came of a trial.
#[derive(Clone, Copy)]
struct Fit {
    /// Not a number where nothing can be fitted.
    error: f32,
    scale: f32,
    min: f32,
}

impl<const N: usize> Batch<'_, N> {
    /// The trials side by side, each sum in the order of the values. `NEAR` is whether all values take codes within
    /// 2^22 of zero.
    #[inline(always)]
    fn fit<const NEAR: bool>(&self, kind: Error) -> [Fit; LANES] {
        let high = self.max_code as f32;
        let mut trial = [[0.0f32; LANES]; N];
        let (mut sum_q, mut sum_qq, mut sum_xq) =
            ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
        for (i, trial) in trial.iter_mut().enumerate() {
            let (x, w) = (self.values[i], self.weights[i]);
            let above = x - self.min;
            for lane in 0..LANES {
                let multiple = self.inverses[lane] * above;
                let q = if NEAR {
                    nearest_within(multiple, 0.0, high)
                } else {
                    nearest(multiple).clamp(0, self.max_code) as f32
                };
                trial[lane] = q;
                sum_q[lane] += w * q;
                sum_qq[lane] += w * q * q;
                sum_xq[lane] += w * q * x;
            }
        }
        let (mut scales, mut mins) = ([f32::NAN; LANES], [0.0f32; LANES]);
        for lane in 0..LANES {
            let (q, qq, xq) = (sum_q[lane], sum_qq[lane], sum_xq[lane]);
            let determinant = self.sum_w * qq - q * q;
            let scale = (self.sum_w * xq - self.sum_x * q) / determinant;
            let min = (qq * self.sum_x - q * xq) / determinant;
            let (scale, min) = if min > 0.0 {
                (xq / qq, 0.0)
            } else {
                (scale, min)
            };
            scales[lane] = if determinant > 0.0 { scale } else { f32::NAN };
            mins[lane] = min;
        }
        let mut errors = [0.0f32; LANES];
        for (i, trial) in trial.iter().enumerate() {
            let (x, w) = (self.values[i], self.weights[i]);
            for lane in 0..LANES {
                let difference = scales[lane] * trial[lane] + mins[lane] - x;
                errors[lane] += w * kind.of(difference);
            }
        }
        std::array::from_fn(|lane| Fit {
            error: errors[lane],
            scale: scales[lane],
            min: mins[lane],
        })
    }
}
