//! How fast a generation was.

use std::fmt;
use std::time::Duration;

/// Counts and durations of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GenerationStats {
    /// Tokens of the prompt that went through the model, cached ones not included.
    pub prompt_tokens: usize,
    /// Time for the prompt, up to the logits of the first token.
    pub prompt_time: Duration,
    /// Tokens chosen.
    pub generated_tokens: usize,
    /// Passes through the model with one token each. One less than the tokens chosen, as the last
    /// one is not fed back.
    pub decode_steps: usize,
    /// Time for these passes and for choosing tokens.
    pub decode_time: Duration,
}

impl GenerationStats {
    /// Counts a pass over prompt tokens.
    pub fn add_prompt(&mut self, tokens: usize, time: Duration) {
        self.prompt_tokens += tokens;
        self.prompt_time += time;
    }

    /// Counts a pass over one generated token.
    pub fn add_decode(&mut self, time: Duration) {
        self.decode_steps += 1;
        self.decode_time += time;
    }

    /// Prompt tokens per second; 0 if there were none.
    pub fn prompt_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Generated tokens per second, counted over the passes that were timed; 0 if there were none.
    pub fn tokens_per_second(&self) -> f64 {
        rate(self.decode_steps, self.decode_time)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if count == 0 || time.is_zero() {
        0.0
    } else {
        count as f64 / time.as_secs_f64()
    }
}

impl fmt::Display for GenerationStats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "prompt: {} tokens in {:.2} s ({:.1} t/s), generated: {} tokens in {:.2} s ({:.1} t/s)",
            self.prompt_tokens,
            self.prompt_time.as_secs_f64(),
            self.prompt_tokens_per_second(),
            self.generated_tokens,
            self.decode_time.as_secs_f64(),
            self.tokens_per_second(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let mut stats = GenerationStats::default();
        assert_eq!(
            (stats.prompt_tokens_per_second(), stats.tokens_per_second()),
            (0.0, 0.0)
        );
        stats.add_prompt(300, Duration::from_millis(500));
        stats.add_prompt(100, Duration::from_millis(500));
        stats.generated_tokens = 3;
        stats.add_decode(Duration::from_millis(40));
        stats.add_decode(Duration::from_millis(60));
        assert_eq!(
            (stats.prompt_tokens_per_second(), stats.tokens_per_second()),
            (400.0, 20.0)
        );
        assert_eq!(
            stats.to_string(),
            "prompt: 400 tokens in 1.00 s (400.0 t/s), generated: 3 tokens in 0.10 s (20.0 t/s)"
        );
    }
}
