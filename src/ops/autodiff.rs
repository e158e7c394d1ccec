//! Gradients: they flow to the activations; block-quantized weights are frozen.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, TensorMetadata};
use burn::tensor::{FloatDType, Shape};
use burn_gguf_kernels::cpu::Arithmetic;

use super::ggml::{GgmlOps, input_rows};
use super::layer::LayerOps;
use crate::tensor::GgmlPrimitive;

fn inner<B: Backend, C: CheckpointStrategy>(
    weight: GgmlPrimitive<Autodiff<B, C>>,
) -> GgmlPrimitive<B> {
    GgmlPrimitive {
        words: weight.words,
        layout: weight.layout,
    }
}

impl<B: GgmlOps, C: CheckpointStrategy> GgmlOps for Autodiff<B, C> {
    fn ggml_dequantize(weight: GgmlPrimitive<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        <Self as burn::backend::AutodiffBackend>::from_inner(B::ggml_dequantize(
            inner(weight),
            dtype,
        ))
    }

    fn ggml_linear(
        x: FloatTensor<Self>,
        weight: GgmlPrimitive<Self>,
        arithmetic: Arithmetic,
    ) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Linear;

        impl<B: GgmlOps> Backward<B, 1> for Linear {
            type State = (GgmlPrimitive<B>, Shape);

            fn backward(
                self,
                ops: Ops<Self::State, 1>,
                grads: &mut Gradients,
                _checkpointer: &mut Checkpointer,
            ) {
                let (weight, x_shape) = ops.state;
                unary::<B, _>(ops.parents, ops.node, grads, |grad| {
                    // dx = dy . W, with W dense only for the length of this product.
                    let (n, rows) = (input_rows(&x_shape), weight.layout.rows());
                    let dtype = FloatDType::from(grad.dtype());
                    let dense = B::ggml_dequantize(weight, FloatDType::F32);
                    let grad =
                        B::float_reshape(super::ggml::to_f32::<B>(grad), Shape::new([n, rows]));
                    let dx = B::float_reshape(B::float_matmul(grad, dense), x_shape);
                    B::float_cast(dx, dtype)
                });
            }
        }

        let weight = inner(weight);
        let shape = x.primitive().shape();
        let node = x.node();
        let y = B::ggml_linear(x.into_primitive(), weight.clone(), arithmetic);
        match Linear.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((weight, shape), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn ggml_gather_rows(weight: GgmlPrimitive<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        <Self as burn::backend::AutodiffBackend>::from_inner(B::ggml_gather_rows(
            inner(weight),
            ids,
        ))
    }
}

impl<B: LayerOps, C: CheckpointStrategy> LayerOps for Autodiff<B, C> {}
