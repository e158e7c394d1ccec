//! Linear attention in f64.

use super::wide;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The convolution's results, each beside the measure of its terms, and the state after it; `sizes` are batch, tokens,
/// channels and taps.
pub fn short_conv(
    x: &[f32],
    taps: &[f32],
    state: &[f32],
    [batch, seq, channels, kernel]: [usize; 4],
) -> (Vec<(f64, f64)>, Vec<f64>) {
    let past = kernel - 1;
    let (mut out, mut after) = (Vec::new(), Vec::new());
    for b in 0..batch {
        let before = &state[b * past * channels..][..past * channels];
        let all = [before, &x[b * seq * channels..][..seq * channels]].concat();
        for t in 0..seq {
            for c in 0..channels {
                let term = |j: usize| {
                    f64::from(all[(t + j) * channels + c]) * f64::from(taps[c * kernel + j])
                };
                let sum: f64 = (0..kernel).map(term).sum();
                let squares: f64 = (0..kernel).map(|j| term(j).powi(2)).sum();
                out.push((sum * sigmoid(sum), squares.sqrt()));
            }
        }
        after.extend(wide(&all[seq * channels..]));
    }
    (out, after)
}

/// The operands of the gated delta rule.
pub struct Delta<'a> {
    pub mixed: &'a [f32],
    pub gate: &'a [f32],
    pub beta: &'a [f32],
    pub alpha: &'a [f32],
    pub a: &'a [f32],
    pub dt: &'a [f32],
    pub norm: &'a [f32],
    /// Batch, tokens, key heads, value heads, and values of a head.
    pub sizes: [usize; 5],
    pub grouped: bool,
    pub eps: f32,
}

impl Delta<'_> {
    /// The results and the states after them.
    pub fn run(&self, state: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let [batch, seq, _, heads, dim] = self.sizes;
        let mut state = wide(state);
        let mut out = vec![0.0; batch * seq * heads * dim];
        for item in 0..batch {
            for head in 0..heads {
                let matrix = &mut state[(item * heads + head) * dim * dim..][..dim * dim];
                for row in item * seq..(item + 1) * seq {
                    let to = &mut out[(row * heads + head) * dim..][..dim];
                    self.token(row, head, matrix, to);
                }
            }
        }
        (out, state)
    }

    fn token(&self, row: usize, head: usize, matrix: &mut [f64], out: &mut [f64]) {
        let [_, _, keys, heads, dim] = self.sizes;
        let key_head = match self.grouped {
            true => head / (heads / keys),
            false => head % keys,
        };
        let mixed = &self.mixed[row * (2 * keys + heads) * dim..];
        let unit = |at: usize, scale: f64| {
            let x = wide(&mixed[at * dim..][..dim]);
            let squares: f64 = x.iter().map(|v| v * v).sum();
            let norm = scale / (squares + f64::from(self.eps)).sqrt();
            x.iter().map(|v| v * norm).collect::<Vec<_>>()
        };
        let q = unit(key_head, 1.0 / (dim as f64).sqrt());
        let k = unit(keys + key_head, 1.0);
        let v = wide(&mixed[(2 * keys + head) * dim..][..dim]);
        let at = row * heads + head;
        let step = f64::from(self.alpha[at]) + f64::from(self.dt[head]);
        let decay = (f64::from(self.a[head]) * step.exp().ln_1p()).exp();
        let strength = sigmoid(f64::from(self.beta[at]));
        matrix.iter_mut().for_each(|cell| *cell *= decay);
        for j in 0..dim {
            let said: f64 = (0..dim).map(|i| matrix[i * dim + j] * k[i]).sum();
            let correction = strength * (v[j] - said);
            for i in 0..dim {
                matrix[i * dim + j] += k[i] * correction;
                out[j] += matrix[i * dim + j] * q[i];
            }
        }
        let mean = out.iter().map(|v| v * v).sum::<f64>() / dim as f64;
        let norm = 1.0 / (mean + f64::from(self.eps)).sqrt();
        for (j, out) in out.iter_mut().enumerate() {
            let gate = f64::from(self.gate[at * dim + j]);
            *out *= norm * f64::from(self.norm[j]) * gate * sigmoid(gate);
        }
    }
}
