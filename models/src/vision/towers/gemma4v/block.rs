//! A block of the tower.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::nn::functional;
use burn_gguf::ops::{AttentionParams, GluActivation, RopeStyle};

use super::{BlockBounds, ClampedLinear, Gemma4VTowerConfig};
use crate::layers::{RmsNorm, weightless_rms_norm};

/// Wavelengths of the rotation grow by this much over a half of a head.
const ROPE_BASE: f64 = 100.0;

/// The first half of a head turns by the patch's column, the second by its row. Cosine and sine of each,
/// `[patches, head_dim / 4]`.
#[derive(Clone, Debug)]
pub struct HalfRopes {
    halves: [[Tensor<2>; 2]; 2],
}

impl HalfRopes {
    /// Of patches at `positions` (row, column).
    pub fn new(positions: &[[u32; 2]], head_dim: usize, device: &Device) -> Self {
        let (half, quarter) = (head_dim / 2, head_dim / 4);
        let table = |axis: usize, function: fn(f64) -> f64| {
            let angles = positions.iter().flat_map(|position| {
                (0..quarter).map(move |j| {
                    f64::from(position[axis]) * ROPE_BASE.powf(-2.0 * j as f64 / half as f64)
                })
            });
            let values: Vec<f32> = angles.map(|angle| function(angle) as f32).collect();
            Tensor::from_data(TensorData::new(values, [positions.len(), quarter]), device)
        };
        Self {
            halves: [1, 0].map(|axis| [table(axis, f64::cos), table(axis, f64::sin)]),
        }
    }

    /// Rotates `[batch, patches, heads, head_dim]`.
    fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, patches, heads, dim] = x.dims();
        let half = dim / 2;
        let turned = [0, 1].map(|i| {
            let [cos, sin] = self.halves[i].clone();
            let dims = i * half..(i + 1) * half;
            let part = x.clone().slice([0..batch, 0..patches, 0..heads, dims]);
            functional::rope(part, cos, sin, RopeStyle::Neox)
        });
        Tensor::cat(turned.to_vec(), 3)
    }
}

/// `x += norm(attention(norm(x)))`, then `x += norm(down(gelu(gate(.)) * up(.)))` of `norm(x)`, all times a factor.
#[derive(Module, Debug)]
pub struct Gemma4VBlock {
    /// Norm before attention.
    pub attention_norm: RmsNorm,
    /// `[hidden] -> [heads * head_dim]`.
    pub q: ClampedLinear,
    /// `[hidden] -> [heads * head_dim]`.
    pub k: ClampedLinear,
    /// `[hidden] -> [heads * head_dim]`.
    pub v: ClampedLinear,
    /// `[heads * head_dim] -> [hidden]`.
    pub output: ClampedLinear,
    /// Norm of each query head.
    pub q_norm: RmsNorm,
    /// Norm of each key head.
    pub k_norm: RmsNorm,
    /// Norm after attention, before the residual add.
    pub post_attention_norm: RmsNorm,
    /// Norm before the MLP.
    pub mlp_norm: RmsNorm,
    /// `[hidden] -> [intermediate]`, through the activation.
    pub gate: ClampedLinear,
    /// `[hidden] -> [intermediate]`.
    pub up: ClampedLinear,
    /// `[intermediate] -> [hidden]`.
    pub down: ClampedLinear,
    /// Norm after the MLP, before the residual add.
    pub post_mlp_norm: RmsNorm,
    /// Factor on the output, `[1]`.
    pub output_scale: Option<Param<Tensor<1>>>,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    head_dim: usize,
    #[module(skip)]
    eps: f32,
}

impl Gemma4VBlock {
    /// A block to be loaded from a file.
    pub fn uninitialized(
        config: &Gemma4VTowerConfig,
        bounds: &BlockBounds,
        device: &Device,
    ) -> Self {
        let (hidden, inner) = (config.hidden, config.heads * config.head_dim);
        let norm = |width| RmsNorm::new(width, config.eps, device);
        let linear = |input, output, bounds| {
            ClampedLinear::uninitialized(input, output, bounds, config.arithmetic, device)
        };
        Self {
            attention_norm: norm(hidden),
            q: linear(hidden, inner, bounds.q),
            k: linear(hidden, inner, bounds.k),
            v: linear(hidden, inner, bounds.v),
            output: linear(inner, hidden, bounds.output),
            q_norm: norm(config.head_dim),
            k_norm: norm(config.head_dim),
            post_attention_norm: norm(hidden),
            mlp_norm: norm(hidden),
            gate: linear(hidden, config.intermediate, bounds.gate),
            up: linear(hidden, config.intermediate, bounds.up),
            down: linear(config.intermediate, hidden, bounds.down),
            post_mlp_norm: norm(hidden),
            output_scale: config
                .output_scales
                .then(|| Param::from_tensor(Tensor::ones([1], device))),
            heads: config.heads,
            head_dim: config.head_dim,
            eps: config.eps,
        }
    }

    /// `[batch, patches, hidden] -> [batch, patches, hidden]`.
    pub fn forward(&self, x: Tensor<3>, ropes: &HalfRopes) -> Tensor<3> {
        let h = self.attention(self.attention_norm.forward(x.clone()), ropes);
        let x = x + self.post_attention_norm.forward(h);
        let h = self.mlp_norm.forward(x.clone());
        let (gate, up) = (self.gate.forward(h.clone()), self.up.forward(h));
        // The original's activation; llama.cpp takes another, as the files do not say.
        let h = functional::glu(gate, up, GluActivation::GeluTanh);
        let x = x + self.post_mlp_norm.forward(self.down.forward(h));
        match &self.output_scale {
            Some(scale) => x * scale.val().reshape([1, 1, 1]),
            None => x,
        }
    }

    fn attention(&self, x: Tensor<3>, ropes: &HalfRopes) -> Tensor<3> {
        let [batch, patches, _] = x.dims();
        let heads = |t: Tensor<3>| t.reshape([batch, patches, self.heads, self.head_dim]);
        let q = self.q_norm.forward(heads(self.q.forward(x.clone())));
        let k = self.k_norm.forward(heads(self.k.forward(x.clone())));
        let v = weightless_rms_norm(heads(self.v.forward(x)), self.eps);
        let (q, k) = (ropes.apply(q), ropes.apply(k));
        let params = AttentionParams {
            len: patches,
            scale: 1.0,
            causal: false,
            window: None,
            softcap: None,
        };
        let out = functional::attention(q, k.swap_dims(1, 2), v.swap_dims(1, 2), params);
        let out = out.reshape([batch, patches, self.heads * self.head_dim]);
        self.output.forward(out)
    }
}
