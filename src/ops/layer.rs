//! Fused operations of a transformer layer.
//!
//! A chain of tensor operations costs more than the arithmetic in it, so Flex, NdArray and CubeCL devices run each
//! of these as one kernel; the default bodies are the plain chain, which Autodiff and unusual dtypes use.

#[cfg(feature = "fusion")]
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};
#[cfg(feature = "fusion")]
use burn::tensor::{DType, Shape};
pub use burn_gguf_kernels::cpu::Gating;

use super::reference;

/// How rotary embedding pairs the values of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Value `i` with value `i + n_rot / 2` (GPT-NeoX, Qwen, Gemma).
    Neox,
    /// Value `2 i` with value `2 i + 1` (the original form).
    Norm,
}

/// The gate's activation in a gated linear unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GluActivation {
    /// `x * sigmoid(x)`: SwiGLU.
    Silu,
    /// The tanh approximation of GELU: GeGLU.
    GeluTanh,
    /// `x * sigmoid(1.702 x) * (y + 1)` with `x` the gate up to 7 and `y` the other factor within -7 and 7 (GPT-OSS,
    /// MiniMax-M3).
    SwigluOai,
}

/// Forms of the GELU activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeluKind {
    /// `x / 2 * (1 + erf(x / sqrt(2)))`, the definition.
    Erf,
    /// Its tanh approximation.
    Tanh,
    /// `x * sigmoid(1.702 x)`.
    Quick,
}

/// Parameters of [`LayerOps::layer_attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Valid rows of the cache, this call's tokens included (they are the last ones).
    pub len: usize,
    /// Factor on the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Whether a token sees only itself and earlier ones.
    pub causal: bool,
    /// Sliding window: a key at distance `window` or more is hidden too (the window counts the query itself).
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
}

/// Parameters of [`LayerOps::layer_choose_blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockChoice {
    /// Valid rows of the cache, this call's tokens included (they are the last ones).
    pub len: usize,
    /// Rows of a block.
    pub size: usize,
    /// Most blocks a head sees of those that begin at the token or before it.
    pub top: usize,
    /// How many of them are the last ones, the token's own first, whatever their scores.
    pub local: usize,
}

impl BlockChoice {
    /// 32-bit words that hold a bit for each block.
    pub fn words(len: usize, size: usize) -> usize {
        len.div_ceil(size).div_ceil(32)
    }
}

/// Parameters of [`LayerOps::layer_gated_delta`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaParams {
    /// Query and key heads.
    pub key_heads: usize,
    /// Whether the value heads of one key head follow each other; else value head `n` reads key head `n mod key_heads`.
    pub grouped: bool,
    /// Epsilon of the norms.
    pub eps: f32,
}

/// Parameters of [`LayerOps::layer_choose_experts`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChoiceParams {
    /// Experts a token uses.
    pub used: usize,
    /// How logits become shares.
    pub gating: Gating,
    /// Whether the shares of the chosen experts are divided by their sum.
    pub normalize: bool,
    /// That sum is taken to be at least this.
    pub least_sum: f32,
    /// Factor on the shares.
    pub scale: f32,
}

/// Ids and shares of chosen experts.
#[cfg(feature = "fusion")]
fn choice_specs(logits: &TensorSpec, params: &ChoiceParams) -> (TensorSpec, TensorSpec) {
    let shape = Shape::new([logits.shape[0], params.used]);
    (
        TensorSpec::new(shape.clone(), DType::I32),
        TensorSpec::new(shape, logits.dtype),
    )
}

/// Fused operations of a transformer layer over float tensors.
#[backend_extension(
    Cube: cfg(feature = "cube"),
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Autodiff: cfg(feature = "autodiff"),
    Fusion: cfg(feature = "fusion"),
)]
pub trait LayerOps: Backend {
    /// Root-mean-square norm over the last dimension: `x * rsqrt(mean(x^2) + eps) * weight`, weight `[dim]`.
    #[fusion(dtype = x, shape = x)]
    fn layer_rms_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        eps: f32,
    ) -> FloatTensor<Self> {
        reference::rms_norm::<Self>(x, weight, eps)
    }

    /// Layer norm over the last dimension: `(x - mean) * rsqrt(var + eps) * weight + bias`, weight and bias `[dim]`.
    #[fusion(dtype = x, shape = x)]
    fn layer_layer_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        eps: f32,
    ) -> FloatTensor<Self> {
        reference::layer_norm::<Self>(x, weight, bias, eps)
    }

    /// GELU, element by element.
    #[fusion(dtype = x, shape = x)]
    fn layer_gelu(x: FloatTensor<Self>, kind: GeluKind) -> FloatTensor<Self> {
        reference::gelu::<Self>(x, kind)
    }

    /// Rotary position embedding of `x` `[batch, seq, heads, head_dim]` with tables `cos`, `sin`
    /// `[seq, n_rot / 2]`; values from `n_rot` on stay as they are.
    #[fusion(dtype = x, shape = x)]
    fn layer_rope(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        style: RopeStyle,
    ) -> FloatTensor<Self> {
        reference::rope::<Self>(x, cos, sin, style)
    }

    /// `x . weight^T` with a plain float weight `[rows, cols]`: `[n, cols] -> [n, rows]`.
    #[fusion(dtype = x, shape = Shape::new([x[0], weight[0]]))]
    fn layer_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::linear::<Self>(x, weight)
    }

    /// Gated linear unit: `activation(gate) * up`, element by element.
    #[fusion(dtype = gate, shape = gate)]
    fn layer_glu(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        activation: GluActivation,
    ) -> FloatTensor<Self> {
        reference::glu::<Self>(gate, up, activation)
    }

    /// Writes `rows` `[batch, seq, kv_heads, head_dim]` into `cache` `[batch, kv_heads, capacity, head_dim]` from
    /// position `position` on, in place where the storage is not shared.
    #[fusion(dtype = cache, shape = cache)]
    fn layer_cache_append(
        cache: FloatTensor<Self>,
        rows: FloatTensor<Self>,
        position: usize,
    ) -> FloatTensor<Self> {
        reference::cache_append::<Self>(cache, rows, position)
    }

    /// Attention of `q` `[batch, seq, heads, head_dim]` over the caches `k`, `v`
    /// `[batch, kv_heads, capacity, head_dim]`, to `[batch, seq, heads, head_dim]`. Head `h` reads cache head
    /// `h / (heads / kv_heads)`; the queries are the last `seq` of `params.len` positions.
    #[fusion(dtype = q, shape = q)]
    fn layer_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        params: AttentionParams,
    ) -> FloatTensor<Self> {
        reference::attention::<Self>(q, k, v, params)
    }

    /// As [`layer_attention`](Self::layer_attention), where a token sees of the keys only those in some blocks of
    /// `block_size` rows of the cache. `blocks` `[batch, seq, kv_heads, words]` has unsigned 32-bit words; bit `b % 32` of word
    /// `b / 32` is 1 where block `b` is seen.
    #[fusion(dtype = q, shape = q)]
    fn layer_attention_blocks(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        blocks: IntTensor<Self>,
        block_size: usize,
        params: AttentionParams,
    ) -> FloatTensor<Self> {
        reference::attention_blocks::<Self>(q, k, v, blocks, block_size, params)
    }

    /// The blocks of rows of `k` `[batch, 1, capacity, dim]` that each head of `q` `[batch, seq, heads, dim]` sees, as
    /// [`layer_attention_blocks`](Self::layer_attention_blocks) takes them, `[batch, seq, heads, words]`: the last
    /// `choice.local` ones and those with the largest product of the query and a row up to the token; of equal ones the
    /// earlier.
    #[fusion(
        dtype = DType::U32,
        shape = blocks_shape(q, choice)
    )]
    fn layer_choose_blocks(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        choice: BlockChoice,
    ) -> IntTensor<Self> {
        reference::choose_blocks::<Self>(q, k, choice)
    }

    /// A causal convolution of each channel with few taps, and `silu`: `x` `[batch, seq, channels]`, `taps`
    /// `[channels, kernel]`, the current token's last. `state` `[batch, kernel - 1, channels]` holds the inputs before,
    /// oldest first; returned beside the result is what it is after this call, written in place where the storage is
    /// not shared.
    #[fusion(meta = |x, _taps, state| (x.clone(), state.clone()))]
    fn layer_short_conv(
        x: FloatTensor<Self>,
        taps: FloatTensor<Self>,
        state: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        reference::short_conv::<Self>(x, taps, state)
    }

    /// The gated delta rule (Yang et al. 2024). `mixed` `[batch, seq, (2 * key_heads + value_heads) * dim]` holds queries,
    /// keys and values; `gate` is `[batch, seq, value_heads * dim]`, `beta` and `alpha` `[batch, seq, value_heads]`, `a`
    /// and `dt` `[value_heads]`, `norm` `[dim]`, and `state` `[batch, value_heads, dim (key), dim (value)]`. Token by token,
    /// with queries and keys of length 1, queries also divided by `sqrt(dim)`: `S *= exp(a * softplus(alpha + dt))`,
    /// `S += k (sigmoid(beta) (v - S^T k))^T`, and the result is `rms_norm(S^T q) * norm * silu(gate)`. Returned beside it
    /// is the state after this call, updated in place where the storage is not shared.
    #[fusion(meta = |_mixed, gate, _beta, _alpha, _a, _dt, _norm, state, _params| (gate.clone(), state.clone()))]
    #[allow(clippy::too_many_arguments)]
    fn layer_gated_delta(
        mixed: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        alpha: FloatTensor<Self>,
        a: FloatTensor<Self>,
        dt: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        state: FloatTensor<Self>,
        params: DeltaParams,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let input = reference::DeltaTensors {
            mixed,
            gate,
            beta,
            alpha,
            a,
            dt,
            norm,
        };
        reference::gated_delta::<Self>(input, state, params)
    }

    /// The best experts of each token of `logits` `[tokens, experts]`, best first, of equals that of the lower number, and
    /// their shares, `[tokens, used]` each.
    #[fusion(meta = |logits, params| choice_specs(logits, params))]
    fn layer_choose_experts(
        logits: FloatTensor<Self>,
        params: ChoiceParams,
    ) -> (IntTensor<Self>, FloatTensor<Self>) {
        reference::choose_experts::<Self>(logits, None, params)
    }

    /// As [`layer_choose_experts`](Self::layer_choose_experts), the best being those of the largest sum of share and
    /// `bias` `[experts]`, which does not enter the shares.
    #[fusion(meta = |logits, _bias, params| choice_specs(logits, params))]
    fn layer_choose_experts_biased(
        logits: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: ChoiceParams,
    ) -> (IntTensor<Self>, FloatTensor<Self>) {
        reference::choose_experts::<Self>(logits, Some(bias), params)
    }

    /// `sum_s shares[t, s] * y[t, s]` of `y` `[tokens, used, width]`: `[tokens, width]`.
    #[fusion(dtype = y, shape = Shape::new([y[0], y[2]]))]
    fn layer_expert_sum(y: FloatTensor<Self>, shares: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::expert_sum::<Self>(y, shares, None)
    }

    /// As [`layer_expert_sum`](Self::layer_expert_sum), plus `sigmoid(gate[t]) * shared[t]` of `shared` `[tokens, width]`
    /// and `gate` `[tokens, 1]`.
    #[fusion(dtype = shared, shape = shared)]
    fn layer_expert_sum_shared(
        y: FloatTensor<Self>,
        shares: FloatTensor<Self>,
        shared: FloatTensor<Self>,
        gate: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::expert_sum::<Self>(y, shares, Some((shared, gate)))
    }
}

#[cfg(feature = "fusion")]
fn blocks_shape(q: &Shape, choice: &BlockChoice) -> Shape {
    let mut shape = q.clone();
    shape[3] = BlockChoice::words(choice.len, choice.size);
    shape
}
