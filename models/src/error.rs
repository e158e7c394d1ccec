//! Errors of loading and running models.

use burn_gguf::gguf::GgufError;
use burn_gguf::store::GgufStoreError;

/// What can go wrong with a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file is at fault.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its tensors do not make up the model.
    #[error("{architecture} model: {source}")]
    Store {
        /// `general.architecture`.
        architecture: String,
        /// What is wrong.
        #[source]
        source: Box<GgufStoreError>,
    },
    /// A scale factor that belongs to no weight of the model.
    #[error(
        "{architecture} model: tensor \"{tensor}\" scales no weight of the model; it would compute wrong numbers without it"
    )]
    StrayScale {
        /// `general.architecture`.
        architecture: String,
        /// The tensor.
        tensor: String,
    },
    /// The architecture is not run here.
    #[error("architecture \"{architecture}\" is not supported; supported: {supported}")]
    UnknownArchitecture {
        /// `general.architecture`.
        architecture: String,
        /// What is run, comma separated.
        supported: String,
    },
    /// The file holds a vocabulary only.
    #[error("{file} has no tensors: it is a vocabulary-only file, not a model")]
    NoTensors {
        /// The file.
        file: String,
    },
    /// A metadata value makes no sense.
    #[error("key \"{key}\" is {value}: {reason}")]
    InvalidValue {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The tokenizer cannot be built.
    #[error("{0}")]
    Tokenizer(std::sync::Arc<crate::tokenizer::TokenizerError>),
    /// The mmproj file that was asked for cannot be used.
    #[error(transparent)]
    Vision(Box<crate::vision::VisionError>),
    /// An adapter cannot be applied.
    #[error(transparent)]
    Lora(Box<crate::lora::LoraError>),
    /// The model cannot be spread over devices like that.
    #[error("the model cannot be spread like that: {reason}")]
    Placement {
        /// What is wrong.
        reason: String,
    },
    /// There is nothing to run.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// The rows of an image do not fit the model.
    #[error(
        "the image has {} rows of {} values, the model takes {} rows of {}; its tower belongs to another model",
        found[0], found[1], expected[0], expected[1]
    )]
    ImageShape {
        /// Rows and width there are.
        found: [usize; 2],
        /// Rows and width there should be.
        expected: [usize; 2],
    },
    /// A token the model does not have.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Tokens the model has.
        vocab: usize,
    },
    /// A text is too short to learn from.
    #[error(
        "the text has {tokens} tokens; one chunk takes {chunk}; give more text or a smaller chunk"
    )]
    TooFewTokens {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of a chunk.
        chunk: usize,
    },
    /// A layer's input is infinite or not a number.
    #[error("the input of \"{tensor}\" is not finite; the model or its file is broken")]
    NotFinite {
        /// The weight the input goes to.
        tensor: String,
    },
    /// The context is full.
    #[error(
        "{tokens} tokens after the {used} in the context exceed its {limit}; raise the context or shorten the prompt"
    )]
    ContextFull {
        /// Tokens to add.
        tokens: usize,
        /// Tokens already there.
        used: usize,
        /// Most tokens.
        limit: usize,
    },
}

impl From<crate::lora::LoraError> for ModelError {
    fn from(error: crate::lora::LoraError) -> Self {
        Self::Lora(Box::new(error))
    }
}
