//! What every text model can do.

use burn::tensor::{Device, Int, Tensor};

use crate::layers::{CacheDtype, KvCache};

/// Which positions' logits a forward pass returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsOf {
    /// The last position only: `[batch, 1, vocab]`.
    Last,
    /// Every position: `[batch, seq, vocab]`.
    All,
}

/// A causal language model over token ids.
pub trait TextModel: Send + Sync {
    /// `general.architecture` of the file.
    fn architecture(&self) -> &str;

    /// Width of the logits.
    fn vocab_size(&self) -> usize;

    /// Positions the model was made for.
    fn context_length(&self) -> usize;

    /// Layers that keep a cache.
    fn cache_layers(&self) -> usize;

    /// Number of weights.
    fn parameters(&self) -> usize;

    /// The device the model runs on.
    fn device(&self) -> Device;

    /// Runs tokens `[batch, seq]` that follow what the cache holds, and appends them to it.
    /// Returns f32 logits, `[batch, 1 | seq, vocab]`.
    ///
    /// # Panics
    /// If there are no tokens, or the cache is full; [`Session`](crate::Session) checks both.
    fn forward(&self, tokens: Tensor<2, Int>, cache: &mut KvCache, logits: LogitsOf) -> Tensor<3>;

    /// An empty cache of at most `max_len` positions.
    fn new_cache(&self, max_len: usize, dtype: CacheDtype) -> KvCache {
        KvCache::new(self.cache_layers(), max_len, dtype)
    }
}
