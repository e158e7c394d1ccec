//! The fused layer operations as plain chains of burn operations: what devices without a fused kernel run, and
//! the oracle of those that have one.

mod delta_net;
mod experts;

pub use delta_net::{DeltaTensors, gated_delta, short_conv};
pub use experts::{choose_experts, expert_sum};

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Scalar, TensorMetadata, read_sync};
use burn::tensor::{DType, FloatDType, Shape, Slice, TensorData};

use burn_gguf_kernels::cpu;

use super::layer::{AttentionParams, BlockChoice, GeluKind, GluActivation, RopeStyle};

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

/// See [`LayerOps::layer_linear`](super::LayerOps::layer_linear).
pub fn linear<B: Backend>(x: FloatTensor<B>, weight: FloatTensor<B>) -> FloatTensor<B> {
    B::float_matmul(x, B::float_swap_dims(weight, 0, 1))
}

/// See [`LayerOps::layer_glu`](super::LayerOps::layer_glu).
pub fn glu<B: Backend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    activation: GluActivation,
) -> FloatTensor<B> {
    let (gate, up) = match activation {
        GluActivation::SwigluOai => (
            B::float_clamp_max(gate, scalar(7.0)),
            B::float_add_scalar(B::float_clamp(up, scalar(-7.0), scalar(7.0)), scalar(1.0)),
        ),
        _ => (gate, up),
    };
    let active = match activation {
        GluActivation::Silu => B::float_mul(gate.clone(), B::sigmoid(gate)),
        GluActivation::GeluTanh => gelu_tanh::<B>(gate),
        GluActivation::SwigluOai => {
            let inner = B::float_mul_scalar(gate.clone(), scalar(1.702));
            B::float_mul(gate, B::sigmoid(inner))
        }
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
    let seq = q.shape()[1];
    let all_visible = (!params.causal || seq == 1) && params.window.is_none_or(|w| w >= params.len);
    let mask = (!all_visible).then(|| mask([1, seq, 1], params, |_, _, _, _| true));
    masked_attention::<B>(q, k, v, mask, params)
}

/// See [`LayerOps::layer_attention_blocks`](super::LayerOps::layer_attention_blocks).
pub fn attention_blocks<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    blocks: IntTensor<B>,
    block_size: usize,
    params: AttentionParams,
) -> FloatTensor<B> {
    let [batch, seq, kv_heads, words] = dims4(&blocks.shape());
    let bits = read_sync(B::int_into_data(blocks)).expect("the blocks can be read");
    let bits: Vec<u32> = bits.iter::<u32>().collect();
    let seen = |b: usize, query: usize, head: usize, key: usize| {
        let block = key / block_size;
        let row = ((b * seq + query) * kv_heads + head) * words;
        bits[row + block / 32] >> (block % 32) & 1 == 1
    };
    let mask = mask([batch, seq, kv_heads], params, seen);
    masked_attention::<B>(q, k, v, Some(mask), params)
}

/// Attention with an additive mask `[1 or batch * kv_heads, 1, seq, len]`, `None` where every key is visible.
fn masked_attention<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    mask: Option<TensorData>,
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
    if let Some(mask) = mask {
        let mask = B::float_from_data(mask, &device);
        let mask = cast_like::<B>(mask, dtype);
        scores = B::float_reshape(scores, Shape::new([batch * kv_heads, group, seq, len]));
        scores = B::float_add(scores, mask);
        scores = B::float_reshape(scores, Shape::new([batch * kv_heads, group * seq, len]));
    }
    let max = B::float_max_dim(scores.clone(), 2);
    let weights = B::float_exp(B::float_sub(scores, max));
    let sum = B::float_sum_dim(weights.clone(), 2);
    let out = B::float_matmul(B::float_div(weights, sum), v);
    let out = B::float_reshape(out, Shape::new([batch, heads, seq, dim]));
    B::float_permute(out, &[0, 2, 1, 3])
}

/// The additive mask `[batch * kv_heads, 1, seq, len]` of the keys that are hidden or that `seen(batch, query, head, key)`
/// says are not seen.
fn mask(
    [batch, seq, kv_heads]: [usize; 3],
    params: AttentionParams,
    seen: impl Fn(usize, usize, usize, usize) -> bool,
) -> TensorData {
    let len = params.len;
    let first = len - seq;
    let visible = |query: usize, key: usize| {
        let position = first + query;
        let causal = !params.causal || key <= position;
        let near = params.window.is_none_or(|window| key + window > position);
        causal && near
    };
    let mut values = Vec::with_capacity(batch * kv_heads * seq * len);
    for row in 0..batch * kv_heads * seq {
        let (b, head, query) = (row / seq / kv_heads, row / seq % kv_heads, row % seq);
        values.extend((0..len).map(
            |key| match visible(query, key) && seen(b, query, head, key) {
                true => 0.0,
                false => HIDDEN,
            },
        ));
    }
    TensorData::new(values, [batch * kv_heads, 1, seq, len])
}

/// See [`LayerOps::layer_choose_blocks`](super::LayerOps::layer_choose_blocks). It is a choice, through which no gradient
/// flows.
pub fn choose_blocks<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    choice: BlockChoice,
) -> IntTensor<B> {
    let (shapes, device) = ((dims4(&q.shape()), dims4(&k.shape())), q.device());
    let host = |t: FloatTensor<B>| -> Vec<f32> {
        let data = read_sync(B::float_into_data(t)).expect("queries and keys can be read");
        data.iter::<f32>().collect()
    };
    B::int_from_data(chosen_bits(&host(q), &host(k), shapes, choice), &device)
}

/// The words of the chosen blocks, `[batch, seq, heads, words]`, on the host.
pub(super) fn chosen_bits(
    q: &[f32],
    k: &[f32],
    (q_shape, k_shape): ([usize; 4], [usize; 4]),
    choice: BlockChoice,
) -> TensorData {
    let [batch, seq, heads, dim] = q_shape;
    let shape = cpu::BlockChoiceShape {
        tokens: seq,
        heads,
        dim,
        len: choice.len,
        size: choice.size,
        top: choice.top,
        local: choice.local,
    };
    let words = BlockChoice::words(choice.len, choice.size);
    let mut bits = vec![0u32; batch * seq * heads * words];
    let (q_len, k_len, bits_len) = (seq * heads * dim, k_shape[2] * dim, seq * heads * words);
    for (i, bits) in bits.chunks_mut(bits_len.max(1)).enumerate() {
        let (q, k) = (&q[i * q_len..][..q_len], &k[i * k_len..][..k_len]);
        cpu::choose_blocks(q, k, &shape, bits).unwrap_or_else(|e| panic!("choose_blocks: {e}"));
    }
    TensorData::new(bits, [batch, seq, heads, words])
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
