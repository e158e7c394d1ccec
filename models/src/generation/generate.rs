//! Generating text: the loop of model, sampler and decoder as an iterator.

use std::time::Instant;

use super::{GenerationStats, Sampler, SamplingError, SamplingParams, StopChecker, StopReason};
use crate::error::ModelError;
use crate::prompt::Prompt;
use crate::session::{Session, SessionOptions};
use crate::tokenizer::{DecodeStream, Tokenizer, TokenizerError};

/// How text is generated.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// How the next token is chosen.
    pub sampling: SamplingParams,
    /// Most tokens to generate; `None` goes on to the end of the answer or of the context.
    pub max_tokens: Option<usize>,
    /// Strings that end the answer; they are not part of it.
    pub stop_strings: Vec<String>,
    /// Context, chunking and cache of the session made for this.
    pub session: SessionOptions,
}

/// What can stop a generation short.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The sampler.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Chat(#[from] crate::chat::ChatError),
    /// An image, or the model's way of reading images.
    #[error(transparent)]
    Vision(#[from] crate::vision::VisionError),
}

/// One generated token.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its id.
    pub token: u32,
    /// The text it completes: valid UTF-8, empty where a character or a possible stop string is still open.
    pub text: String,
}

/// An iterator over generated tokens. After it ends, [`stop_reason`](Self::stop_reason) and
/// [`stats`](Self::stats) tell why and how fast.
pub struct Generation<'m> {
    session: Session<'m>,
    sampler: Sampler,
    stop: StopChecker,
    decoder: DecodeStream<&'m Tokenizer>,
    // Logits to choose from, or the token to read first.
    logits: Option<Vec<f32>>,
    pending: Option<u32>,
    stats: GenerationStats,
    stopped: Option<StopReason>,
    tokens: Vec<u32>,
}

impl<'m> Generation<'m> {
    /// Reads `prompt`, the whole conversation so far, in `session` and prepares to go on from there. What the session has
    /// read of it already is not read again.
    ///
    /// # Errors
    /// Bad sampling parameters, an empty prompt, or one that does not fit the context.
    pub fn start(
        mut session: Session<'m>,
        tokenizer: &'m Tokenizer,
        prompt: &Prompt,
        options: &GenerateOptions,
    ) -> Result<Self, GenerateError> {
        let special = tokenizer.special();
        let mut sampler =
            Sampler::new(options.sampling.clone())?.with_suppressed(&special.suppressed);
        for token in prompt.tokens() {
            sampler.accept(token);
        }
        let mut stop = StopChecker::for_tokenizer(tokenizer)
            .with_stop_strings(options.stop_strings.iter().cloned());
        if let Some(limit) = options.max_tokens {
            stop = stop.with_max_tokens(limit);
        }
        let mut stats = GenerationStats::default();
        let start = Instant::now();
        let (logits, shared) = session.feed_prompt(prompt)?;
        stats.add_prompt(prompt.len() - shared, start.elapsed());
        let stopped = (options.max_tokens == Some(0)).then_some(StopReason::MaxTokens);
        Ok(Self {
            session,
            sampler,
            stop,
            decoder: DecodeStream::new(tokenizer, false).continuing(),
            logits: Some(logits),
            pending: None,
            stats,
            stopped,
            tokens: Vec::new(),
        })
    }

    /// Why the generation ended; `None` while it goes on.
    pub fn stop_reason(&self) -> Option<&StopReason> {
        self.stopped.as_ref()
    }

    /// Counts and times so far.
    pub fn stats(&self) -> &GenerationStats {
        &self.stats
    }

    /// Tokens generated so far, an end token included.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The seed that makes this generation again.
    pub fn seed(&self) -> u64 {
        self.sampler.seed()
    }

    /// The session that reads and generates.
    pub fn session(&self) -> &Session<'m> {
        &self.session
    }

    /// Ends the generation and hands back the session, for the next turn of a conversation.
    pub fn into_session(self) -> Session<'m> {
        self.session
    }

    fn step(&mut self) -> Result<Piece, GenerateError> {
        let mut logits = match (self.pending.take(), self.logits.take()) {
            (Some(token), _) => {
                let start = Instant::now();
                let logits = self.session.feed(&[token])?;
                self.stats.add_decode(start.elapsed());
                logits
            }
            (None, logits) => logits.unwrap_or_default(),
        };
        let token = self.sampler.sample(&mut logits)?;
        self.tokens.push(token);
        self.stats.generated_tokens += 1;
        let step = self.stop.push(token, &self.decoder.push(token)?);
        let mut text = step.text;
        match step.stop {
            None => {
                self.pending = Some(token);
                // The context has no room for another token.
                if self.session.cache().len() >= self.session.cache().max_len() {
                    self.stopped = Some(StopReason::ContextFull);
                }
            }
            Some(reason) => self.stopped = Some(reason),
        }
        if self.stopped.is_some() {
            self.stop.push_rest(&self.decoder.flush());
            text.push_str(&self.stop.flush());
        }
        Ok(Piece { token, text })
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped.is_some() {
            return None;
        }
        let piece = self.step();
        if piece.is_err() {
            self.stopped = Some(StopReason::Failed);
        }
        Some(piece)
    }
}
