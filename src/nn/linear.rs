//! A linear layer over a block-quantized weight.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn_gguf_kernels::cpu::Arithmetic;

use super::param::GgmlParam;
use crate::tensor::GgmlTensor;

/// `y = x . W^T + b` with a frozen block-quantized weight `[d_output, d_input]`.
///
/// The weight takes whatever block type the loaded file has. Gradients flow to the input and the bias.
#[derive(Module, Debug)]
pub struct GgmlLinear {
    /// The weight, `[d_output, d_input]`, blocks along `d_input`.
    pub weight: GgmlParam,
    /// The bias, `[d_output]`.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    arithmetic: Arithmetic,
}

impl GgmlLinear {
    /// A layer to be loaded from a file: the weight has no blocks yet, the bias is zero.
    pub fn uninitialized(d_input: usize, d_output: usize, bias: bool, device: &Device) -> Self {
        Self {
            weight: GgmlParam::uninitialized(d_output, d_input, device),
            bias: bias.then(|| Param::from_tensor(Tensor::zeros([d_output], device))),
            arithmetic: Arithmetic::default(),
        }
    }

    /// A layer over a loaded weight.
    pub fn from_tensor(weight: GgmlTensor, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight: GgmlParam::from_tensor(weight),
            bias: bias.map(Param::from_tensor),
            arithmetic: Arithmetic::default(),
        }
    }

    /// Chooses how products are computed (default [`Arithmetic::Fast`]).
    pub fn with_arithmetic(mut self, arithmetic: Arithmetic) -> Self {
        self.arithmetic = arithmetic;
        self
    }

    /// How products are computed.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// `[.., d_input] -> [.., d_output]`.
    ///
    /// # Panics
    /// If the input's last dimension is not `d_input`, or no weight has been loaded.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.add_bias(self.weight.tensor().linear(input, self.arithmetic))
    }

    /// Two layers over the same input in one pass over it.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_pair<const D: usize>(layers: [&Self; 2], input: Tensor<D>) -> [Tensor<D>; 2] {
        let weights = layers.map(|layer| layer.weight.tensor());
        let arithmetic = layers[0].arithmetic;
        let [a, b] = GgmlTensor::linear_pair(weights.each_ref(), input, arithmetic);
        [layers[0].add_bias(a), layers[1].add_bias(b)]
    }

    /// Three layers over the same input in one pass over it.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_triple<const D: usize>(layers: [&Self; 3], input: Tensor<D>) -> [Tensor<D>; 3] {
        let weights = layers.map(|layer| layer.weight.tensor());
        let arithmetic = layers[0].arithmetic;
        let [a, b, c] = GgmlTensor::linear_triple(weights.each_ref(), input, arithmetic);
        [
            layers[0].add_bias(a),
            layers[1].add_bias(b),
            layers[2].add_bias(c),
        ]
    }

    fn add_bias<const D: usize>(&self, y: Tensor<D>) -> Tensor<D> {
        match &self.bias {
            Some(bias) => y + bias.val().unsqueeze(),
            None => y,
        }
    }
}
