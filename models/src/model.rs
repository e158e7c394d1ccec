//! What every text model can do.

use burn::tensor::{Device, Int, Tensor};

use crate::layers::{CacheDtype, KvCache, Positions};

/// What a forward pass reads: embedded tokens and images.
#[derive(Clone, Debug)]
pub struct ModelInput {
    /// `[batch, seq, hidden]`.
    pub embeddings: Tensor<3>,
    /// What images add to the residual stream behind each of the first layers (DeepStack), each `[batch, seq, hidden]`
    /// and zero at text; none where there is only text.
    pub deepstack: Vec<Tensor<3>>,
    /// Where the `seq` rows stand.
    pub positions: Positions,
    /// The token of each row, `[batch, seq]`, 0 at rows of images. Models that embed tokens anew in each layer need it.
    pub tokens: Option<Tensor<2, Int>>,
    /// Whether the rows are a whole image, see [`TextModel::reads_images_whole`].
    pub whole_image: bool,
}

impl ModelInput {
    /// Embeddings `[batch, seq, hidden]` at these positions, without anything else.
    pub fn new(embeddings: Tensor<3>, positions: Positions) -> Self {
        Self {
            embeddings,
            deepstack: Vec::new(),
            positions,
            tokens: None,
            whole_image: false,
        }
    }
}

/// How a model counts the positions of an image's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImagePositions {
    /// One after the other, as text.
    #[default]
    Sequential,
    /// By time, row and column (M-RoPE).
    Grid,
}

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

    /// Width of the residual stream.
    fn hidden_size(&self) -> usize;

    /// Width of an image's rows: [`hidden_size`](Self::hidden_size), and as much again for each DeepStack layer.
    fn image_width(&self) -> usize {
        self.hidden_size()
    }

    /// How the rows of an image count.
    fn image_positions(&self) -> ImagePositions {
        ImagePositions::Sequential
    }

    /// Whether the rows of an image see each other in both directions, so that an image is read in a pass of its own,
    /// whatever the chunk size.
    fn reads_images_whole(&self) -> bool {
        false
    }

    /// The embeddings of tokens `[batch, seq]`, as the first layer reads them: `[batch, seq, hidden]`.
    fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3>;

    /// Runs rows that follow what the cache holds, and appends them to it.
    /// Returns f32 logits, `[batch, 1 | seq, vocab]`.
    ///
    /// # Panics
    /// If there are no rows, or the cache is full; [`Session`](crate::Session) checks both.
    fn forward_input(&self, input: ModelInput, cache: &mut KvCache, logits: LogitsOf) -> Tensor<3>;

    /// As [`forward_input`](Self::forward_input) for tokens `[batch, seq]`.
    ///
    /// # Panics
    /// As [`forward_input`](Self::forward_input).
    fn forward(&self, tokens: Tensor<2, Int>, cache: &mut KvCache, logits: LogitsOf) -> Tensor<3> {
        let positions = Positions::run(cache.next_position(), tokens.dims()[1]);
        let mut input = ModelInput::new(self.embed(tokens.clone()), positions);
        input.tokens = Some(tokens);
        self.forward_input(input, cache, logits)
    }

    /// Whether its cache drops some of what was read: recurrences have no rows, sliding windows lose theirs. A
    /// [`Session`](crate::Session) then remembers how to go back to the end of a prompt.
    fn forgets(&self) -> bool {
        false
    }

    /// An empty cache of at most `max_len` positions.
    fn new_cache(&self, max_len: usize, dtype: CacheDtype) -> KvCache {
        KvCache::new(self.cache_layers(), max_len, dtype)
    }
}
