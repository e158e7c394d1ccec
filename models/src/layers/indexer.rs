//! The choice of the blocks of keys that attention sees (MiniMax sparse attention).

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::nn::{GgmlLinear, functional};
use burn_gguf::ops::BlockChoice;

use super::{CacheLimits, LayerCache, RmsNorm, RopeTable};

/// Shape and options of an [`Indexer`].
#[derive(Clone, Debug, PartialEq)]
pub struct IndexerConfig {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Heads, each of which chooses for one key/value head of attention.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Keys of a block.
    pub block_size: usize,
    /// Blocks a token sees at most.
    pub top: usize,
    /// How many of them are the last ones, the token's own first, whatever their scores.
    pub local: usize,
    /// Epsilon of the norms.
    pub eps: f32,
}

/// Scores blocks of keys by their best one, with small queries and keys of its own.
#[derive(Module, Debug)]
pub struct Indexer {
    /// Query projection, `[hidden] -> [heads * head_dim]`.
    pub q: GgmlLinear,
    /// Key projection, `[hidden] -> [head_dim]`: all heads share a key.
    pub k: GgmlLinear,
    /// Norm of each query.
    pub q_norm: RmsNorm,
    /// Norm of each key.
    pub k_norm: RmsNorm,
    #[module(skip)]
    config: IndexerConfig,
}

impl Indexer {
    /// A layer to be loaded from a file.
    pub fn uninitialized(config: &IndexerConfig, device: &Device) -> Self {
        let linear = |output| {
            GgmlLinear::uninitialized(config.hidden, output, false, device)
                // The choice is a comparison: rounding would make it another one.
                .with_arithmetic(Arithmetic::Exact)
        };
        let norm = || RmsNorm::new(config.head_dim, config.eps, device);
        Self {
            q: linear(config.heads * config.head_dim),
            k: linear(config.head_dim),
            q_norm: norm(),
            k_norm: norm(),
            config: config.clone(),
        }
    }

    /// Keys of a block.
    pub fn block_size(&self) -> usize {
        self.config.block_size
    }

    /// The blocks that the tokens of `x` `[batch, seq, hidden]`, at `position` and after, see, as
    /// [`attention_blocks`](functional::attention_blocks) takes them; `None` where there are so few that they see them all.
    /// The tokens' keys are appended to the cache, which holds everything before.
    pub fn forward(
        &self,
        x: Tensor<3>,
        rope: Option<&RopeTable>,
        cache: &mut LayerCache,
        position: usize,
        limits: CacheLimits,
    ) -> Option<Tensor<4, Int>> {
        let [batch, seq, _] = x.dims();
        let &IndexerConfig {
            heads,
            head_dim,
            block_size: size,
            top,
            local,
            ..
        } = &self.config;
        let rotated = |t: Tensor<4>| match rope {
            Some(rope) => rope.apply(t),
            None => t,
        };
        let [q, k] = GgmlLinear::forward_pair([&self.q, &self.k], x);
        let k = self.k_norm.forward(k.reshape([batch, seq, 1, head_dim]));
        let keys = cache.append_index(rotated(k), position, limits);
        let len = position + seq;
        if len.div_ceil(size) <= top {
            return None;
        }
        let q = self
            .q_norm
            .forward(q.reshape([batch, seq, heads, head_dim]));
        let choice = BlockChoice {
            len,
            size,
            top,
            local,
        };
        Some(functional::choose_blocks(rotated(q), keys, choice))
    }
}
