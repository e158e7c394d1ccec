//! Gradients: they flow to the activations; block-quantized weights are frozen.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, TensorMetadata};
use burn::tensor::{FloatDType, IndexingUpdateOp, Shape, TensorData};
use burn_gguf_kernels::cpu::Arithmetic;

use super::ggml::{GgmlOps, host_ids, input_rows, to_f32};
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
                    let grad = B::float_reshape(to_f32::<B>(grad), Shape::new([n, rows]));
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

    fn ggml_linear_experts(
        x: FloatTensor<Self>,
        weight: GgmlPrimitive<Self>,
        ids: IntTensor<Self>,
        arithmetic: Arithmetic,
    ) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Experts;

        impl<B: GgmlOps> Backward<B, 1> for Experts {
            type State = (GgmlPrimitive<B>, IntTensor<B>, Shape);

            fn backward(
                self,
                ops: Ops<Self::State, 1>,
                grads: &mut Gradients,
                _checkpointer: &mut Checkpointer,
            ) {
                let (weight, ids, x_shape) = ops.state;
                unary::<B, _>(ops.parents, ops.node, grads, |grad| {
                    experts_backward::<B>(grad, weight, ids, x_shape)
                });
            }
        }

        let weight = inner(weight);
        let shape = x.primitive().shape();
        let node = x.node();
        let y = B::ggml_linear_experts(x.into_primitive(), weight.clone(), ids.clone(), arithmetic);
        match Experts.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((weight, ids, shape), y),
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

/// `dx[t, s] = dy[t, s] . W[ids[t, s]]`, summed over the slots of a token where they share its row. One expert is dense
/// at a time.
fn experts_backward<B: GgmlOps>(
    grad: FloatTensor<B>,
    weight: GgmlPrimitive<B>,
    ids: IntTensor<B>,
    x_shape: Shape,
) -> FloatTensor<B> {
    let device = grad.device();
    let dtype = FloatDType::from(grad.dtype());
    let [chosen, slots, cols] = [ids.shape()[1], x_shape[1], x_shape[2]];
    let rows = weight.layout.rows();
    let ids = host_ids::<B>(ids);
    let grad = B::float_reshape(to_f32::<B>(grad), Shape::new([ids.len(), rows]));
    let inputs = x_shape[0] * slots;
    let mut dx = B::float_zeros(Shape::new([inputs, cols]), &device, FloatDType::F32);
    let list = |values: Vec<i32>| {
        let n = values.len();
        B::int_from_data(TensorData::new(values, [n]), &device)
    };
    let mut experts = ids.clone();
    experts.sort_unstable();
    experts.dedup();
    for expert in experts {
        let matches = || (0..ids.len()).filter(|&slot| ids[slot] == expert);
        let from = list(matches().map(|slot| slot as i32).collect());
        let to = list(
            matches()
                .map(|slot| match slots {
                    1 => (slot / chosen) as i32,
                    _ => slot as i32,
                })
                .collect(),
        );
        let first = expert as i32 * rows as i32;
        let table = list((first..first + rows as i32).collect());
        let dense = B::ggml_gather_rows(weight.clone(), table);
        let product = B::float_matmul(B::float_select(grad.clone(), 0, from), dense);
        dx = B::float_select_assign(dx, 0, to, product, IndexingUpdateOp::Add);
    }
    B::float_cast(B::float_reshape(dx, x_shape), dtype)
}

impl<B: LayerOps, C: CheckpointStrategy> LayerOps for Autodiff<B, C> {}
