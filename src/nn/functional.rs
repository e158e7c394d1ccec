//! The fused layer operations on burn tensors, see [`LayerOps`].

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::ops::{AttentionParams, GeluKind, GluActivation, LayerOps, RopeStyle};

/// Root-mean-square norm over the last dimension: `x * rsqrt(mean(x^2) + eps) * weight`, weight `[dim]`.
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, eps: f32) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_rms_norm(
        x.into_dispatch(),
        weight.into_dispatch(),
        eps,
    ))
}

/// Layer norm over the last dimension: `(x - mean) * rsqrt(var + eps) * weight + bias`, weight and bias `[dim]`.
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    eps: f32,
) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_layer_norm(
        x.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
        eps,
    ))
}

/// GELU, element by element.
pub fn gelu<const D: usize>(x: Tensor<D>, kind: GeluKind) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_gelu(x.into_dispatch(), kind))
}

/// Rotary position embedding of `x` `[batch, seq, heads, head_dim]` with tables `[seq, n_rot / 2]`.
pub fn rope(x: Tensor<4>, cos: Tensor<2>, sin: Tensor<2>, style: RopeStyle) -> Tensor<4> {
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_rope(
        x.into_dispatch(),
        cos.into_dispatch(),
        sin.into_dispatch(),
        style,
    ))
}

/// Gated linear unit: `activation(gate) * up`.
pub fn glu<const D: usize>(gate: Tensor<D>, up: Tensor<D>, activation: GluActivation) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_glu(
        gate.into_dispatch(),
        up.into_dispatch(),
        activation,
    ))
}

/// `x . weight^T` with a plain float weight `[rows, cols]`: `[.., cols] -> [.., rows]`.
///
/// # Panics
/// If the last dimension of `x` is not `cols`.
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>) -> Tensor<D> {
    let mut dims = x.dims();
    let [rows, cols] = weight.dims();
    assert_eq!(dims[D - 1], cols, "linear takes {cols} values a row");
    let n: usize = dims[..D - 1].iter().product();
    let y = Tensor::<2>::from_dispatch(<Dispatch as LayerOps>::layer_linear(
        x.reshape([n, cols]).into_dispatch(),
        weight.into_dispatch(),
    ));
    dims[D - 1] = rows;
    y.reshape(dims)
}

/// Writes `rows` `[batch, seq, kv_heads, head_dim]` into `cache` `[batch, kv_heads, capacity, head_dim]` from
/// `position` on; in place if `cache` is the only handle to its storage.
///
/// # Panics
/// If the rows do not fit behind `position`.
pub fn cache_append(cache: Tensor<4>, rows: Tensor<4>, position: usize) -> Tensor<4> {
    let (capacity, seq) = (cache.dims()[2], rows.dims()[1]);
    assert!(
        position + seq <= capacity,
        "cache_append: {seq} rows at {position} do not fit a capacity of {capacity}"
    );
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_cache_append(
        cache.into_dispatch(),
        rows.into_dispatch(),
        position,
    ))
}

/// Attention of `q` `[batch, seq, heads, head_dim]` over caches `[batch, kv_heads, capacity, head_dim]`.
///
/// # Panics
/// If the heads are not a multiple of the cache's heads, or `params.len` exceeds the capacity or is below `seq`.
pub fn attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, params: AttentionParams) -> Tensor<4> {
    let [_, seq, heads, _] = q.dims();
    let [_, kv_heads, capacity, _] = k.dims();
    assert!(
        kv_heads > 0 && heads.is_multiple_of(kv_heads),
        "attention: {heads} heads cannot share {kv_heads} cache heads"
    );
    assert!(
        seq <= params.len && params.len <= capacity,
        "attention: {} positions with {seq} new ones do not fit a capacity of {capacity}",
        params.len
    );
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_attention(
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        params,
    ))
}
