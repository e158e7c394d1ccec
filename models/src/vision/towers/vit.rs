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

/// The rotary embedding of patches.
#[derive(Clone, Debug)]
pub struct PatchRope {
    turns: Vec<Turn>,
}

/// Values of a head that turn, value `i` of them with value `i + width / 2`.
#[derive(Clone, Debug)]
struct Turn {
    from: usize,
    width: usize,
    /// `[patches, width / 2]`, both.
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl Turn {
    /// Pair `(axis, frequency)` by pair; an axis is 0 for a patch's row, 1 for its column.
    fn new(from: usize, pairs: &[(usize, f64)], positions: &[[u32; 2]], device: &Device) -> Self {
        let n = positions.len() * pairs.len();
        let (mut cos, mut sin) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for position in positions {
            for &(axis, frequency) in pairs {
                let (s, c) = (f64::from(position[axis]) * frequency).sin_cos();
                cos.push(c as f32);
                sin.push(s as f32);
            }
        }
        let table = |values| {
            let data = TensorData::new(values, [positions.len(), pairs.len()]);
            Tensor::from_data(data, device)
        };
        Self {
            from,
            width: 2 * pairs.len(),
            cos: table(cos),
            sin: table(sin),
        }
    }

    fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        functional::rope(x, self.cos.clone(), self.sin.clone(), RopeStyle::Neox)
    }
}

impl PatchRope {
    /// Half of a head's pairs turn by the patch's row, half by its column, with the same frequencies
    /// `base^(-2 j / (head_dim / 2))`.
    pub fn two_axes(positions: &[[u32; 2]], head_dim: usize, base: f64, device: &Device) -> Self {
        let (half, quarter) = (head_dim / 2, head_dim / 4);
        let frequency = |j: usize| base.powf(-2.0 * j as f64 / half as f64);
        let pairs: Vec<_> = (0..2)
            .flat_map(|axis| (0..quarter).map(move |j| (axis, frequency(j))))
            .collect();
        Self {
            turns: vec![Turn::new(0, &pairs, positions, device)],
        }
    }

    /// Of three equal, even parts of a head the second turns by the patch's row and the third by its column, with the
    /// frequencies `base^(-2 j / part)`; the first would turn by time. What is left of the head stays.
    pub fn three_axes(positions: &[[u32; 2]], head_dim: usize, base: f64, device: &Device) -> Self {
        let part = 2 * (2 * (head_dim / 2) / 3 / 2);
        let turn = |axis: usize| {
            let frequency = |j: usize| base.powf(-2.0 * j as f64 / part as f64);
            let pairs: Vec<_> = (0..part / 2).map(|j| (axis, frequency(j))).collect();
            Turn::new((axis + 1) * part, &pairs, positions, device)
        };
        Self {
            turns: vec![turn(0), turn(1)],
        }
    }

    fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, patches, heads, dim] = x.dims();
        if let [turn] = &self.turns[..]
            && turn.width == dim
        {
            return turn.apply(x);
        }
        let values =
            |from: usize, to: usize| x.clone().slice([0..batch, 0..patches, 0..heads, from..to]);
        let mut parts = Vec::with_capacity(2 * self.turns.len() + 1);
        let mut at = 0;
        for turn in self.turns.iter().filter(|turn| turn.width > 0) {
            if at < turn.from {
                parts.push(values(at, turn.from));
            }
            at = turn.from + turn.width;
            parts.push(turn.apply(values(turn.from, at)));
        }
        if at < dim {
            parts.push(values(at, dim));
        }
        Tensor::cat(parts, 3)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Heads of 80 values: three times 26 and 2 that stay.
    #[test]
    fn three_axes_turn_two_thirds_of_a_head() {
        let device = Device::flex();
        let positions = [[0, 0], [3, 1], [2, 5]];
        let values: Vec<f32> = (0..3 * 2 * 80).map(|i| (i as f32 * 0.37).sin()).collect();
        let data = TensorData::new(values.clone(), [1, 3, 2, 80]);
        let rope = PatchRope::three_axes(&positions, 80, 1e4, &device);
        let got = rope.apply(Tensor::from_data(data, &device)).into_data();
        let got = got.try_into_vec::<f32>().unwrap();
        for (row, (got, x)) in got.chunks(80).zip(values.chunks(80)).enumerate() {
            let mut want: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
            for (axis, start) in [(0, 26), (1, 52)] {
                for j in 0..13 {
                    let angle = f64::from(positions[row / 2][axis]);
                    let (s, c) = (angle * 1e4f64.powf(-2.0 * j as f64 / 26.0)).sin_cos();
                    let (a, b) = (want[start + j], want[start + 13 + j]);
                    want[start + j] = a * c - b * s;
                    want[start + 13 + j] = a * s + b * c;
                }
            }
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!(
                    (f64::from(*got) - want).abs() < 1e-6,
                    "row {row}, value {i}"
                );
            }
        }
    }
}
