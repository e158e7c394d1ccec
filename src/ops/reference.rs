//! The fused layer operations as plain chains of burn operations: what devices without a fused kernel run, and
//! the oracle of those that have one.

mod delta_net;
mod experts;

pub use delta_net::{DeltaTensors, gated_delta, short_conv};
pub use experts::{choose_experts, expert_sum};

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Scalar, TensorMetadata};
use burn::tensor::{DType, FloatDType, Shape, Slice, TensorData};

use super::layer::{AttentionParams, GeluKind, GluActivation, RopeStyle};

/// A score low enough that its weight is zero in every float dtype, yet finite, so that no NaN can come of it.
const HIDDEN: f32 = -1.0e30;

fn scalar(value: f32) -> Scalar {
    Scalar::from(value)
}

/// See [`LayerOps::layer_rms_norm`](super::LayerOps::layer_rms_norm).
pub fn rms_norm<B: Backend>(x: FloatTensor<B>, weight: FloatTensor<B>, eps: f32) -> FloatTensor<B> {
    let shape = x.shape();
    let rank = shape.num_dims();
    let mean = B::float_mean_dim(B::float_mul(x.clone(), x.clone()), rank - 1);
    let norm = B::float_recip(B::float_sqrt(B::float_add_scalar(mean, scalar(eps))));
    let mut weight_shape = vec![1; rank];
    weight_shape[rank - 1] = shape[rank - 1];
    let weight = B::float_reshape(weight, Shape::from(weight_shape));
    B::float_mul(B::float_mul(x, norm), weight)
}

/// See [`LayerOps::layer_layer_norm`](super::LayerOps::layer_layer_norm).
pub fn layer_norm<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: FloatTensor<B>,
    eps: f32,
) -> FloatTensor<B> {
    let shape = x.shape();
    let rank = shape.num_dims();
    let mut row = vec![1; rank];
    row[rank - 1] = shape[rank - 1];
    let row = |tensor| B::float_reshape(tensor, Shape::from(row.clone()));
    let mean = B::float_mean_dim(x.clone(), rank - 1);
    let centered = B::float_sub(x, mean);
    let variance = B::float_mean_dim(B::float_mul(centered.clone(), centered.clone()), rank - 1);
    let norm = B::float_recip(B::float_sqrt(B::float_add_scalar(variance, scalar(eps))));
    let scaled = B::float_mul(B::float_mul(centered, norm), row(weight));
    B::float_add(scaled, row(bias))
}

/// See [`LayerOps::layer_gelu`](super::LayerOps::layer_gelu).
pub fn gelu<B: Backend>(x: FloatTensor<B>, kind: GeluKind) -> FloatTensor<B> {
    match kind {
        GeluKind::Erf => {
            let inner = B::float_mul_scalar(x.clone(), scalar(core::f32::consts::FRAC_1_SQRT_2));
            let one_plus = B::float_add_scalar(B::float_erf(inner), scalar(1.0));
            B::float_mul_scalar(B::float_mul(x, one_plus), scalar(0.5))
        }
        GeluKind::Tanh => gelu_tanh::<B>(x),
        GeluKind::Quick => {
            let gate = B::sigmoid(B::float_mul_scalar(x.clone(), scalar(1.702)));
            B::float_mul(x, gate)
        }
    }
}

/// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
fn gelu_tanh<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let square = B::float_mul(x.clone(), x.clone());
    let poly = B::float_add_scalar(B::float_mul_scalar(square, scalar(0.044715)), scalar(1.0));
    let inner = B::float_mul_scalar(
        B::float_mul(x.clone(), poly),
        scalar((2.0 / core::f32::consts::PI).sqrt()),
    );
    let one_plus = B::float_add_scalar(B::float_tanh(inner), scalar(1.0));
    B::float_mul_scalar(B::float_mul(x, one_plus), scalar(0.5))
}

/// See [`LayerOps::layer_rope`](super::LayerOps::layer_rope).
pub fn rope<B: Backend>(
    x: FloatTensor<B>,
    cos: FloatTensor<B>,
    sin: FloatTensor<B>,
    style: RopeStyle,
) -> FloatTensor<B> {
    let [batch, seq, heads, dim] = dims4(&x.shape());
    let half = cos.shape()[1];
    let rotated = half * 2;
    let part = |tensor: &FloatTensor<B>, from: usize, to: usize| {
        B::float_slice(
            tensor.clone(),
            &[
                Slice::from(0..batch),
                Slice::from(0..seq),
                Slice::from(0..heads),
                Slice::from(from..to),
            ],
        )
    };
    let table = |tensor: FloatTensor<B>| B::float_reshape(tensor, Shape::new([1, seq, 1, half]));
    let (cos, sin) = (table(cos), table(sin));
    let (a, b) = match style {
        RopeStyle::Neox => (part(&x, 0, half), part(&x, half, rotated)),
        RopeStyle::Norm => {
            let pairs = B::float_reshape(
                part(&x, 0, rotated),
                Shape::new([batch, seq, heads, half, 2]),
            );
            let member = |i: usize| {
                let slices = [
                    Slice::from(0..batch),
                    Slice::from(0..seq),
                    Slice::from(0..heads),
                    Slice::from(0..half),
                    Slice::from(i..i + 1),
                ];
                B::float_reshape(
                    B::float_slice(pairs.clone(), &slices),
                    Shape::new([batch, seq, heads, half]),
                )
            };
            (member(0), member(1))
        }
    };
    let first = B::float_sub(
        B::float_mul(a.clone(), cos.clone()),
        B::float_mul(b.clone(), sin.clone()),
    );
    let second = B::float_add(B::float_mul(a, sin), B::float_mul(b, cos));
    let turned = match style {
        RopeStyle::Neox => B::float_cat(vec![first, second], 3),
        RopeStyle::Norm => {
            let pair = Shape::new([batch, seq, heads, half, 1]);
            let pairs = vec![
                B::float_reshape(first, pair.clone()),
                B::float_reshape(second, pair),
            ];
            B::float_reshape(
                B::float_cat(pairs, 4),
                Shape::new([batch, seq, heads, rotated]),
            )
        }
    };
    if rotated == dim {
        turned
    } else {
        B::float_cat(vec![turned, part(&x, rotated, dim)], 3)
    }
}

/// See [`LayerOps::layer_glu`](super::LayerOps::layer_glu).
pub fn glu<B: Backend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    activation: GluActivation,
) -> FloatTensor<B> {
    let active = match activation {
        GluActivation::Silu => B::float_mul(gate.clone(), B::sigmoid(gate)),
        GluActivation::GeluTanh => gelu_tanh::<B>(gate),
    };
    B::float_mul(active, up)
}

/// See [`LayerOps::layer_cache_append`](super::LayerOps::layer_cache_append).
pub fn cache_append<B: Backend>(
    cache: FloatTensor<B>,
    rows: FloatTensor<B>,
    position: usize,
) -> FloatTensor<B> {
    let [batch, seq, heads, dim] = dims4(&rows.shape());
    let rows = B::float_permute(rows, &[0, 2, 1, 3]);
    let rows = cast_like::<B>(rows, cache.dtype());
    let slices = [
        Slice::from(0..batch),
        Slice::from(0..heads),
        Slice::from(position..position + seq),
        Slice::from(0..dim),
    ];
    B::float_slice_assign(cache, &slices, rows)
}

/// See [`LayerOps::layer_attention`](super::LayerOps::layer_attention).
pub fn attention<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    params: AttentionParams,
) -> FloatTensor<B> {
    let [batch, seq, heads, dim] = dims4(&q.shape());
    let [_, kv_heads, _, _] = dims4(&k.shape());
    let group = heads / kv_heads;
    let len = params.len;
    let dtype = q.dtype();
    let device = q.device();
    let cached = |cache: FloatTensor<B>| {
        let slices = [
            Slice::from(0..batch),
            Slice::from(0..kv_heads),
            Slice::from(0..len),
            Slice::from(0..dim),
        ];
        let rows = B::float_reshape(
            B::float_slice(cache, &slices),
            Shape::new([batch * kv_heads, len, dim]),
        );
        cast_like::<B>(rows, dtype)
    };
    let (k, v) = (cached(k), cached(v));
    let q = B::float_reshape(
        B::float_permute(q, &[0, 2, 1, 3]),
        Shape::new([batch * kv_heads, group * seq, dim]),
    );
    let mut scores = B::float_mul_scalar(
        B::float_matmul(q, B::float_swap_dims(k, 1, 2)),
        scalar(params.scale),
    );
    if let Some(cap) = params.softcap {
        scores = B::float_mul_scalar(
            B::float_tanh(B::float_mul_scalar(scores, scalar(1.0 / cap))),
            scalar(cap),
        );
    }
    if let Some(mask) = mask(seq, len, params) {
        let mask = B::float_from_data(mask, &device);
        let mask = cast_like::<B>(mask, dtype);
        scores = B::float_reshape(scores, Shape::new([batch * heads, seq, len]));
        scores = B::float_add(scores, B::float_reshape(mask, Shape::new([1, seq, len])));
        scores = B::float_reshape(scores, Shape::new([batch * kv_heads, group * seq, len]));
    }
    let max = B::float_max_dim(scores.clone(), 2);
    let weights = B::float_exp(B::float_sub(scores, max));
    let sum = B::float_sum_dim(weights.clone(), 2);
    let out = B::float_matmul(B::float_div(weights, sum), v);
    let out = B::float_reshape(out, Shape::new([batch, heads, seq, dim]));
    B::float_permute(out, &[0, 2, 1, 3])
}

/// The additive mask `[seq, len]`, or `None` when every key is visible.
fn mask(seq: usize, len: usize, params: AttentionParams) -> Option<TensorData> {
    let first = len - seq;
    let visible = |query: usize, key: usize| {
        let position = first + query;
        let causal = !params.causal || key <= position;
        let near = params.window.is_none_or(|window| key + window > position);
        causal && near
    };
    let all_visible = (!params.causal || seq == 1) && params.window.is_none_or(|w| w >= len);
    if all_visible {
        return None;
    }
    let values: Vec<f32> = (0..seq)
        .flat_map(|query| (0..len).map(move |key| if visible(query, key) { 0.0 } else { HIDDEN }))
        .collect();
    Some(TensorData::new(values, [seq, len]))
}

fn cast_like<B: Backend>(tensor: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if tensor.dtype() == dtype {
        tensor
    } else {
        B::float_cast(tensor, FloatDType::from(dtype))
    }
}

fn dims4(shape: &Shape) -> [usize; 4] {
    shape
        .as_slice()
        .try_into()
        .unwrap_or_else(|_| panic!("expected 4 dimensions, found {shape:?}"))
}
