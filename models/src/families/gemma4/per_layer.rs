//! Token embeddings that each layer has of its own.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear, functional};
use burn_gguf::ops::GluActivation;

use super::Gemma4Config;
use crate::layers::RmsNorm;

/// What every layer reads of the tokens beside the residual stream: a row of a table, and a projection of the embedding.
#[derive(Module, Debug)]
pub struct PerLayerEmbeddings {
    /// A row for every token, the layers' parts side by side: `[layers * width]`.
    pub embedding: GgmlEmbedding,
    /// `[hidden] -> [layers * width]`.
    pub projection: GgmlLinear,
    /// Norm of each layer's part of the projection.
    pub norm: RmsNorm,
    #[module(skip)]
    layers: usize,
    #[module(skip)]
    width: usize,
}

impl PerLayerEmbeddings {
    /// Embeddings of `width` values a layer, to be loaded from a file.
    pub fn uninitialized(
        config: &Gemma4Config,
        width: usize,
        arithmetic: Arithmetic,
        device: &Device,
    ) -> Self {
        let (hidden, layers) = (config.hidden, config.layers.len());
        Self {
            embedding: GgmlEmbedding::uninitialized(config.vocab_size, layers * width, device),
            projection: GgmlLinear::uninitialized(hidden, layers * width, false, device)
                .with_arithmetic(arithmetic),
            norm: RmsNorm::new(width, config.eps, device),
            layers,
            width,
        }
    }

    /// Tokens `[batch, seq]` and their embeddings `[batch, seq, hidden]` to what the layers read,
    /// `[batch, seq, layers, width]`.
    pub fn forward(&self, tokens: Tensor<2, Int>, x: Tensor<3>) -> Tensor<4> {
        let [batch, seq, hidden] = x.dims();
        let parts = |t: Tensor<3>| t.reshape([batch, seq, self.layers, self.width]);
        let projected = self.projection.forward(x) * (hidden as f32).sqrt().recip();
        let projected = self.norm.forward(parts(projected));
        let embedded = parts(self.embedding.forward(tokens)) * (self.width as f32).sqrt();
        (projected + embedded) * std::f32::consts::FRAC_1_SQRT_2
    }
}

/// `x += norm(projection(gelu(gate(x)) * embedding))` at the end of a layer.
#[derive(Module, Debug)]
pub struct PerLayerInput {
    /// `[hidden] -> [width]`.
    pub gate: GgmlLinear,
    /// `[width] -> [hidden]`.
    pub projection: GgmlLinear,
    /// Norm before the residual add.
    pub norm: RmsNorm,
}

impl PerLayerInput {
    /// To be loaded from a file.
    pub fn uninitialized(
        hidden: usize,
        width: usize,
        eps: f32,
        arithmetic: Arithmetic,
        device: &Device,
    ) -> Self {
        let linear = |input, output| {
            GgmlLinear::uninitialized(input, output, false, device).with_arithmetic(arithmetic)
        };
        Self {
            gate: linear(hidden, width),
            projection: linear(width, hidden),
            norm: RmsNorm::new(hidden, eps, device),
        }
    }

    /// The residual stream `[batch, seq, hidden]` with the layer's embeddings `[batch, seq, width]` in it.
    pub fn forward(&self, x: Tensor<3>, embedded: Tensor<3>) -> Tensor<3> {
        let gate = self.gate.forward(x.clone());
        let h = functional::glu(gate, embedded, GluActivation::GeluTanh);
        x + self.norm.forward(self.projection.forward(h))
    }
}
