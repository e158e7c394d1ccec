//! Running tokens through a model, checked and in chunks.

use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_gguf::gguf::Gguf;

use crate::error::ModelError;
use crate::layers::{CacheDtype, KvCache, Positions};
use crate::lora::LoraFile;
use crate::model::{LogitsOf, ModelInput, TextModel};
use crate::prompt::{Prompt, PromptPart, PromptRow};
use crate::vision::Vision;

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

/// Rows of a prompt behind its checkpoint: what templates put behind the last message is less, and the next turn has it
/// no more.
const BEHIND_CHECKPOINT: usize = 8;
/// Rows to read that are worth a pass more for a checkpoint.
const WORTH_A_CHECKPOINT: usize = 64;

/// The files a model comes from.
#[derive(Clone, Copy)]
pub struct ModelSource<'m> {
    /// Its own.
    pub gguf: &'m Gguf,
    /// The adapters on it.
    pub lora: &'m [LoraFile],
    /// Its eyes.
    pub vision: Option<&'m Vision>,
}

/// A conversation's state: the model and the cache of what it has read.
#[derive(Clone)]
pub struct Session<'m> {
    model: &'m dyn TextModel,
    cache: KvCache,
    chunk: usize,
    // What the cache holds, as far as the cache was not cut.
    history: Vec<PromptRow>,
    // The model's file, to know a saved state by.
    pub(crate) source: Option<ModelSource<'m>>,
}

impl<'m> Session<'m> {
    /// An empty session.
    pub fn new(model: &'m dyn TextModel, options: &SessionOptions) -> Self {
        let context = options.context.unwrap_or(model.context_length());
        Self {
            model,
            cache: model.new_cache(context, options.cache_dtype),
            chunk: options.chunk.max(1),
            history: Vec::new(),
            source: None,
        }
    }

    /// The session of a model from these files: its saved states are told from those of other models.
    #[must_use]
    pub fn with_source(mut self, source: ModelSource<'m>) -> Self {
        self.source = Some(source);
        self
    }

    /// A second session that has read the same; both go on on their own. Memory is shared until one of them writes.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// The model.
    pub fn model(&self) -> &'m dyn TextModel {
        self.model
    }

    /// The cache of what has been read.
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
    /// No tokens, a token outside the vocabulary, or too many for the context. The session is then unchanged.
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

    /// Reads a conversation that starts at its beginning: what the session has read of it already stays, anything else
    /// is forgotten, and the rest is read. Returns the logits after its last row, `[vocab]`, and how many rows were
    /// already there.
    ///
    /// # Errors
    /// As [`feed`](Self::feed), or an image whose rows are not those of the model.
    pub fn feed_prompt(&mut self, prompt: &Prompt) -> Result<(Vec<f32>, usize), ModelError> {
        let shared = self.shared_with(prompt);
        self.feed_rows(prompt, shared, LogitsOf::Last)
    }

    /// Reads a conversation from its beginning and returns the logits after each row, `[prompt.len() * vocab]`.
    ///
    /// # Errors
    /// As [`feed_prompt`](Self::feed_prompt).
    pub fn feed_prompt_all(&mut self, prompt: &Prompt) -> Result<Vec<f32>, ModelError> {
        Ok(self.feed_rows(prompt, 0, LogitsOf::All)?.0)
    }

    /// What the session has read.
    pub fn history(&self) -> &[PromptRow] {
        &self.history[..self.history.len().min(self.cache.len())]
    }

    /// Rows that the session and `prompt` begin with; at least one of the prompt's is left to read.
    fn shared_with(&self, prompt: &Prompt) -> usize {
        let known = self.history().iter();
        let shared = known.zip(prompt.rows()).take_while(|(a, b)| *a == b);
        shared.count().min(prompt.len().saturating_sub(1))
    }

    /// Keeps the first `shared` rows, or fewer where the model cannot go on from there, and reads the others. Returns the
    /// logits and how many rows were kept.
    fn feed_rows(
        &mut self,
        prompt: &Prompt,
        shared: usize,
        logits: LogitsOf,
    ) -> Result<(Vec<f32>, usize), ModelError> {
        let width = self.model.image_width();
        for part in prompt.parts() {
            match part {
                PromptPart::Tokens(tokens) => self.check_vocabulary(tokens)?,
                PromptPart::Image(image) => {
                    let [rows, found] = image.embeddings.dims();
                    if found != width || rows != image.grid.len() {
                        return Err(ModelError::ImageShape {
                            found: [rows, found],
                            expected: [image.grid.len(), width],
                        });
                    }
                }
            }
        }
        if prompt.is_empty() {
            return Err(ModelError::EmptyPrompt);
        }
        if prompt.len() > self.cache.max_len() {
            return Err(ModelError::ContextFull {
                tokens: prompt.len() - shared,
                used: shared,
                limit: self.cache.max_len(),
            });
        }
        let shared = self.cut_back(prompt, shared);
        self.history.truncate(shared);
        let positions = prompt.positions(self.model.image_positions(), 0);
        let mut all = Vec::new();
        let mut from = shared;
        let checkpoint = self.checkpoint_of(prompt, shared);
        while from < prompt.len() {
            let (mut to, whole_image) = self.chunk_end(prompt, from);
            if let Some(at) = checkpoint.filter(|&at| !whole_image && from < at && at < to) {
                to = at;
            }
            let mut input = self.input(prompt, from, to, positions.slice(from, to));
            input.whole_image = whole_image;
            let chunk = self.model.forward_input(input, &mut self.cache, logits);
            if logits == LogitsOf::All || to == prompt.len() {
                all.extend(values(chunk));
            }
            if checkpoint == Some(to) {
                self.cache.checkpoint();
            }
            from = to;
        }
        self.history.extend(prompt.rows().skip(shared));
        Ok((all, shared))
    }

    /// Cuts the cache to `shared` rows, or to fewer: a recurrence starts again, an image that is read whole is not kept
    /// in part.
    fn cut_back(&mut self, prompt: &Prompt, shared: usize) -> usize {
        let mut shared = self.cache.truncate(shared);
        if self.model.reads_images_whole() {
            while let Some(image) = prompt.image_from(shared).filter(|i| i.start < shared) {
                shared = self.cache.truncate(image.start);
            }
        }
        shared
    }

    /// Where the pass that starts at row `from` ends, and whether it is a whole image.
    fn chunk_end(&self, prompt: &Prompt, from: usize) -> (usize, bool) {
        let to = prompt.len().min(from.saturating_add(self.chunk));
        if !self.model.reads_images_whole() {
            return (to, false);
        }
        match prompt.image_from(from) {
            Some(image) if image.start == from => (image.end, true),
            Some(image) => (to.min(image.start), false),
            None => (to, false),
        }
    }

    /// Where to take a checkpoint in a prompt of which `shared` rows are there, if at all.
    fn checkpoint_of(&self, prompt: &Prompt, shared: usize) -> Option<usize> {
        let rows = prompt.len() - shared;
        (self.model.forgets() && rows >= WORTH_A_CHECKPOINT)
            .then(|| prompt.len() - BEHIND_CHECKPOINT)
    }

    /// The cache and what it holds.
    pub(crate) fn state(&self) -> (&KvCache, &[PromptRow]) {
        (&self.cache, self.history())
    }

    /// Goes on from another cache.
    pub(crate) fn set_state(&mut self, cache: KvCache, history: Vec<PromptRow>) {
        (self.cache, self.history) = (cache, history);
    }

    /// The rows `from..to` of a prompt, embedded.
    fn input(&self, prompt: &Prompt, from: usize, to: usize, positions: Positions) -> ModelInput {
        let hidden = self.model.hidden_size();
        let layers = self.model.image_width() / hidden;
        let pieces = prompt.pieces(from, to);
        let images = pieces
            .iter()
            .any(|(part, ..)| matches!(part, PromptPart::Image(_)));
        // Slice 0 of an image's rows is its embedding, the others are DeepStack's.
        let mut slices: Vec<Vec<Tensor<3>>> = vec![Vec::new(); if images { layers } else { 1 }];
        let mut ids = vec![0; to - from];
        let mut row = 0;
        for (part, a, b) in pieces {
            if let PromptPart::Tokens(tokens) = part {
                ids[row..row + b - a].copy_from_slice(&tokens[a..b]);
            }
            row += b - a;
            for (i, slice) in slices.iter_mut().enumerate() {
                slice.push(match part {
                    PromptPart::Image(image) => image
                        .embeddings
                        .clone()
                        .slice([a..b, i * hidden..(i + 1) * hidden])
                        .reshape([1, b - a, hidden]),
                    PromptPart::Tokens(tokens) if i == 0 => {
                        self.model.embed(self.ids(&tokens[a..b]))
                    }
                    PromptPart::Tokens(_) => {
                        Tensor::zeros([1, b - a, hidden], (&self.model.device(), DType::F32))
                    }
                });
            }
        }
        let mut slices = slices.into_iter().map(|mut parts| match parts.len() {
            1 => parts.remove(0),
            _ => Tensor::cat(parts, 1),
        });
        let embeddings = slices.next().expect("there is always a first slice");
        ModelInput {
            deepstack: slices.collect(),
            tokens: Some(self.ids(&ids)),
            ..ModelInput::new(embeddings, positions)
        }
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
        self.check_vocabulary(tokens)?;
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

    fn check_vocabulary(&self, tokens: &[u32]) -> Result<(), ModelError> {
        let vocab = self.model.vocab_size();
        match tokens.iter().find(|&&t| t as usize >= vocab) {
            Some(&token) => Err(ModelError::TokenOutOfRange { token, vocab }),
            None => Ok(()),
        }
    }

    fn ids(&self, tokens: &[u32]) -> Tensor<2, Int> {
        let ids: Vec<i32> = tokens.iter().map(|&t| t as i32).collect();
        let data = TensorData::new(ids, [1, tokens.len()]);
        Tensor::from_data(data, (&self.model.device(), DType::I32))
    }

    fn run(&mut self, tokens: &[u32], logits: LogitsOf) -> Tensor<3> {
        // Whoever cut the cache cut the history.
        self.history.truncate(self.cache.len());
        self.history
            .extend(tokens.iter().map(|&token| PromptRow::Token(token)));
        self.model
            .forward(self.ids(tokens), &mut self.cache, logits)
    }
}

/// Logits on the host.
fn values(logits: Tensor<3>) -> Vec<f32> {
    let data = logits.into_data();
    data.convert::<f32>()
        .try_into_vec::<f32>()
        .expect("converted to f32 just now")
}
