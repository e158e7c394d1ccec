//! What the tests of the fused operations share: tolerances, random numbers, the ISAs present.

use super::Isa;

/// How far an operation may be from its `f64` oracle: `|got - expect| <= abs + rel * |expect|`.
#[derive(Clone, Copy)]
pub(crate) struct Tolerance {
    pub(crate) abs: f64,
    pub(crate) rel: f64,
}

// The table of tolerances. One f32 rounding is 6e-8 relative.
/// Two products, one square root and quotient, and a sum of squares whose error grows with dim / (4 lanes).
pub(crate) const RMS_NORM: Tolerance = Tolerance {
    abs: 0.0,
    rel: 2e-6,
};
/// Two products and a sum, which may cancel; inputs are of order 1.
pub(crate) const ROPE: Tolerance = Tolerance {
    abs: 1e-6,
    rel: 0.0,
};
/// `exp` within 1 ulp, then a sum, a quotient and one or two products. Where `exp` overflows the result is zero
/// instead of below 1e-36.
pub(crate) const GLU: Tolerance = Tolerance {
    abs: 1e-36,
    rel: 6e-7,
};
/// GELU's argument (cubic in x) is rounded before `exp`, whose relative error is the argument's absolute one: the
/// argument reaches 90 before the result vanishes.
pub(crate) const GEGLU: Tolerance = Tolerance {
    abs: 1e-30,
    rel: 3e-5,
};
/// As `GLU`; `1.702 x` is rounded before `exp`, and reaches 100 before the result vanishes. `up + 1` may cancel, with what
/// is left times a gate of at most 7.
pub(crate) const SWIGLU_OAI: Tolerance = Tolerance {
    abs: 1e-6,
    rel: 2e-6,
};
/// Scores of order 1 carry errors near 1e-6 into the exponent; values of order 1 are averaged.
pub(crate) const ATTENTION: Tolerance = Tolerance {
    abs: 1e-5,
    rel: 0.0,
};

/// As `ATTENTION`, with scores up to the cap, 50, whose `tanh` is within 4 ulp.
pub(crate) const ATTENTION_CAPPED: Tolerance = Tolerance {
    abs: 1e-4,
    rel: 0.0,
};

/// Panics at the first element out of tolerance.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], expect: &[f64], tolerance: Tolerance, what: &str) {
    assert_eq!(got.len(), expect.len(), "{what}");
    for (i, (&g, &e)) in got.iter().zip(expect).enumerate() {
        let error = (g as f64 - e).abs();
        // Written so that NaN fails.
        assert!(
            error <= tolerance.abs + tolerance.rel * e.abs(),
            "{what}: element {i} is {g}, expected {e}, error {error:e}"
        );
    }
}

/// The levels this CPU has, slowest first.
pub(crate) fn isas() -> Vec<Isa> {
    let (present, absent) = Isa::ALL
        .iter()
        .partition::<Vec<Isa>, _>(|isa| isa.is_available());
    for isa in absent {
        eprintln!("skipped: {isa:?}, not on this CPU");
    }
    present
}

/// A small generator (xorshift64*), so that failures repeat.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Uniform in `-1.0..1.0`.
    pub(crate) fn uniform(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        bits as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// `n` values of mean 0 and variance 1, roughly normal.
    pub(crate) fn normal(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| self.uniform() + self.uniform() + self.uniform())
            .collect()
    }
}
