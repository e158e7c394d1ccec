//! Roundings that the quantizers share.

use half::f16;

/// 1.5 * 2^23: adding it leaves no room for a fraction.
const MAGIC: f32 = 12_582_912.0;

/// The nearest integer, ties to even, if `value` is within 2^22 of zero.
///
/// Beyond that the result is what is left in the low bits of the sum, as in ggml: scales that underflow to almost
/// nothing lead there.
#[inline(always)]
pub(crate) fn nearest(value: f32) -> i32 {
    ((value + MAGIC).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// As [`nearest`], as a number and within bounds, for values within 2^22 of zero.
#[inline(always)]
pub(crate) fn nearest_within(value: f32, low: f32, high: f32) -> f32 {
    let rounded = (value + MAGIC) - MAGIC;
    let rounded = if rounded < low { low } else { rounded };
    if rounded > high { high } else { rounded }
}

/// The nearest integer, ties away from zero, within `low..=high`.
#[inline(always)]
pub(crate) fn nearest_away(value: f32, low: i8, high: i8) -> i32 {
    // The number before one half: one half itself would carry the number before it up to one.
    const ALMOST_HALF: f32 = 0.499_999_97;
    truncate(
        value + ALMOST_HALF.copysign(value),
        f32::from(low),
        f32::from(high),
    )
}

/// The value without its fraction, brought within `low..=high` before; `low` for NaN.
#[inline(always)]
pub(crate) fn truncate(value: f32, low: f32, high: f32) -> i32 {
    debug_assert!(low >= -1e9 && high <= 1e9);
    let value = if value > low { value } else { low };
    let value = if value < high { value } else { high };
    // SAFETY: a number of at most 1e9, as all callers bound it. The checked conversion would not be vectorized.
    unsafe { value.to_int_unchecked() }
}

/// `1 / value`, or zero for zero.
#[inline(always)]
pub(crate) fn inverse(value: f32) -> f32 {
    if value == 0.0 { 0.0 } else { 1.0 / value }
}

/// Writes the nearest `f16` at the start of `out`, and returns what was written.
#[inline(always)]
pub(crate) fn write_f16(out: &mut [u8], value: f32) -> f32 {
    let half = f16::from_f32_const(value);
    out[..2].copy_from_slice(&half.to_le_bytes());
    half.to_f32_const()
}

/// The first of the values with the largest magnitude; zero, not minus zero, if that is zero.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    let (low, high) = extremes(values, 0.0, 0.0);
    if high > -low {
        high
    } else if high < -low {
        low
    } else {
        // Both signs occur, or there is nothing but zeros.
        let first = values.iter().find(|x| x.abs() == high && high > 0.0);
        *first.unwrap_or(&0.0)
    }
}

/// The largest magnitude of the values.
#[inline(always)]
pub(crate) fn largest_magnitude(values: &[f32]) -> f32 {
    let (low, high) = extremes(values, 0.0, 0.0);
    if high < -low { -low } else { high }
}

/// The least and the greatest of the values; of zeros the first, whose sign may differ from the others'.
#[inline(always)]
pub(crate) fn range<const N: usize>(values: &[f32; N]) -> (f32, f32) {
    let (low, high) = extremes(values, f32::MAX, f32::MIN);
    let first_zero = |x: f32| {
        if x != 0.0 {
            return x;
        }
        *values.iter().find(|&&x| x == 0.0).unwrap_or(&x)
    };
    (first_zero(low), first_zero(high))
}

/// The least of the values and `low`, and the greatest of them and `high`, in lanes: the order makes no difference but
/// for the sign of zeros.
#[inline(always)]
fn extremes(values: &[f32], low: f32, high: f32) -> (f32, f32) {
    const LANES: usize = 8;
    let least = |a: f32, b: f32| if b < a { b } else { a };
    let most = |a: f32, b: f32| if b > a { b } else { a };
    let (mut lows, mut highs) = ([low; LANES], [high; LANES]);
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lows[i] = least(lows[i], chunk[i]);
            highs[i] = most(highs[i], chunk[i]);
        }
    }
    for &x in rest {
        (lows[0], highs[0]) = (least(lows[0], x), most(highs[0], x));
    }
    for width in [4, 2, 1] {
        for i in 0..width {
            lows[i] = least(lows[i], lows[i + width]);
            highs[i] = most(highs[i], highs[i + width]);
        }
    }
    (lows[0], highs[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_where_they_should() {
        let cases = [
            (0.5, 0, 1),
            (-0.5, 0, -1),
            (1.5, 2, 2),
            (2.5, 2, 3),
            (-2.5, -2, -3),
            (0.499_999_97, 0, 0),
            (-0.499_999_97, 0, 0),
            (4_194_303.0, 4_194_303, 4_194_303),
            (-4_194_304.0, -4_194_304, -4_194_304),
        ];
        for (value, even, away) in cases {
            assert_eq!(nearest(value), even, "{value}");
            assert_eq!(nearest_within(value, -5e6, 5e6), even as f32, "{value}");
            if value.abs() < 100.0 {
                assert_eq!(nearest_away(value, -127, 127), away, "{value}");
                assert_eq!(away, value.round() as i32, "{value}");
            }
        }
        assert_eq!(nearest_away(f32::INFINITY, -1, 2), 2);
        assert_eq!(nearest_away(-9.0, -1, 2), -1);
        assert_eq!(nearest_away(f32::NAN, -1, 2), -1);
        assert_eq!(nearest_within(3.7, 0.0, 3.0), 3.0);
        assert_eq!(truncate(-0.9, -1.0, 3.0), 0);
    }

    #[test]
    fn the_first_of_equal_magnitudes_is_the_largest() {
        assert_eq!(largest(&[1.0, -3.0, 3.0]), -3.0);
        assert_eq!(largest(&[1.0, 3.0, -3.0, -2.0]), 3.0);
        assert_eq!(largest(&[1.0, -4.0, -3.0]), -4.0);
        assert_eq!(largest(&[1.0, -4.0, 5.0]), 5.0);
        assert_eq!(largest(&[]), 0.0);
        assert_eq!(largest_magnitude(&[1.0, -3.0, 2.0]), 3.0);
        assert_eq!(range(&[1.0, -3.0, 2.0]), (-3.0, 2.0));
        assert!(largest(&[-0.0, 0.0]).is_sign_positive());
        let mut zeros = [0.0f32; 16];
        zeros[0] = -0.0;
        assert!(range(&zeros).0.is_sign_negative());
    }
}
