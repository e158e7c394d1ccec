//! The weights of errors.

/// The sum of the squares.
#[inline(always)]
pub(crate) fn sum_of_squares(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |sum, x| sum + x * x)
}

/// The sum.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |sum, x| sum + x)
}

/// The mean of the squares.
#[inline(always)]
pub(crate) fn mean_square(values: &[f32]) -> f32 {
    sum_of_squares(values) / values.len() as f32
}

/// `importance * sqrt(energy + x^2)`: large values count more, but small ones of a row of energy count as well.
#[inline(always)]
pub(crate) fn weigh<const N: usize>(importance: &[f32], values: &[f32], energy: f32) -> [f32; N] {
    let (importance, values) = (&importance[..N], &values[..N]);
    std::array::from_fn(|i| importance[i] * (energy + values[i] * values[i]).sqrt())
}
