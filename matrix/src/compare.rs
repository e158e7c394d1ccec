//! How far values are from what they should be.

/// What an operation should give, and what its errors are measured against.
#[derive(Clone, Debug)]
pub struct Expected {
    values: Vec<f64>,
    /// The largest expected magnitude.
    size: f64,
    /// The sum of squared expected magnitudes.
    square: f64,
}

impl Expected {
    /// Values that are their own measure.
    pub fn new(values: Vec<f64>) -> Self {
        let finite = || values.iter().filter(|v| v.is_finite());
        Self {
            size: finite().fold(0.0, |m, v| m.max(v.abs())),
            square: finite().map(|v| v * v).sum(),
            values,
        }
    }

    /// Sums, each with the square root of the sum of its squared terms. A sum that cancels to almost nothing is
    /// measured against its terms: no rounding of those could give it to any share of its own size.
    pub fn sums(sums: Vec<(f64, f64)>) -> Self {
        let size = |&(value, terms): &(f64, f64)| value.abs().max(terms);
        Self {
            size: sums.iter().map(size).fold(0.0, f64::max),
            square: sums.iter().map(|sum| size(sum).powi(2)).sum(),
            values: sums.into_iter().map(|(value, _)| value).collect(),
        }
    }

    /// The expected values.
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

/// Error of an operation's values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Error {
    /// The largest, relative to the largest expected value.
    pub max: f64,
    /// The squared errors, relative to the squared expectations (normalized mean square error).
    pub nmse: f64,
}

impl Error {
    /// The larger of both, number by number.
    pub fn worst(self, other: Self) -> Self {
        Self {
            max: self.max.max(other.max),
            nmse: self.nmse.max(other.nmse),
        }
    }
}

/// The error of `got`, or what is wrong with it beyond any error.
pub fn compare(got: &[f32], want: &Expected) -> Result<Error, String> {
    if got.len() != want.values.len() {
        return Err(format!(
            "{} values where {} are due",
            got.len(),
            want.values.len()
        ));
    }
    let (mut max, mut sum) = (0f64, 0f64);
    for (at, (&got, &want)) in got.iter().zip(&want.values).enumerate() {
        let got = f64::from(got);
        // A value past the range of the output's float type is infinite there as here.
        if got == want {
            continue;
        }
        if !got.is_finite() || !want.is_finite() {
            return Err(format!("value {at} is {got} instead of {want}"));
        }
        let difference = (got - want).abs();
        max = max.max(difference);
        sum += difference * difference;
    }
    if max == 0.0 {
        return Ok(Error::default());
    }
    if want.size == 0.0 {
        return Err("zeros are due".into());
    }
    Ok(Error {
        max: max / want.size,
        nmse: sum / want.square,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_value() {
        let want = Expected::new(vec![1.0, -4.0, 0.0]);
        let error = compare(&[1.5, -4.0, 0.0], &want).unwrap();
        assert_eq!(error.max, 0.125);
        assert_eq!(error.nmse, 0.25 / 17.0);
    }

    #[test]
    fn a_sum_that_cancels_is_measured_by_its_terms() {
        let want = Expected::sums(vec![(0.0, 2.0)]);
        assert_eq!(compare(&[0.5], &want).unwrap().max, 0.25);
    }

    #[test]
    fn infinities_must_agree_and_nan_never_does() {
        let want = Expected::new(vec![f64::INFINITY, 2.0]);
        assert_eq!(compare(&[f32::INFINITY, 2.0], &want), Ok(Error::default()));
        assert!(compare(&[f32::MAX, 2.0], &want).is_err());
        assert!(compare(&[f32::INFINITY, f32::NAN], &want).is_err());
    }

    #[test]
    fn zeros_and_counts_are_exact() {
        let zeros = Expected::new(vec![0.0, 0.0]);
        assert_eq!(compare(&[0.0, -0.0], &zeros), Ok(Error::default()));
        assert!(compare(&[0.0, 1e-30], &zeros).is_err());
        assert!(compare(&[0.0], &zeros).is_err());
        assert!(compare(&[], &Expected::new(Vec::new())).is_ok());
    }
}
