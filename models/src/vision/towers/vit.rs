//! Parts that vision transformers share.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::Arithmetic;
use burn_gguf::nn::{GgmlLinear, functional};
use burn_gguf::ops::{AttentionParams, GeluKind, RopeStyle};

use crate::layers::LayerNorm;

/// Shape of a [`VitBlock`].
#[derive(Clone, Debug, PartialEq)]
pub struct VitConfig {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward network.
    pub intermediate: usize,
    /// Its activation.
    pub activation: GeluKind,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Whether query, key and value are one projection (rows q, k, v) in the file, or three.
    pub fused_qkv: bool,
    /// How products are computed.
    pub arithmetic: Arithmetic,
}

impl VitConfig {
    pub(super) fn linear(&self, input: usize, output: usize, device: &Device) -> GgmlLinear {
        GgmlLinear::uninitialized(input, output, true, device).with_arithmetic(self.arithmetic)
    }
}

/// Cosine and sine of each patch, `[patches, head_dim / 2]`.
#[derive(Clone, Debug)]
pub struct PatchRope {
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl PatchRope {
    /// Half of a head's pairs turn by the patch's row, half by its column, with the same frequencies
    /// `base^(-2 j / (head_dim / 2))`.
    pub fn two_axes(positions: &[[u32; 2]], head_dim: usize, base: f64, device: &Device) -> Self {
        let (half, quarter) = (head_dim / 2, head_dim / 4);
        let frequency = |j: usize| base.powf(-2.0 * j as f64 / half as f64);
        let frequencies: Vec<f64> = (0..quarter).map(frequency).collect();
        let mut cos = Vec::with_capacity(positions.len() * half);
        let mut sin = Vec::with_capacity(positions.len() * half);
        for position in positions {
            for &axis in position {
                for frequency in &frequencies {
                    let (s, c) = (f64::from(axis) * frequency).sin_cos();
                    cos.push(c as f32);
                    sin.push(s as f32);
                }
            }
        }
        let table = |values| {
            let data = TensorData::new(values, [positions.len(), half]);
            Tensor::from_data(data, device)
        };
        Self {
            cos: table(cos),
            sin: table(sin),
        }
    }

    fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        functional::rope(x, self.cos.clone(), self.sin.clone(), RopeStyle::Neox)
    }
}

/// Attention of every patch to every patch.
#[derive(Module, Debug)]
pub struct VitAttention {
    /// One projection to queries, keys and values, or three.
    pub qkv: Vec<GgmlLinear>,
    /// `[hidden] -> [hidden]`.
    pub output: GgmlLinear,
    #[module(skip)]
    heads: usize,
}

impl VitAttention {
    fn uninitialized(config: &VitConfig, device: &Device) -> Self {
        let hidden = config.hidden;
        Self {
            qkv: match config.fused_qkv {
                true => vec![config.linear(hidden, 3 * hidden, device)],
                false => (0..3)
                    .map(|_| config.linear(hidden, hidden, device))
                    .collect(),
            },
            output: config.linear(hidden, hidden, device),
            heads: config.heads,
        }
    }

    /// `[batch, patches, hidden] -> [batch, patches, hidden]`. On devices with a fused kernel the scores are never all in
    /// memory.
    pub fn forward(&self, x: Tensor<3>, rope: &PatchRope) -> Tensor<3> {
        let [batch, patches, hidden] = x.dims();
        let head_dim = hidden / self.heads;
        let [q, k, v] = match &self.qkv[..] {
            [q, k, v] => GgmlLinear::forward_triple([q, k, v], x),
            _ => {
                let all = self.qkv[0].forward(x);
                [0, 1, 2].map(|i| {
                    all.clone()
                        .slice([0..batch, 0..patches, i * hidden..(i + 1) * hidden])
                })
            }
        };
        let heads = |t: Tensor<3>| t.reshape([batch, patches, self.heads, head_dim]);
        let (q, k) = (rope.apply(heads(q)), rope.apply(heads(k)));
        let params = AttentionParams {
            len: patches,
            scale: 1.0 / (head_dim as f32).sqrt(),
            causal: false,
            window: None,
            softcap: None,
        };
        let (k, v) = (k.swap_dims(1, 2), heads(v).swap_dims(1, 2));
        let out = functional::attention(q, k, v, params);
        self.output.forward(out.reshape([batch, patches, hidden]))
    }
}

/// `x += attention(norm(x))`, then `x += down(gelu(up(norm(x))))`.
#[derive(Module, Debug)]
pub struct VitBlock {
    /// Norm before attention.
    pub attention_norm: LayerNorm,
    /// Attention.
    pub attention: VitAttention,
    /// Norm before the feed-forward network.
    pub mlp_norm: LayerNorm,
    /// `[hidden] -> [intermediate]`.
    pub up: GgmlLinear,
    /// `[intermediate] -> [hidden]`.
    pub down: GgmlLinear,
    #[module(skip)]
    activation: GeluKind,
}

impl VitBlock {
    /// A block to be loaded from a file.
    pub fn uninitialized(config: &VitConfig, device: &Device) -> Self {
        let norm = || LayerNorm::new(config.hidden, config.eps, device);
        Self {
            attention_norm: norm(),
            attention: VitAttention::uninitialized(config, device),
            mlp_norm: norm(),
            up: config.linear(config.hidden, config.intermediate, device),
            down: config.linear(config.intermediate, config.hidden, device),
            activation: config.activation,
        }
    }

    /// `[batch, patches, hidden] -> [batch, patches, hidden]`.
    pub fn forward(&self, x: Tensor<3>, rope: &PatchRope) -> Tensor<3> {
        let h = self.attention_norm.forward(x.clone());
        let x = x + self.attention.forward(h, rope);
        let h = self.up.forward(self.mlp_norm.forward(x.clone()));
        x + self.down.forward(functional::gelu(h, self.activation))
    }
}
