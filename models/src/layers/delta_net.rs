//! The gated delta rule (Yang et al. 2024), linear attention with a matrix of state per head, as Qwen3-Next and Qwen3.5
//! have it.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::nn::GgmlLinear;
use burn_gguf::nn::functional::{self, DeltaInput};
use burn_gguf::ops::DeltaParams;

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
}

/// What a [`GatedDeltaNet`] remembers of its sequences.
#[derive(Clone, Debug)]
pub struct DeltaState {
    /// The last inputs of the convolution, `[batch, kernel - 1, conv_width]`, oldest first.
    pub conv: Tensor<3>,
    /// Of each value head a matrix, `[batch, value_heads, head_dim (key), head_dim (value)]`.
    pub heads: Tensor<4>,
}

impl DeltaState {
    /// That of `batch` sequences of which nothing was read.
    fn new(batch: usize, config: &DeltaNetConfig, device: &Device) -> Self {
        let (heads, dim) = (config.value_heads, config.head_dim);
        let past = [batch, config.kernel - 1, config.conv_width()];
        Self {
            conv: Tensor::zeros(past, (device, DType::F32)),
            heads: Tensor::zeros([batch, heads, dim, dim], (device, DType::F32)),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let values = self.conv.shape().num_elements() + self.heads.shape().num_elements();
        values * self.heads.dtype().size()
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
    pub fn forward(&self, x: Tensor<3>, cache: &mut LayerCache) -> Tensor<3> {
        let [batch, _, _] = x.dims();
        let config = &self.config;
        // Taken out, so that the storage has one handle and is written in place.
        let slot = cache.delta_mut();
        let state = slot.take().filter(|state| state.heads.dims()[0] == batch);
        let state = state.unwrap_or_else(|| DeltaState::new(batch, config, &x.device()));
        let [mixed, gate] = GgmlLinear::forward_pair([&self.qkv, &self.gate], x.clone());
        let [beta, alpha] = self.strength_and_decay(x);
        let (mixed, conv) = functional::short_conv(mixed, self.conv.val(), state.conv);
        let input = DeltaInput {
            mixed,
            gate,
            beta,
            alpha,
            a: self.a.val(),
            dt: self.dt.val(),
            norm: self.norm.weight.val(),
        };
        let params = DeltaParams {
            key_heads: config.key_heads,
            grouped: config.grouped,
            eps: config.eps,
        };
        let (out, heads) = functional::gated_delta(input, state.heads, params);
        *slot = Some(DeltaState { conv, heads });
        self.output.forward(out)
    }

    /// Both before their activations, `[batch, seq, value_heads]`.
    fn strength_and_decay(&self, x: Tensor<3>) -> [Tensor<3>; 2] {
        let [batch, seq, _] = x.dims();
        match (&self.beta, &self.alpha, &self.beta_alpha) {
            (Some(beta), Some(alpha), _) => GgmlLinear::forward_pair([beta, alpha], x),
            (_, _, Some(joined)) => {
                let (keys, heads) = (self.config.key_heads, self.config.value_heads);
                let group = heads / keys;
                let both = joined.forward(x).reshape([batch, seq, keys, 2 * group]);
                [0, group].map(|from| {
                    let part = [0..batch, 0..seq, 0..keys, from..from + group];
                    both.clone().slice(part).reshape([batch, seq, heads])
                })
            }
            _ => unreachable!("a layer has strength and decay, together or apart"),
        }
    }
}
