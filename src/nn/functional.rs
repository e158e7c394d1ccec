//! The fused layer operations on burn tensors, see [`LayerOps`].

use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

use crate::ops::{
    AttentionParams, BlockChoice, ChoiceParams, DeltaParams, GeluKind, GluActivation, LayerOps,
    RopeStyle,
};

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

/// A causal convolution of the channels of `x` `[batch, seq, channels]` with `taps` `[channels, kernel]`, and `silu`; and
/// `state` `[batch, kernel - 1, channels]`, the inputs before, as it is after. That is updated in place if it is the only
/// handle to its storage.
///
/// # Panics
/// If the shapes do not fit.
pub fn short_conv(x: Tensor<3>, taps: Tensor<2>, state: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
    let [batch, _, channels] = x.dims();
    let [_, kernel] = taps.dims();
    assert!(
        kernel > 0 && taps.dims()[0] == channels && state.dims() == [batch, kernel - 1, channels],
        "short_conv: taps {:?} and a state {:?} do not fit inputs {:?}",
        taps.dims(),
        state.dims(),
        x.dims()
    );
    let (out, state) = <Dispatch as LayerOps>::layer_short_conv(
        x.into_dispatch(),
        taps.into_dispatch(),
        state.into_dispatch(),
    );
    (Tensor::from_dispatch(out), Tensor::from_dispatch(state))
}

/// What [`gated_delta`] reads.
#[derive(Clone, Debug)]
pub struct DeltaInput {
    /// Queries, keys and values, `[batch, seq, (2 * key_heads + value_heads) * dim]`.
    pub mixed: Tensor<3>,
    /// The output's gate before its activation, `[batch, seq, value_heads * dim]`.
    pub gate: Tensor<3>,
    /// Strength of the correction before its activation, `[batch, seq, value_heads]`.
    pub beta: Tensor<3>,
    /// Decay before its activation, `[batch, seq, value_heads]`.
    pub alpha: Tensor<3>,
    /// Factor of the decay's exponent, negative, `[value_heads]`.
    pub a: Tensor<1>,
    /// Added to `alpha`, `[value_heads]`.
    pub dt: Tensor<1>,
    /// Weight of the output's norm, `[dim]`.
    pub norm: Tensor<1>,
}

/// The gated delta rule over `state` `[batch, value_heads, dim (key), dim (value)]`, see
/// [`LayerOps::layer_gated_delta`]: `[batch, seq, value_heads * dim]` and the state as it is after. That is updated in place
/// if it is the only handle to its storage.
///
/// # Panics
/// If the shapes do not fit, or the value heads are not a multiple of the key heads.
pub fn gated_delta(
    input: DeltaInput,
    state: Tensor<4>,
    params: DeltaParams,
) -> (Tensor<3>, Tensor<4>) {
    let [batch, heads, dim, width] = state.dims();
    let [_, seq, _] = input.gate.dims();
    assert!(
        params.key_heads > 0 && heads.is_multiple_of(params.key_heads),
        "gated_delta: {heads} value heads cannot share {} key heads",
        params.key_heads
    );
    let mixed = [batch, seq, (2 * params.key_heads + heads) * dim];
    assert!(
        width == dim
            && input.mixed.dims() == mixed
            && input.gate.dims() == [batch, seq, heads * dim]
            && input.beta.dims() == [batch, seq, heads]
            && input.alpha.dims() == [batch, seq, heads],
        "gated_delta: inputs {:?}, {:?}, {:?}, {:?} do not fit a state {:?}",
        input.mixed.dims(),
        input.gate.dims(),
        input.beta.dims(),
        input.alpha.dims(),
        state.dims()
    );
    assert!(
        input.a.dims() == [heads] && input.dt.dims() == [heads] && input.norm.dims() == [dim],
        "gated_delta: parameters {:?}, {:?}, {:?} do not fit {heads} heads of {dim}",
        input.a.dims(),
        input.dt.dims(),
        input.norm.dims()
    );
    let (out, state) = <Dispatch as LayerOps>::layer_gated_delta(
        input.mixed.into_dispatch(),
        input.gate.into_dispatch(),
        input.beta.into_dispatch(),
        input.alpha.into_dispatch(),
        input.a.into_dispatch(),
        input.dt.into_dispatch(),
        input.norm.into_dispatch(),
        state.into_dispatch(),
        params,
    );
    (Tensor::from_dispatch(out), Tensor::from_dispatch(state))
}

/// The best experts of each token of `logits` `[tokens, experts]` and their shares, `[tokens, used]` each; with a `bias`
/// `[experts]` those of the largest sum of share and bias.
///
/// # Panics
/// If the shapes do not fit, or no expert or more than there are are to be chosen.
pub fn choose_experts(
    logits: Tensor<2>,
    bias: Option<Tensor<1>>,
    params: ChoiceParams,
) -> (Tensor<2, Int>, Tensor<2>) {
    let [_, experts] = logits.dims();
    assert!(
        (1..=experts).contains(&params.used),
        "choose_experts: {} of {experts} experts cannot be chosen",
        params.used
    );
    let (ids, shares) = match bias {
        None => <Dispatch as LayerOps>::layer_choose_experts(logits.into_dispatch(), params),
        Some(bias) => {
            assert_eq!(bias.dims(), [experts], "choose_experts: the bias");
            <Dispatch as LayerOps>::layer_choose_experts_biased(
                logits.into_dispatch(),
                bias.into_dispatch(),
                params,
            )
        }
    };
    (Tensor::from_dispatch(ids), Tensor::from_dispatch(shares))
}

/// `sum_s shares[t, s] * y[t, s]` of `y` `[tokens, used, width]`; with `shared` `[tokens, width]` and its gate `[tokens, 1]`,
/// plus `sigmoid(gate[t]) * shared[t]`.
///
/// # Panics
/// If the shapes do not fit.
pub fn expert_sum(
    y: Tensor<3>,
    shares: Tensor<2>,
    shared: Option<(Tensor<2>, Tensor<2>)>,
) -> Tensor<2> {
    let [tokens, used, width] = y.dims();
    assert!(
        used > 0 && shares.dims() == [tokens, used],
        "expert_sum: shares {:?} do not fit {:?}",
        shares.dims(),
        y.dims()
    );
    let (y, shares) = (y.into_dispatch(), shares.into_dispatch());
    Tensor::from_dispatch(match shared {
        None => <Dispatch as LayerOps>::layer_expert_sum(y, shares),
        Some((shared, gate)) => {
            assert!(
                shared.dims() == [tokens, width] && gate.dims() == [tokens, 1],
                "expert_sum: shared rows {:?} and gates {:?} do not fit {tokens} tokens of {width}",
                shared.dims(),
                gate.dims()
            );
            <Dispatch as LayerOps>::layer_expert_sum_shared(
                y,
                shares,
                shared.into_dispatch(),
                gate.into_dispatch(),
            )
        }
    })
}
