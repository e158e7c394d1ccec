//! The choice of experts, and the sum of what they say.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, read_sync};
use burn::tensor::{Shape, Slice, TensorData};

use super::scalar;
use crate::ops::{ChoiceParams, Gating};

/// See [`LayerOps::layer_choose_experts`](crate::ops::LayerOps::layer_choose_experts). The order is found on the host: a
/// router's logits are few, and equals then fall the same way on every device.
pub fn choose_experts<B: Backend>(
    logits: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    params: ChoiceParams,
) -> (IntTensor<B>, FloatTensor<B>) {
    let device = logits.device();
    let [tokens, experts] = [logits.shape()[0], logits.shape()[1]];
    let shares = match params.gating {
        Gating::Sigmoid => B::sigmoid(logits.clone()),
        Gating::Softmax => {
            let top = B::float_max_dim(logits.clone(), 1);
            let exp = B::float_exp(B::float_sub(logits.clone(), top));
            let sum = B::float_sum_dim(exp.clone(), 1);
            B::float_div(exp, sum)
        }
    };
    // Without a bias logits have the order of shares, and are not rounded.
    let scores = match bias {
        None => logits,
        Some(bias) => {
            let bias = B::float_reshape(bias, Shape::new([1, experts]));
            B::float_add(shares.clone(), bias)
        }
    };
    let data = read_sync(B::float_into_data(scores)).expect("the scores can be read");
    let scores: Vec<f32> = data.iter::<f32>().collect();
    let mut ids = Vec::with_capacity(tokens * params.used);
    for row in scores.chunks_exact(experts) {
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
        ids.extend(order[..params.used].iter().map(|&e| e as i32));
    }
    let ids = B::int_from_data(TensorData::new(ids, [tokens, params.used]), &device);
    let mut chosen = B::float_gather(1, shares, ids.clone());
    if params.normalize {
        let sum = B::float_sum_dim(chosen.clone(), 1);
        chosen = B::float_div(chosen, B::float_clamp_min(sum, scalar(params.least_sum)));
    }
    (ids, B::float_mul_scalar(chosen, scalar(params.scale)))
}

/// See [`LayerOps::layer_expert_sum`](crate::ops::LayerOps::layer_expert_sum) and
/// [`layer_expert_sum_shared`](crate::ops::LayerOps::layer_expert_sum_shared).
pub fn expert_sum<B: Backend>(
    y: FloatTensor<B>,
    shares: FloatTensor<B>,
    shared: Option<(FloatTensor<B>, FloatTensor<B>)>,
) -> FloatTensor<B> {
    let [tokens, used, width] = [y.shape()[0], y.shape()[1], y.shape()[2]];
    let shares = B::float_reshape(shares, Shape::new([tokens, used, 1]));
    let y = B::float_mul(y, shares);
    // By slices: devices differ in the reductions they can do.
    let slot = |i: usize| {
        let slices = [
            Slice::from(0..tokens),
            Slice::from(i..i + 1),
            Slice::from(0..width),
        ];
        B::float_slice(y.clone(), &slices)
    };
    let sum = (1..used).fold(slot(0), |sum, i| B::float_add(sum, slot(i)));
    let sum = B::float_reshape(sum, Shape::new([tokens, width]));
    match shared {
        None => sum,
        Some((shared, gate)) => {
            let gate = B::float_reshape(B::sigmoid(gate), Shape::new([tokens, 1]));
            B::float_add(sum, B::float_mul(shared, gate))
        }
    }
}
