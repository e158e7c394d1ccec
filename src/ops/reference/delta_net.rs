//! Linear attention by the gated delta rule, token by token.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Shape, Slice};

use super::{cast_like, dims4, rms_norm, scalar};
use crate::ops::DeltaParams;

fn dims3(shape: &Shape) -> [usize; 3] {
    shape
        .as_slice()
        .try_into()
        .unwrap_or_else(|_| panic!("expected 3 dimensions, found {shape:?}"))
}

/// Positions `range` of dimension `dim`.
fn part<B: Backend>(
    tensor: &FloatTensor<B>,
    dim: usize,
    range: std::ops::Range<usize>,
) -> FloatTensor<B> {
    let mut slices: Vec<Slice> = tensor.shape().iter().map(|&n| Slice::from(0..n)).collect();
    slices[dim] = Slice::from(range);
    B::float_slice(tensor.clone(), &slices)
}

fn silu<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mul(x.clone(), B::sigmoid(x))
}

/// See [`LayerOps::layer_short_conv`](crate::ops::LayerOps::layer_short_conv).
pub fn short_conv<B: Backend>(
    x: FloatTensor<B>,
    taps: FloatTensor<B>,
    state: FloatTensor<B>,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let [_, seq, channels] = dims3(&x.shape());
    let (dtype, kernel) = (x.dtype(), taps.shape()[1]);
    let state_dtype = state.dtype();
    let all = match kernel {
        1 => x,
        _ => B::float_cat(vec![cast_like::<B>(state.clone(), dtype), x], 1),
    };
    let term = |j: usize| {
        let tap = B::float_reshape(part::<B>(&taps, 1, j..j + 1), Shape::new([1, 1, channels]));
        B::float_mul(part::<B>(&all, 1, j..j + seq), tap)
    };
    let sum = (1..kernel).fold(term(0), |sum, j| B::float_add(sum, term(j)));
    let after = match kernel {
        1 => state,
        _ => cast_like::<B>(part::<B>(&all, 1, seq..seq + kernel - 1), state_dtype),
    };
    (silu::<B>(sum), after)
}

/// What [`gated_delta`] reads, shaped as [`LayerOps::layer_gated_delta`](crate::ops::LayerOps::layer_gated_delta) says.
#[derive(Clone, Debug)]
pub struct DeltaTensors<B: Backend> {
    /// Queries, keys and values.
    pub mixed: FloatTensor<B>,
    /// The output's gate.
    pub gate: FloatTensor<B>,
    /// Strength of the correction.
    pub beta: FloatTensor<B>,
    /// Decay.
    pub alpha: FloatTensor<B>,
    /// Factor of the decay's exponent.
    pub a: FloatTensor<B>,
    /// Added to `alpha`.
    pub dt: FloatTensor<B>,
    /// Weight of the output's norm.
    pub norm: FloatTensor<B>,
}

/// See [`LayerOps::layer_gated_delta`](crate::ops::LayerOps::layer_gated_delta).
pub fn gated_delta<B: Backend>(
    input: DeltaTensors<B>,
    state: FloatTensor<B>,
    params: DeltaParams,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let [batch, heads, dim, _] = dims4(&state.shape());
    let [_, seq, _] = dims3(&input.mixed.shape());
    let (dtype, out_dtype) = (state.dtype(), input.gate.dtype());
    let cast = |tensor: FloatTensor<B>| cast_like::<B>(tensor, dtype);
    let mixed = cast(input.mixed);
    let keys = params.key_heads * dim;
    let by_head = Shape::new([batch, seq, heads, dim]);
    // `[batch * heads, seq, ..]`, in which a token is one slice.
    let first = |tensor: FloatTensor<B>, width: usize| {
        let turned = B::float_permute(tensor, &[0, 2, 1, 3]);
        B::float_reshape(turned, Shape::new([batch * heads, seq, width]))
    };
    let unit = |from: usize| {
        let x = part::<B>(&mixed, 2, from..from + keys);
        let x = B::float_reshape(x, Shape::new([batch, seq, params.key_heads, dim]));
        let squares = B::float_sum_dim(B::float_mul(x.clone(), x.clone()), 3);
        let norm = B::float_sqrt(B::float_add_scalar(squares, scalar(params.eps)));
        let x = B::float_mul(x, B::float_recip(norm));
        first(spread::<B>(x, heads, params.grouped), dim)
    };
    let scale = 1.0 / (dim as f32).sqrt();
    let q = B::float_mul_scalar(unit(0), scalar(scale));
    let k = unit(keys);
    let v = part::<B>(&mixed, 2, 2 * keys..2 * keys + heads * dim);
    let v = first(B::float_reshape(v, by_head.clone()), dim);
    let per_head = |tensor: FloatTensor<B>| {
        first(
            B::float_reshape(tensor, Shape::new([batch, seq, heads, 1])),
            1,
        )
    };
    let row = |tensor: FloatTensor<B>| B::float_reshape(cast(tensor), Shape::new([1, 1, heads]));
    let step = softplus::<B>(B::float_add(cast(input.alpha), row(input.dt)));
    let decay = per_head(B::float_exp(B::float_mul(row(input.a), step)));
    let beta = per_head(B::sigmoid(cast(input.beta)));

    let mut s = B::float_reshape(state, Shape::new([batch * heads, dim, dim]));
    let mut outs = Vec::with_capacity(seq);
    for t in 0..seq {
        let at = |tensor: &FloatTensor<B>| part::<B>(tensor, 1, t..t + 1);
        s = B::float_mul(s, at(&decay));
        let key = at(&k);
        let said = B::float_matmul(key.clone(), s.clone());
        let correction = B::float_mul(B::float_sub(at(&v), said), at(&beta));
        let change = B::float_matmul(B::float_swap_dims(key, 1, 2), correction);
        s = B::float_add(s, change);
        outs.push(B::float_matmul(at(&q), s.clone()));
    }
    let state = B::float_reshape(s, Shape::new([batch, heads, dim, dim]));
    if outs.is_empty() {
        return (input.gate, state);
    }
    let out = B::float_reshape(B::float_cat(outs, 1), Shape::new([batch, heads, seq, dim]));
    let out = rms_norm::<B>(
        B::float_permute(out, &[0, 2, 1, 3]),
        cast(input.norm),
        params.eps,
    );
    let gate = silu::<B>(B::float_reshape(cast(input.gate), by_head));
    let out = B::float_reshape(
        B::float_mul(out, gate),
        Shape::new([batch, seq, heads * dim]),
    );
    (cast_like::<B>(out, out_dtype), state)
}

/// Key heads `[batch, seq, key_heads, dim]` for each of the value heads.
fn spread<B: Backend>(x: FloatTensor<B>, heads: usize, grouped: bool) -> FloatTensor<B> {
    let [batch, seq, key_heads, dim] = dims4(&x.shape());
    let group = heads / key_heads;
    let copies = vec![x; group];
    if !grouped {
        return B::float_cat(copies, 2);
    }
    let copies = copies.into_iter().map(|x| {
        let shape = Shape::new([batch, seq, key_heads, 1, dim]);
        B::float_reshape(x, shape)
    });
    B::float_reshape(
        B::float_cat(copies.collect(), 3),
        Shape::new([batch, seq, heads, dim]),
    )
}

/// `ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)`, without overflow.
fn softplus<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let tail = B::float_exp(B::float_neg(B::float_abs(x.clone())));
    B::float_add(B::relu(x), B::float_log1p(tail))
}
