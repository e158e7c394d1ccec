//! Rotary position embedding tables.

use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::nn::functional;
use burn_gguf::ops::RopeStyle;

use super::Positions;

/// YaRN context extension (Peng et al. 2023), as GGUF metadata states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// Context the model was trained with, in positions.
    pub original_context: usize,
    /// Weight of the extrapolated frequencies (1 in real files).
    pub ext_factor: f64,
    /// Rotations above which a pair keeps its frequency.
    pub beta_fast: f64,
    /// Rotations below which a pair is fully interpolated.
    pub beta_slow: f64,
}

/// Frequencies of a rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Values of a head that rotate, from the first on.
    pub n_rot: usize,
    /// Base of the geometric series of wavelengths.
    pub base: f64,
    /// Factor on positions: `1 / rope.scaling.factor`.
    pub freq_scale: f64,
    /// Factor on cosine and sine.
    pub attn_factor: f64,
    /// YaRN, if the file asks for it.
    pub yarn: Option<Yarn>,
    /// How the values of a head pair up.
    pub style: RopeStyle,
    /// What the frequency of each pair is divided by, `[n_rot / 2]`.
    pub divisors: Option<Vec<f32>>,
    /// Interleaved multi-axis rotation (IMROPE): of every three pairs the second turns by the row and the third by the
    /// column, up to as many as these sections for time, row and column say; the rest turns by the time.
    pub sections: Option<[usize; 3]>,
}

impl RopeConfig {
    /// Plain rotation of the first `n_rot` values.
    pub fn new(n_rot: usize, base: f64, style: RopeStyle) -> Self {
        Self {
            n_rot,
            base,
            freq_scale: 1.0,
            attn_factor: 1.0,
            yarn: None,
            style,
            divisors: None,
            sections: None,
        }
    }

    /// Which of time, row and column pair `i` turns by.
    fn axis(&self, pair: usize) -> usize {
        match (self.sections, pair % 3) {
            (Some([_, rows, _]), 1) if pair < 3 * rows => 1,
            (Some([_, _, columns]), 2) if pair < 3 * columns => 2,
            _ => 0,
        }
    }

    /// Angle per position of each pair, `[n_rot / 2]`.
    fn frequencies(&self) -> Vec<f64> {
        let mut frequencies = self.undivided();
        for (frequency, &divisor) in frequencies.iter_mut().zip(self.divisors.iter().flatten()) {
            *frequency /= f64::from(divisor);
        }
        frequencies
    }

    fn undivided(&self) -> Vec<f64> {
        let n_rot = self.n_rot as f64;
        let plain = (0..self.n_rot / 2).map(|i| self.base.powf(-2.0 * i as f64 / n_rot));
        let Some(yarn) = &self.yarn else {
            return plain.map(|f| f * self.freq_scale).collect();
        };
        let correction = |rotations: f64| {
            let wavelength =
                yarn.original_context as f64 / (rotations * 2.0 * std::f64::consts::PI);
            n_rot * wavelength.ln() / (2.0 * self.base.ln())
        };
        let low = correction(yarn.beta_fast).floor().max(0.0);
        let high = correction(yarn.beta_slow).ceil().min(n_rot - 1.0);
        plain
            .enumerate()
            .map(|(i, f)| {
                let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                let mix = ramp * yarn.ext_factor;
                f * (self.freq_scale * (1.0 - mix) + mix)
            })
            .collect()
    }

    /// Factor on cosine and sine.
    fn magnitude(&self) -> f64 {
        match self.yarn {
            Some(_) => self.attn_factor * (1.0 + 0.1 * (1.0 / self.freq_scale).ln()),
            None => self.attn_factor,
        }
    }
}

/// The rotary embedding of one kind of layer, with its frequencies worked out.
#[derive(Clone, Debug)]
pub struct Rope {
    frequencies: Vec<f64>,
    axes: Vec<usize>,
    magnitude: f64,
    style: RopeStyle,
}

impl Rope {
    /// Works out the frequencies.
    pub fn new(config: &RopeConfig) -> Self {
        Self {
            frequencies: config.frequencies(),
            axes: (0..config.n_rot / 2).map(|i| config.axis(i)).collect(),
            magnitude: config.magnitude(),
            style: config.style,
        }
    }

    /// Cosine and sine for these positions, shared by all layers of this kind in a forward pass.
    pub fn table(&self, positions: &Positions, device: &Device) -> RopeTable {
        let (seq, half) = (positions.len(), self.frequencies.len());
        let mut cos = Vec::with_capacity(seq * half);
        let mut sin = Vec::with_capacity(seq * half);
        for position in positions.thw() {
            for (frequency, &axis) in self.frequencies.iter().zip(&self.axes) {
                // In f64, so that late positions keep their phase.
                let (s, c) = (f64::from(position[axis]) * frequency).sin_cos();
                cos.push((c * self.magnitude) as f32);
                sin.push((s * self.magnitude) as f32);
            }
        }
        let table = |values| Tensor::from_data(TensorData::new(values, [seq, half]), device);
        RopeTable {
            cos: table(cos),
            sin: table(sin),
            style: self.style,
        }
    }
}

/// Cosine and sine of a run of positions, each `[seq, n_rot / 2]`.
#[derive(Clone, Debug)]
pub struct RopeTable {
    cos: Tensor<2>,
    sin: Tensor<2>,
    style: RopeStyle,
}

impl RopeTable {
    /// Rotates `[batch, seq, heads, head_dim]`.
    pub fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        functional::rope(x, self.cos.clone(), self.sin.clone(), self.style)
    }
}

/// The tables of a pass on each device it comes to.
pub struct RopeTables<'a, const N: usize> {
    ropes: [&'a Rope; N],
    positions: &'a Positions,
    // The device of the last layer, on which the next most likely is too.
    last: Option<(Device, [RopeTable; N])>,
}

impl<'a, const N: usize> RopeTables<'a, N> {
    /// Of these ropes at these positions.
    pub fn new(ropes: [&'a Rope; N], positions: &'a Positions) -> Self {
        Self {
            ropes,
            positions,
            last: None,
        }
    }

    /// The tables on a device.
    pub fn on(&mut self, device: &Device) -> &[RopeTable; N] {
        if self.last.as_ref().is_none_or(|(last, _)| last != device) {
            let tables = self.ropes.map(|rope| rope.table(self.positions, device));
            self.last = Some((device.clone(), tables));
        }
        let (_, tables) = self.last.as_ref().expect("just made");
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies_are_a_geometric_series() {
        let f = RopeConfig::new(4, 100.0, RopeStyle::Neox).frequencies();
        assert_eq!(f.len(), 2);
        assert!((f[0] - 1.0).abs() < 1e-12 && (f[1] - 0.1).abs() < 1e-12);
    }

    #[test]
    fn divided_frequencies_stand_still() {
        let mut config = RopeConfig::new(4, 100.0, RopeStyle::Neox);
        config.divisors = Some(vec![1.0, 1e30]);
        let f = config.frequencies();
        assert!(f[0] == 1.0 && f[1] < 1e-30);
    }

    #[test]
    fn sections_interleave_rows_and_columns() {
        let mut config = RopeConfig::new(16, 1e4, RopeStyle::Neox);
        config.sections = Some([4, 2, 1]);
        let axes: Vec<_> = (0..8).map(|i| config.axis(i)).collect();
        assert_eq!(axes, [0, 1, 2, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
        let mut config = RopeConfig::new(128, 1e6, RopeStyle::Neox);
        let plain = config.frequencies();
        config.freq_scale = 0.25;
        config.yarn = Some(Yarn {
            original_context: 32768,
            ext_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        });
        let yarn = config.frequencies();
        assert_eq!(yarn[0], plain[0]);
        assert!((yarn[63] - plain[63] * 0.25).abs() < 1e-18);
        assert!((config.magnitude() - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-12);
    }
}
