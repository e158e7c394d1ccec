//! A linear layer over a block-quantized weight.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn_gguf_kernels::cpu::Arithmetic;

use super::observe;
use super::param::GgmlParam;
use crate::layout::GgmlLayout;
use crate::tensor::GgmlTensor;

/// `y = x . W^T + b` with a frozen block-quantized weight `[d_output, d_input]`.
///
/// The weight takes whatever block type the loaded file has. Gradients flow to the input and the bias, and to the
/// weight itself once [`thaw`](super::thaw) made floats of it.
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

    /// A layer over a loaded weight whose rows were filled up with zeros to whole blocks; inputs have `d_input` values.
    ///
    /// # Panics
    /// If `d_input` filled up to whole blocks is not the weight's row length.
    pub fn from_padded(weight: GgmlTensor, d_input: usize, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight: GgmlParam::from_padded(weight, d_input),
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
        observe::linear(&self.weight, &input);
        let y = self.weight.linear(input.clone(), self.arithmetic);
        self.finish(y, &input)
    }

    /// Two layers over the same input in one pass over it.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_pair<const D: usize>(layers: [&Self; 2], input: Tensor<D>) -> [Tensor<D>; 2] {
        if !Self::share_input(&layers) {
            return layers.map(|layer| layer.forward(input.clone()));
        }
        for layer in layers {
            observe::linear(&layer.weight, &input);
        }
        let padded = layers[0].weight.pad(input.clone());
        let weights = layers.map(|layer| layer.weight.tensor());
        let arithmetic = layers[0].arithmetic;
        let [a, b] = GgmlTensor::linear_pair(weights.each_ref(), padded, arithmetic);
        [layers[0].finish(a, &input), layers[1].finish(b, &input)]
    }

    /// Three layers over the same input in one pass over it.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_triple<const D: usize>(layers: [&Self; 3], input: Tensor<D>) -> [Tensor<D>; 3] {
        if !Self::share_input(&layers) {
            return layers.map(|layer| layer.forward(input.clone()));
        }
        for layer in layers {
            observe::linear(&layer.weight, &input);
        }
        let padded = layers[0].weight.pad(input.clone());
        let weights = layers.map(|layer| layer.weight.tensor());
        let arithmetic = layers[0].arithmetic;
        let [a, b, c] = GgmlTensor::linear_triple(weights.each_ref(), padded, arithmetic);
        [
            layers[0].finish(a, &input),
            layers[1].finish(b, &input),
            layers[2].finish(c, &input),
        ]
    }

    /// Whether one input serves all: the same arithmetic, and rows filled up to the same length.
    fn share_input(layers: &[&Self]) -> bool {
        let form = |layer: &Self| {
            (
                layer.weight.layout().map(GgmlLayout::cols),
                layer.arithmetic,
            )
        };
        layers
            .iter()
            .all(|layer| layer.weight.dense().is_none() && form(layer) == form(layers[0]))
    }

    /// The product `y` with `input`, with what adapters and the bias add.
    fn finish<const D: usize>(&self, y: Tensor<D>, input: &Tensor<D>) -> Tensor<D> {
        let y = self.weight.adapt(y, input);
        match &self.bias {
            Some(bias) => y + bias.val().unsqueeze(),
            None => y,
        }
    }
}
