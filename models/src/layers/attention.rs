//! Grouped-query attention with rotary positions and a cache.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::device::on_device;
use burn_gguf::nn::{GgmlLinear, functional};
use burn_gguf::ops::AttentionParams;

use super::norm::weightless_rms_norm;
use super::{CacheLimits, CachedRows, Indexer, IndexerConfig, LayerCache, RmsNorm, RopeTable};

/// How queries and keys are normalized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QkNorm {
    /// Not at all.
    #[default]
    None,
    /// Each head on its own.
    Head,
    /// All heads of a token together.
    Token,
}

/// Whether a gate, a sigmoid of a projection of the input, multiplies what attention found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionGate {
    /// None.
    #[default]
    None,
    /// With a projection of its own.
    Apart,
    /// From the query projection, which has a head's query and gate side by side.
    InQuery,
}

/// Where keys and values come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvSource {
    /// A projection of the input each.
    #[default]
    Apart,
    /// One projection: values are what keys are before their norm and rotation.
    Joined,
    /// The cache of an earlier layer, which has appended the same rows already.
    Shared,
}

/// Shape and options of an [`Attention`] layer.
#[derive(Clone, Debug)]
pub struct AttentionConfig {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Sliding window in positions, the query included.
    pub window: Option<usize>,
    /// Whether query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Where keys and values come from.
    pub kv: KvSource,
    /// How queries and keys are normalized.
    pub qk_norm: QkNorm,
    /// Whether each value head is normalized, without weights.
    pub v_norm: bool,
    /// The gate on what attention found.
    pub gate: AttentionGate,
    /// The choice of the blocks of keys that are seen, where not all are.
    pub indexer: Option<IndexerConfig>,
    /// Epsilon of those norms.
    pub eps: f32,
    /// How products are computed.
    pub arithmetic: Arithmetic,
}

/// Grouped-query attention.
#[derive(Module, Debug)]
pub struct Attention {
    /// Query projection, `[hidden] -> [heads * head_dim]`, or twice that with a gate in it.
    pub q: GgmlLinear,
    /// Key projection, `[hidden] -> [kv_heads * head_dim]`.
    pub k: Option<GgmlLinear>,
    /// Value projection, `[hidden] -> [kv_heads * head_dim]`.
    pub v: Option<GgmlLinear>,
    /// Output projection, `[heads * head_dim] -> [hidden]`.
    pub output: GgmlLinear,
    /// Norm of each query head, or of all together.
    pub q_norm: Option<RmsNorm>,
    /// Norm of each key head, or of all together.
    pub k_norm: Option<RmsNorm>,
    /// Gate projection, `[hidden] -> [heads * head_dim]`.
    pub gate: Option<GgmlLinear>,
    /// The choice of the blocks of keys that are seen.
    pub indexer: Option<Indexer>,
    #[module(skip)]
    v_eps: Option<f32>,
    #[module(skip)]
    gate_in_query: bool,
    #[module(skip)]
    qk_norm: QkNorm,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    kv_heads: usize,
    #[module(skip)]
    head_dim: usize,
    #[module(skip)]
    scale: f32,
    #[module(skip)]
    window: Option<usize>,
}

impl Attention {
    /// A layer to be loaded from a file.
    pub fn uninitialized(config: &AttentionConfig, device: &Device) -> Self {
        let linear = |input, output, bias| {
            GgmlLinear::uninitialized(input, output, bias, device)
                .with_arithmetic(config.arithmetic)
        };
        let norm = |heads: usize| {
            let dim = match config.qk_norm {
                QkNorm::None => return None,
                QkNorm::Head => config.head_dim,
                QkNorm::Token => heads * config.head_dim,
            };
            Some(RmsNorm::new(dim, config.eps, device))
        };
        let (q_width, kv_width) = (
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
        );
        Self {
            q: match config.gate {
                AttentionGate::InQuery => linear(config.hidden, 2 * q_width, config.qkv_bias),
                _ => linear(config.hidden, q_width, config.qkv_bias),
            },
            k: (config.kv != KvSource::Shared)
                .then(|| linear(config.hidden, kv_width, config.qkv_bias)),
            v: (config.kv == KvSource::Apart)
                .then(|| linear(config.hidden, kv_width, config.qkv_bias)),
            output: linear(q_width, config.hidden, false),
            q_norm: norm(config.heads),
            k_norm: (config.kv != KvSource::Shared)
                .then(|| norm(config.kv_heads))
                .flatten(),
            v_eps: config.v_norm.then_some(config.eps),
            gate: (config.gate == AttentionGate::Apart)
                .then(|| linear(config.hidden, q_width, false)),
            indexer: (config.indexer.as_ref())
                .map(|indexer| Indexer::uninitialized(indexer, device)),
            gate_in_query: config.gate == AttentionGate::InQuery,
            qk_norm: config.qk_norm,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            scale: config.scale,
            window: config.window,
        }
    }

    /// `[batch, seq, hidden] -> [batch, seq, hidden]`, causal; the tokens stand at `position` and after, the cache holds
    /// everything before. Without a `rope`, positions do not matter.
    ///
    /// # Panics
    /// As [`forward_seeing`](Self::forward_seeing).
    pub fn forward(
        &self,
        x: Tensor<3>,
        rope: Option<&RopeTable>,
        cache: &mut LayerCache,
        position: usize,
        limits: CacheLimits,
    ) -> Tensor<3> {
        self.forward_seeing(x, rope, cache, position, limits, true)
    }

    /// As [`forward`](Self::forward); not `causal`, the tokens of this call all see each other, within the window
    /// backwards. With [`KvSource::Shared`], `cache` is that of the layer whose keys and values are read.
    ///
    /// # Panics
    /// If keys are shared and that layer has not appended its own.
    pub fn forward_seeing(
        &self,
        x: Tensor<3>,
        rope: Option<&RopeTable>,
        cache: &mut LayerCache,
        position: usize,
        limits: CacheLimits,
        causal: bool,
    ) -> Tensor<3> {
        let [batch, seq, _] = x.dims();
        let gate = self.gate.as_ref().map(|gate| gate.forward(x.clone()));
        let seen = self.indexer.as_ref().and_then(|indexer| {
            let blocks = indexer.forward(x.clone(), rope, cache, position, limits);
            blocks.map(|blocks| (blocks, indexer.block_size()))
        });
        let (q, kv) = match (&self.k, &self.v) {
            (Some(k), Some(v)) => {
                let [q, k, v] = GgmlLinear::forward_triple([&self.q, k, v], x);
                (q, Some((k, v)))
            }
            (Some(k), None) => {
                let [q, k] = GgmlLinear::forward_pair([&self.q, k], x);
                (q, Some((k.clone(), k)))
            }
            (None, _) => (self.q.forward(x), None),
        };
        let (q, gate) = match self.gate_in_query {
            true => {
                let both = q.reshape([batch, seq, self.heads, 2 * self.head_dim]);
                let half = |i: usize| {
                    let dims = i * self.head_dim..(i + 1) * self.head_dim;
                    let half = both.clone().slice([0..batch, 0..seq, 0..self.heads, dims]);
                    half.reshape([batch, seq, self.heads * self.head_dim])
                };
                (half(0), Some(half(1)))
            }
            false => (q, gate),
        };
        let heads = |t: Tensor<3>, n: usize| t.reshape([batch, seq, n, self.head_dim]);
        let prepared = |t: Tensor<3>, n: usize, norm: &Option<RmsNorm>| {
            let t = match (norm, self.qk_norm) {
                (Some(norm), QkNorm::Token) => heads(norm.forward(t), n),
                (Some(norm), _) => norm.forward(heads(t, n)),
                (None, _) => heads(t, n),
            };
            match rope {
                Some(rope) => rope.apply(t),
                None => t,
            }
        };
        let q = prepared(q, self.heads, &self.q_norm);
        let rows = match kv {
            Some((k, v)) => {
                let k = prepared(k, self.kv_heads, &self.k_norm);
                let v = heads(v, self.kv_heads);
                let v = match self.v_eps {
                    Some(eps) => weightless_rms_norm(v, eps),
                    None => v,
                };
                cache.append(k, v, position, self.window, limits)
            }
            None => {
                let rows = cache
                    .read()
                    .expect("the layer whose keys are shared ran before");
                CachedRows {
                    k: on_device(rows.k, &q.device()),
                    v: on_device(rows.v, &q.device()),
                    ..rows
                }
            }
        };
        let params = AttentionParams {
            len: rows.len,
            scale: self.scale,
            causal,
            window: self.window,
            softcap: None,
        };
        let out = match seen {
            Some((blocks, size)) => {
                functional::attention_blocks(q, rows.k, rows.v, blocks, size, params)
            }
            None => functional::attention(q, rows.k, rows.v, params),
        };
        let out = out.reshape([batch, seq, self.heads * self.head_dim]);
        let out = match gate {
            Some(gate) => out * burn::tensor::activation::sigmoid(gate),
            None => out,
        };
        self.output.forward(out)
    }
}
