//! Roundings that the quantizers share.

use half::f16;

/// The nearest integer, ties to even, if `value` is within 2^22 of zero.
///
/// Beyond that the result is what is left in the low bits of the sum, as in ggml: scales that underflow to almost
/// nothing lead there.
#[inline(always)]
pub(crate) fn nearest(value: f32) -> i32 {
    // 1.5 * 2^23: adding it leaves no room for a fraction.
    const MAGIC: f32 = 12_582_912.0;
    ((value + MAGIC).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// The nearest integer, ties away from zero; saturating.
#[inline(always)]
pub(crate) fn nearest_away(value: f32) -> i32 {
    // The number before one half: one half itself would carry the number before it up to one.
    const ALMOST_HALF: f32 = 0.499_999_97;
    (value + ALMOST_HALF.copysign(value)) as i32
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

/// The first of the values with the largest magnitude.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    let mut largest = 0.0f32;
    for &value in values {
        if value.abs() > largest.abs() {
            largest = value;
        }
    }
    largest
}

/// The largest magnitude of the values.
#[inline(always)]
pub(crate) fn largest_magnitude(values: &[f32]) -> f32 {
    // In lanes, which a maximum does not mind.
    let mut lanes = [0.0f32; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if value.abs() > *lane {
                value.abs()
            } else {
                *lane
            };
        }
    }
    lanes
        .iter()
        .chain(rest)
        .fold(0.0, |most, value| value.abs().max(most))
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
            assert_eq!(nearest_away(value), away, "{value}");
            assert_eq!(nearest_away(value), value.round() as i32, "{value}");
        }
        assert_eq!(nearest_away(f32::INFINITY), i32::MAX);
        assert_eq!(nearest_away(f32::NAN), 0);
    }

    #[test]
    fn the_first_of_equal_magnitudes_is_the_largest() {
        assert_eq!(largest(&[1.0, -3.0, 3.0]), -3.0);
        assert_eq!(largest(&[]), 0.0);
        assert_eq!(largest_magnitude(&[1.0, -3.0, 2.0]), 3.0);
    }
}
