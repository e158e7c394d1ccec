//! What can be wrong about sampling.

/// A parameter out of its range, or logits that no token can be chosen from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// `temperature` is negative or not finite.
    #[error("temperature is {0}, expected 0 (greedy) or a positive number")]
    Temperature(f32),
    /// `top_p` is outside of (0, 1].
    #[error("top_p is {0}, expected more than 0 and at most 1 (1 keeps everything)")]
    TopP(f32),
    /// `min_p` is outside of [0, 1].
    #[error("min_p is {0}, expected between 0 (keeps everything) and 1")]
    MinP(f32),
    /// `repeat_penalty` is not positive or not finite.
    #[error("repeat_penalty is {0}, expected a positive number (1 does nothing)")]
    RepeatPenalty(f32),
    /// A logit is NaN or positive infinity: the model's arithmetic went wrong.
    #[error("the logit of token {token} is {value}: the model's output is not usable")]
    NotFinite {
        /// Lowest such id.
        token: u32,
        /// The logit.
        value: f32,
    },
    /// There are no logits, or all are minus infinity.
    #[error("no token can be chosen: all {0} logits are excluded")]
    NothingToChoose(usize),
}
