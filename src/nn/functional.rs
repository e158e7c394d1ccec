//! The fused layer operations on burn tensors, see [`LayerOps`].

use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

use crate::ops::{AttentionParams, BlockChoice, GeluKind, GluActivation, LayerOps, RopeStyle};

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
    check_heads(&q, &k, params.len);
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_attention(
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        params,
    ))
}

/// As [`attention`], where each token's cache heads see only the blocks of `block_size` rows that `blocks` has set,
/// `[batch, seq, kv_heads, words]` of unsigned 32-bit words with a bit for each block, the lowest first: what
/// [`choose_blocks`] returns.
///
/// # Panics
/// As [`attention`], and if `blocks` has another shape or `block_size` is 0.
pub fn attention_blocks(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    blocks: Tensor<4, Int>,
    block_size: usize,
    params: AttentionParams,
) -> Tensor<4> {
    check_heads(&q, &k, params.len);
    assert!(block_size > 0, "attention_blocks: blocks of no rows");
    let [batch, seq, _, _] = q.dims();
    let words = BlockChoice::words(params.len, block_size);
    let expected = [batch, seq, k.dims()[1], words];
    assert!(
        blocks.dims() == expected,
        "attention_blocks: the blocks have the shape {:?}, not {expected:?}",
        blocks.dims()
    );
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_attention_blocks(
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        blocks.into_dispatch(),
        block_size,
        params,
    ))
}

/// The blocks of rows of `k` `[batch, 1, capacity, dim]` that each head of `q` `[batch, seq, heads, dim]` sees, for
/// [`attention_blocks`]: `[batch, seq, heads, words]`.
///
/// # Panics
/// If `k` has more than one head or another width than `q`, `choice.len` exceeds the capacity or is below `seq`, or
/// `choice.size` is 0.
pub fn choose_blocks(q: Tensor<4>, k: Tensor<4>, choice: BlockChoice) -> Tensor<4, Int> {
    let ([.., dim], [_, key_heads, _, key_dim]) = (q.dims(), k.dims());
    check_heads(&q, &k, choice.len);
    assert!(
        key_heads == 1 && dim == key_dim,
        "choose_blocks: {key_heads} key heads of {key_dim} values for queries of {dim}"
    );
    assert!(choice.size > 0, "choose_blocks: blocks of no rows");
    Tensor::from_dispatch(<Dispatch as LayerOps>::layer_choose_blocks(
        q.into_dispatch(),
        k.into_dispatch(),
        choice,
    ))
}

fn check_heads(q: &Tensor<4>, k: &Tensor<4>, len: usize) {
    let [_, seq, heads, _] = q.dims();
    let [_, kv_heads, capacity, _] = k.dims();
    assert!(
        kv_heads > 0 && heads.is_multiple_of(kv_heads),
        "attention: {heads} heads cannot share {kv_heads} cache heads"
    );
    assert!(
        seq <= len && len <= capacity,
        "attention: {len} positions with {seq} new ones do not fit a capacity of {capacity}",
    );
}
