//! Normal numbers that are the same on every machine for the same seed.

/// xorshift64* and Box-Muller.
pub struct Normal {
    state: u64,
}

impl Normal {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    /// A number between 0 and 1, neither included.
    fn unit(&mut self) -> f64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let bits = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A number of mean 0 and deviation 1.
    pub fn next(&mut self) -> f32 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        (radius * (2.0 * std::f64::consts::PI * self.unit()).cos()) as f32
    }
}
