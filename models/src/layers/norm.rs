//! Norms.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn_gguf::nn::functional;

/// `x * rsqrt(mean(x^2) + eps) * weight` over the last dimension.
///
/// GGUF files have any `+ 1` of the original model already in the weight.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// The scale, `[dim]`.
    pub weight: Param<Tensor<1>>,
    #[module(skip)]
    eps: f32,
}

impl RmsNorm {
    /// A norm over `dim` values, scale one.
    pub fn new(dim: usize, eps: f32, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::ones([dim], device)),
            eps,
        }
    }

    /// `[.., dim] -> [.., dim]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        functional::rms_norm(x, self.weight.val(), self.eps)
    }
}

/// [`RmsNorm`] without weights.
pub(crate) fn weightless_rms_norm<const D: usize>(x: Tensor<D>, eps: f32) -> Tensor<D> {
    let ones = Tensor::ones([x.dims()[D - 1]], &x.device());
    functional::rms_norm(x, ones, eps)
}

/// `(x - mean) * rsqrt(var + eps) * weight + bias` over the last dimension.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// The scale, `[dim]`.
    pub weight: Param<Tensor<1>>,
    /// The shift, `[dim]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    eps: f32,
}

impl LayerNorm {
    /// A norm over `dim` values, scale one, shift zero.
    pub fn new(dim: usize, eps: f32, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::ones([dim], device)),
            bias: Param::from_tensor(Tensor::zeros([dim], device)),
            eps,
        }
    }

    /// `[.., dim] -> [.., dim]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        functional::layer_norm(x, self.weight.val(), self.bias.val(), self.eps)
    }
}
