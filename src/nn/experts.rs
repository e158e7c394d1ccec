//! The experts of a mixture, as one stack of block-quantized matrices.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_gguf_kernels::cpu::Arithmetic;

use super::observe;
use super::param::GgmlParam;
use crate::tensor::GgmlTensor;

/// One projection of all experts: a frozen stack `[n_expert, d_output, d_input]`, of which each token uses a few.
#[derive(Module, Debug)]
pub struct GgmlExperts {
    /// The stack, `[n_expert, d_output, d_input]`, blocks along `d_input`.
    pub weight: GgmlParam,
    #[module(skip)]
    arithmetic: Arithmetic,
}

impl GgmlExperts {
    /// A stack to be loaded from a file.
    pub fn uninitialized(
        n_expert: usize,
        d_input: usize,
        d_output: usize,
        device: &Device,
    ) -> Self {
        Self {
            weight: GgmlParam::uninitialized_stack(n_expert, d_output, d_input, device),
            arithmetic: Arithmetic::default(),
        }
    }

    /// A layer over a loaded stack.
    pub fn from_tensor(weight: GgmlTensor) -> Self {
        Self {
            weight: GgmlParam::from_tensor(weight),
            arithmetic: Arithmetic::default(),
        }
    }

    /// Chooses how products are computed (default [`Arithmetic::Fast`]).
    pub fn with_arithmetic(mut self, arithmetic: Arithmetic) -> Self {
        self.arithmetic = arithmetic;
        self
    }

    /// Inputs `[tokens, 1 | chosen, d_input]` through the experts `ids` `[tokens, chosen]`:
    /// `[tokens, chosen, d_output]`.
    ///
    /// # Panics
    /// If the shapes do not fit, on CPU devices if an id is out of range, or if no stack has been loaded.
    pub fn forward(&self, input: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        observe::experts(&self.weight, &input, &ids);
        self.weight
            .tensor()
            .linear_experts(self.weight.pad(input), ids, self.arithmetic)
    }

    /// Two stacks over the same input and choice in one pass over it, for example gate and up.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_pair(
        layers: [&Self; 2],
        input: Tensor<3>,
        ids: Tensor<2, Int>,
    ) -> [Tensor<3>; 2] {
        let form = |layer: &Self| (layer.weight.layout().map(|l| l.cols()), layer.arithmetic);
        if form(layers[0]) != form(layers[1]) {
            return layers.map(|layer| layer.forward(input.clone(), ids.clone()));
        }
        for layer in layers {
            observe::experts(&layer.weight, &input, &ids);
        }
        let weights = layers.map(|layer| layer.weight.tensor());
        let input = layers[0].weight.pad(input);
        GgmlTensor::linear_experts_pair(weights.each_ref(), input, ids, layers[0].arithmetic)
    }
}
