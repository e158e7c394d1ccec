//! The gated delta rule (Yang et al. 2024), linear attention with a matrix of state per head, as Qwen3-Next and Qwen3.5
//! have it.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::Arithmetic;
use burn_gguf::nn::GgmlLinear;

use super::{LayerCache, RmsNorm};

/// Shape and options of a [`GatedDeltaNet`].
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaNetConfig {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Taps of the causal convolution.
    pub kernel: usize,
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads, a multiple of the key heads.
    pub value_heads: usize,
    /// Width of a head, of any kind.
    pub head_dim: usize,
    /// Whether the value heads of one key head follow each other; else value head `n` reads key head `n mod key_heads`.
    pub grouped: bool,
    /// Epsilon of the norms.
    pub eps: f32,
    /// How products are computed.
    pub arithmetic: Arithmetic,
}

impl DeltaNetConfig {
    fn key_width(&self) -> usize {
        self.key_heads * self.head_dim
    }

    fn value_width(&self) -> usize {
        self.value_heads * self.head_dim
    }

    fn conv_width(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    fn key_head(&self, value_head: usize) -> usize {
        match self.grouped {
            true => value_head / (self.value_heads / self.key_heads),
            false => value_head % self.key_heads,
        }
    }
}

/// What a [`GatedDeltaNet`] remembers of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaState {
    /// The last inputs of the convolution, `[kernel - 1, conv_width]`, oldest first.
    conv: Vec<f32>,
    /// Of each value head a matrix `[head_dim (key), head_dim (value)]`.
    heads: Vec<f32>,
}

impl DeltaState {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        (self.conv.len() + self.heads.len()) * size_of::<f32>()
    }
}

/// A causal convolution to queries, keys and values, and per head a state that each token fades, corrects and reads:
/// `S *= exp(g); S += k (beta (v - S^T k))^T; o = S^T q`.
#[derive(Module, Debug)]
pub struct GatedDeltaNet {
    /// `[hidden] -> [queries | keys | values]`.
    pub qkv: GgmlLinear,
    /// Output gate, `[hidden] -> [value_heads * head_dim]`.
    pub gate: GgmlLinear,
    /// Taps of each channel, the current token's last: `[conv_width, kernel]`.
    pub conv: Param<Tensor<2>>,
    /// `-exp(A)`, `[value_heads]`.
    pub a: Param<Tensor<1>>,
    /// Added to the decay's projection, `[value_heads]`.
    pub dt: Param<Tensor<1>>,
    /// Decay, `[hidden] -> [value_heads]`.
    pub alpha: Option<GgmlLinear>,
    /// Strength of the correction, `[hidden] -> [value_heads]`.
    pub beta: Option<GgmlLinear>,
    /// Both in one, per key head the strengths and then the decays of its value heads.
    pub beta_alpha: Option<GgmlLinear>,
    /// Norm of what each head read.
    pub norm: RmsNorm,
    /// `[value_heads * head_dim] -> [hidden]`.
    pub output: GgmlLinear,
    #[module(skip)]
    config: DeltaNetConfig,
}

impl GatedDeltaNet {
    /// A layer to be loaded from a file; `joined` has strength and decay in one projection.
    pub fn uninitialized(config: &DeltaNetConfig, joined: bool, device: &Device) -> Self {
        let linear = |input, output| {
            GgmlLinear::uninitialized(input, output, false, device)
                .with_arithmetic(config.arithmetic)
        };
        let (hidden, heads) = (config.hidden, config.value_heads);
        let apart = || (!joined).then(|| linear(hidden, heads));
        Self {
            qkv: linear(hidden, config.conv_width()),
            gate: linear(hidden, config.value_width()),
            conv: Param::from_tensor(Tensor::zeros([config.conv_width(), config.kernel], device)),
            a: Param::from_tensor(Tensor::zeros([heads], device)),
            dt: Param::from_tensor(Tensor::zeros([heads], device)),
            alpha: apart(),
            beta: apart(),
            beta_alpha: joined.then(|| linear(hidden, 2 * heads)),
            norm: RmsNorm::new(config.head_dim, config.eps, device),
            output: linear(config.value_width(), hidden),
            config: config.clone(),
        }
    }

    /// `[batch, seq, hidden] -> [batch, seq, hidden]`; the cache holds the state of everything before.
    ///
    /// The recurrence runs on the host, whatever the device, and keeps no gradients.
    pub fn forward(&self, x: Tensor<3>, cache: &mut LayerCache) -> Tensor<3> {
        let [batch, seq, _] = x.dims();
        let device = x.device();
        let config = &self.config;
        let [mixed, gate] = GgmlLinear::forward_pair([&self.qkv, &self.gate], x.clone());
        let (beta, alpha) = self.strength_and_decay(x);
        let step = Step {
            config,
            conv: host(self.conv.val()),
            a: host(self.a.val()),
            dt: host(self.dt.val()),
            norm: host(self.norm.weight.val()),
        };
        let (mixed, gate) = (host(mixed), host(gate));
        let states = cache.delta_states(batch, || DeltaState {
            conv: vec![0.0; (config.kernel - 1) * config.conv_width()],
            heads: vec![0.0; config.value_heads * config.head_dim * config.head_dim],
        });
        let width = config.value_width();
        let mut out = vec![0f32; batch * seq * width];
        for (item, state) in states.iter_mut().enumerate() {
            let rows = item * seq..(item + 1) * seq;
            step.run(
                state,
                Inputs {
                    mixed: slice(&mixed, &rows, config.conv_width()),
                    gate: slice(&gate, &rows, width),
                    beta: slice(&beta, &rows, config.value_heads),
                    alpha: slice(&alpha, &rows, config.value_heads),
                },
                &mut out[rows.start * width..rows.end * width],
            );
        }
        let out = Tensor::from_data(TensorData::new(out, [batch, seq, width]), &device);
        self.output.forward(out)
    }

    /// Both before their activations, `[tokens, value_heads]`.
    fn strength_and_decay(&self, x: Tensor<3>) -> (Vec<f32>, Vec<f32>) {
        match (&self.beta, &self.alpha, &self.beta_alpha) {
            (Some(beta), Some(alpha), _) => {
                let [beta, alpha] = GgmlLinear::forward_pair([beta, alpha], x);
                (host(beta), host(alpha))
            }
            (_, _, Some(joined)) => {
                let group = self.config.value_heads / self.config.key_heads;
                let both = host(joined.forward(x));
                let part = |at: usize| {
                    both.chunks_exact(2 * group)
                        .flat_map(|chunk| chunk[at * group..][..group].iter().copied())
                        .collect()
                };
                (part(0), part(1))
            }
            _ => unreachable!("a layer has strength and decay, together or apart"),
        }
    }
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.try_into_vec::<f32>()
        .expect("converted to f32 just now")
}

fn slice<'a>(values: &'a [f32], rows: &std::ops::Range<usize>, width: usize) -> &'a [f32] {
    &values[rows.start * width..rows.end * width]
}

/// The projections of a sequence's tokens.
struct Inputs<'a> {
    mixed: &'a [f32],
    gate: &'a [f32],
    beta: &'a [f32],
    alpha: &'a [f32],
}

/// The parameters of the recurrence on the host.
struct Step<'a> {
    config: &'a DeltaNetConfig,
    conv: Vec<f32>,
    a: Vec<f32>,
    dt: Vec<f32>,
    norm: Vec<f32>,
}

impl Step<'_> {
    /// Token by token; `out` is `[seq, value_heads * head_dim]`.
    fn run(&self, state: &mut DeltaState, inputs: Inputs<'_>, out: &mut [f32]) {
        let config = self.config;
        let (width, dim) = (config.conv_width(), config.head_dim);
        let (key_width, value_width) = (config.key_width(), config.value_width());
        let scale = 1.0 / (dim as f32).sqrt();
        let mut current = vec![0f32; width];
        for (t, mixed) in inputs.mixed.chunks_exact(width).enumerate() {
            self.convolve(&mut state.conv, mixed, &mut current);
            let (queries, rest) = current.split_at_mut(key_width);
            let (keys, values) = rest.split_at_mut(key_width);
            for head in queries.chunks_exact_mut(dim) {
                normalize(head, config.eps, scale);
            }
            for head in keys.chunks_exact_mut(dim) {
                normalize(head, config.eps, 1.0);
            }
            let row = t * config.value_heads;
            let heads = state.heads.chunks_exact_mut(dim * dim);
            let outs = out[t * value_width..][..value_width].chunks_exact_mut(dim);
            for (n, ((head, out), value)) in
                heads.zip(outs).zip(values.chunks_exact(dim)).enumerate()
            {
                let beta = sigmoid(inputs.beta[row + n]);
                let decay = (self.a[n] * softplus(inputs.alpha[row + n] + self.dt[n])).exp();
                let at = config.key_head(n) * dim;
                delta_rule(
                    head,
                    &queries[at..][..dim],
                    &keys[at..][..dim],
                    value,
                    beta,
                    decay,
                    out,
                );
                let gate = &inputs.gate[t * value_width + n * dim..][..dim];
                self.gate_out(out, gate);
            }
        }
    }

    /// `silu` of the convolution at one token, and the window moved on.
    fn convolve(&self, window: &mut [f32], mixed: &[f32], out: &mut [f32]) {
        let (kernel, width) = (self.config.kernel, mixed.len());
        for (channel, out) in out.iter_mut().enumerate() {
            let taps = &self.conv[channel * kernel..][..kernel];
            let past = (0..kernel - 1).map(|j| taps[j] * window[j * width + channel]);
            let sum = past.sum::<f32>() + taps[kernel - 1] * mixed[channel];
            *out = sum * sigmoid(sum);
        }
        if kernel > 1 {
            window.copy_within(width.., 0);
            window[(kernel - 2) * width..].copy_from_slice(mixed);
        }
    }

    /// `rms_norm(out) * silu(gate)` of a head.
    fn gate_out(&self, out: &mut [f32], gate: &[f32]) {
        let mean = out.iter().map(|v| v * v).sum::<f32>() / out.len() as f32;
        let norm = 1.0 / (mean + self.config.eps).sqrt();
        for ((out, weight), &gate) in out.iter_mut().zip(&self.norm).zip(gate) {
            *out = *out * norm * weight * (gate * sigmoid(gate));
        }
    }
}

/// One token of one head: fade, correct, read.
fn delta_rule(
    state: &mut [f32],
    query: &[f32],
    key: &[f32],
    value: &[f32],
    beta: f32,
    decay: f32,
    out: &mut [f32],
) {
    let dim = value.len();
    // What the faded state says of the key.
    out.fill(0.0);
    for (row, &k) in state.chunks_exact_mut(dim).zip(key) {
        for (out, s) in out.iter_mut().zip(row) {
            *s *= decay;
            *out += *s * k;
        }
    }
    let delta: Vec<f32> = value
        .iter()
        .zip(&*out)
        .map(|(v, said)| beta * (v - said))
        .collect();
    out.fill(0.0);
    for ((row, &k), &q) in state.chunks_exact_mut(dim).zip(key).zip(query) {
        for ((out, s), d) in out.iter_mut().zip(row).zip(&delta) {
            *s += k * d;
            *out += *s * q;
        }
    }
}

/// `x * rsqrt(sum(x^2) + eps) * scale`.
fn normalize(x: &mut [f32], eps: f32, scale: f32) {
    let sum: f32 = x.iter().map(|v| v * v).sum();
    let factor = scale / (sum + eps).sqrt();
    x.iter_mut().for_each(|v| *v *= factor);
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`, without overflow.
fn softplus(x: f32) -> f32 {
    match x > 20.0 {
        true => x,
        false => x.exp().ln_1p(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_correction_makes_the_state_say_the_value() {
        let (key, value) = ([0.6, 0.8], [3.0, -2.0]);
        let mut state = [0.1, 0.2, 0.3, 0.4];
        let mut out = [0.0; 2];
        delta_rule(&mut state, &key, &key, &value, 1.0, 0.5, &mut out);
        for (out, value) in out.iter().zip(value) {
            assert!((out - value).abs() < 1e-6);
        }
        // Without a correction the state only fades.
        let before = state;
        delta_rule(&mut state, &key, &key, &value, 0.0, 0.5, &mut out);
        assert_eq!(state, before.map(|s| s * 0.5));
    }

    #[test]
    fn value_heads_find_their_key_heads() {
        let mut config = DeltaNetConfig {
            hidden: 8,
            kernel: 4,
            key_heads: 2,
            value_heads: 4,
            head_dim: 2,
            grouped: false,
            eps: 1e-6,
            arithmetic: Arithmetic::Exact,
        };
        let heads = |config: &DeltaNetConfig| [0, 1, 2, 3].map(|n| config.key_head(n));
        assert_eq!(heads(&config), [0, 1, 0, 1]);
        config.grouped = true;
        assert_eq!(heads(&config), [0, 0, 1, 1]);
    }

    #[test]
    fn softplus_neither_overflows_nor_vanishes() {
        assert_eq!(softplus(100.0), 100.0);
        assert!((softplus(0.0) - std::f32::consts::LN_2).abs() < 1e-7);
        assert!(softplus(-50.0) > 0.0);
    }
}
