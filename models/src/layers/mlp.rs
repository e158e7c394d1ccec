//! The gated feed-forward network.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::nn::{GgmlLinear, functional};
use burn_gguf::ops::GluActivation;

/// `down(activation(gate(x)) * up(x))`.
#[derive(Module, Debug)]
pub struct GatedMlp {
    /// `[hidden] -> [intermediate]`, through the activation.
    pub gate: GgmlLinear,
    /// `[hidden] -> [intermediate]`.
    pub up: GgmlLinear,
    /// `[intermediate] -> [hidden]`.
    pub down: GgmlLinear,
    #[module(skip)]
    activation: GluActivation,
}

impl GatedMlp {
    /// A network to be loaded from a file.
    pub fn uninitialized(
        hidden: usize,
        intermediate: usize,
        activation: GluActivation,
        arithmetic: Arithmetic,
        device: &Device,
    ) -> Self {
        let linear = |input, output| {
            GgmlLinear::uninitialized(input, output, false, device).with_arithmetic(arithmetic)
        };
        Self {
            gate: linear(hidden, intermediate),
            up: linear(hidden, intermediate),
            down: linear(intermediate, hidden),
            activation,
        }
    }

    /// `[batch, seq, hidden] -> [batch, seq, hidden]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [gate, up] = GgmlLinear::forward_pair([&self.gate, &self.up], x);
        self.down
            .forward(functional::glu(gate, up, self.activation))
    }
}
