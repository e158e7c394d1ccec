//! How the next token is chosen.

use super::SamplingError;

/// Sampling parameters, applied in the order of their fields. The defaults are llama.cpp's.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Logits of tokens among the last [`repeat_last_n`](Self::repeat_last_n) are divided by this
    /// if positive and multiplied if not; 1 does nothing.
    pub repeat_penalty: f32,
    /// How many tokens back the penalty looks, the prompt included; 0 does nothing.
    pub repeat_last_n: usize,
    /// Keeps the most likely tokens, this many; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely tokens until their probabilities sum up to this; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Divides the logits of what was kept; 0 takes the most likely token.
    pub temperature: f32,
    /// The same seed gives the same choices; `None` draws one.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            temperature: 0.8,
            seed: None,
        }
    }
}

impl SamplingParams {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The variant of [`SamplingError`] that is named after the first one out of range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(SamplingError::Temperature(self.temperature));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(SamplingError::TopP(self.top_p));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(SamplingError::MinP(self.min_p));
        }
        if !(self.repeat_penalty > 0.0 && self.repeat_penalty.is_finite()) {
            return Err(SamplingError::RepeatPenalty(self.repeat_penalty));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        SamplingParams::default().validate().unwrap();
        SamplingParams::greedy().validate().unwrap();
    }

    #[test]
    fn temperature() {
        for bad in [-0.1, f32::NAN, f32::INFINITY] {
            let params = SamplingParams {
                temperature: bad,
                ..SamplingParams::default()
            };
            assert!(
                matches!(params.validate(), Err(SamplingError::Temperature(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn top_p() {
        for bad in [0.0, -1.0, 1.1, f32::NAN] {
            let params = SamplingParams {
                top_p: bad,
                ..SamplingParams::default()
            };
            assert!(
                matches!(params.validate(), Err(SamplingError::TopP(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn min_p() {
        for bad in [-0.1, 1.1, f32::NAN] {
            let params = SamplingParams {
                min_p: bad,
                ..SamplingParams::default()
            };
            assert!(
                matches!(params.validate(), Err(SamplingError::MinP(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn repeat_penalty() {
        for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let params = SamplingParams {
                repeat_penalty: bad,
                ..SamplingParams::default()
            };
            assert!(
                matches!(params.validate(), Err(SamplingError::RepeatPenalty(_))),
                "{bad}"
            );
        }
    }
}
