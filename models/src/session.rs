//! Running tokens through a model, checked and in chunks.

use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::error::ModelError;
use crate::layers::{CacheDtype, KvCache};
use crate::model::{LogitsOf, TextModel};

/// Options of a [`Session`].
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Most positions; `None` takes the model's own context.
    pub context: Option<usize>,
    /// Tokens in one forward pass of a prompt.
    pub chunk: usize,
    /// Element type of the key/value cache.
    pub cache_dtype: CacheDtype,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            context: None,
            chunk: 512,
            cache_dtype: CacheDtype::default(),
        }
    }
}

/// A conversation's state: the model and the cache of what it has read.
pub struct Session<'m> {
    model: &'m dyn TextModel,
    cache: KvCache,
    chunk: usize,
}

impl<'m> Session<'m> {
    /// An empty session.
    pub fn new(model: &'m dyn TextModel, options: &SessionOptions) -> Self {
        let context = options.context.unwrap_or(model.context_length());
        Self {
            model,
            cache: model.new_cache(context, options.cache_dtype),
            chunk: options.chunk.max(1),
        }
    }

    /// The model.
    pub fn model(&self) -> &'m dyn TextModel {
        self.model
    }

    /// The cache.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// The cache, to truncate or reset it.
    pub fn cache_mut(&mut self) -> &mut KvCache {
        &mut self.cache
    }

    /// Reads tokens and returns the logits after the last one, `[vocab]`.
    ///
    /// # Errors
    /// No tokens, a token outside the vocabulary, or too many for the context. The cache is then unchanged.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        self.check(tokens)?;
        let mut last = Vec::new();
        let chunks = tokens.len().div_ceil(self.chunk);
        for (i, chunk) in tokens.chunks(self.chunk).enumerate() {
            let logits = self.run(chunk, LogitsOf::Last);
            if i + 1 == chunks {
                last = values(logits);
            }
        }
        Ok(last)
    }

    /// Reads tokens and returns the logits after each, row by row `[tokens.len() * vocab]`.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub fn feed_all(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        self.check(tokens)?;
        let mut all = Vec::with_capacity(tokens.len() * self.model.vocab_size());
        for chunk in tokens.chunks(self.chunk) {
            all.extend(values(self.run(chunk, LogitsOf::All)));
        }
        Ok(all)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), ModelError> {
        if tokens.is_empty() {
            return Err(ModelError::EmptyPrompt);
        }
        let vocab = self.model.vocab_size();
        if let Some(&token) = tokens.iter().find(|&&t| t as usize >= vocab) {
            return Err(ModelError::TokenOutOfRange { token, vocab });
        }
        let (used, limit) = (self.cache.len(), self.cache.max_len());
        if used + tokens.len() > limit {
            return Err(ModelError::ContextFull {
                tokens: tokens.len(),
                used,
                limit,
            });
        }
        Ok(())
    }

    fn run(&mut self, tokens: &[u32], logits: LogitsOf) -> Tensor<3> {
        let ids: Vec<i32> = tokens.iter().map(|&t| t as i32).collect();
        let data = TensorData::new(ids, [1, tokens.len()]);
        let device = self.model.device();
        let ids = Tensor::<2, Int>::from_data(data, (&device, DType::I32));
        self.model.forward(ids, &mut self.cache, logits)
    }
}

/// Logits on the host.
fn values(logits: Tensor<3>) -> Vec<f32> {
    let data = logits.into_data();
    data.convert::<f32>()
        .try_into_vec::<f32>()
        .expect("converted to f32 just now")
}
