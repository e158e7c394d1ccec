//! The search of `IQ4_NL` and `IQ4_XS`: a scale for 32 values that are rounded to a table of sixteen.

use super::rounding::largest;
use super::symmetric::NOTHING;
use super::weights::weigh;
use crate::blocks::codebook::IQ4;

const LEN: usize = 32;

/// Scales tried: the first guess, then those that map the largest value to -127 - 7 ... -127 + 7.
const TRIES: usize = 16;

/// Halfway between neighbours in the table. A value there belongs to the upper one.
const BOUNDS: [f32; 15] = {
    let mut bounds = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        bounds[i] = (IQ4[i] as f32 + IQ4[i + 1] as f32) / 2.0;
        i += 1;
    }
    bounds
};

/// The nearest value of the table.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    let mut value = f32::from(IQ4[0]);
    for i in 0..15 {
        let rise = (IQ4[i + 1] as i32 - IQ4[i] as i32) as f32;
        value += if x >= BOUNDS[i] { rise } else { 0.0 };
    }
    value
}

/// The indices of the nearest values to `x * inverse`, as stored: value `i` in the low nibble of byte `i`, value
/// `i + 16` in its high nibble.
#[inline(always)]
pub(crate) fn round(x: &[f32; LEN], inverse: f32) -> [u8; LEN / 2] {
    let index = |x: f32| {
        let mut index = 0;
        for bound in BOUNDS {
            index += u8::from(inverse * x >= bound);
        }
        index
    };
    std::array::from_fn(|i| index(x[i]) | index(x[i + LEN / 2]) << 4)
}

/// The scale of least weighted square error among those tried, the sign of the largest value's opposite; zero if all
/// values are.
#[inline(always)]
pub(crate) fn fit(x: &[f32; LEN], weights: &[f32; LEN]) -> f32 {
    let largest = largest(x);
    if largest.abs() < NOTHING {
        return 0.0;
    }
    let first = f32::from(IQ4[0]);
    let mut inverses = [0.0; TRIES];
    inverses[0] = 1.0 / (-largest / first);
    for (i, inverse) in inverses[1..].iter_mut().enumerate() {
        *inverse = (i as f32 - 7.0 + first) / largest;
    }
    // All tries side by side: each has its own sums, added up in the order of the values.
    let (mut sum_qx, mut sum_q2) = ([0.0f32; TRIES], [0.0f32; TRIES]);
    for (&x, &w) in x.iter().zip(weights) {
        for t in 0..TRIES {
            let q = nearest(inverses[t] * x);
            sum_qx[t] += w * q * x;
            sum_q2[t] += w * q * q;
        }
    }
    let mut scale = if sum_q2[0] > 0.0 {
        sum_qx[0] / sum_q2[0]
    } else {
        0.0
    };
    let mut best = scale * sum_qx[0];
    for (&qx, &q2) in sum_qx[1..].iter().zip(&sum_q2[1..]) {
        if q2 > 0.0 && qx * qx > best * q2 {
            scale = qx / q2;
            best = scale * qx;
        }
    }
    scale
}

/// The weights of values: their squares, or importance times their magnitude, which `variance` keeps above zero.
#[inline(always)]
pub(crate) fn weights(x: &[f32; LEN], importance: Option<&[f32]>, variance: f32) -> [f32; LEN] {
    match importance {
        Some(importance) => weigh(importance, x, variance),
        None => x.map(|x| x * x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_to_the_nearest_and_halves_up() {
        for n in -1400..=1400 {
            let x = n as f32 / 10.0;
            let distance = |i: &usize| (x - f32::from(IQ4[*i])).abs();
            let index = (0..16)
                .rev()
                .min_by(|a, b| distance(a).total_cmp(&distance(b)))
                .unwrap();
            assert_eq!(nearest(x), f32::from(IQ4[index]), "{x}");
            assert_eq!(round(&[x; LEN], 1.0), [index as u8 * 17; LEN / 2], "{x}");
        }
    }

    #[test]
    fn multiples_of_the_table_are_found() {
        let x: [f32; LEN] = std::array::from_fn(|i| -0.25 * f32::from(IQ4[i % 16]));
        assert_eq!(fit(&x, &weights(&x, None, 0.0)), -0.25);
        assert_eq!(fit(&[0.0; LEN], &[1.0; LEN]), 0.0);
    }
}
