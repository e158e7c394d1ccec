//! What can go wrong between a GGUF file's tokenizer keys and token ids.

use burn_gguf::gguf::GgufError;

/// Why a tokenizer could not be built or a text not be encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A tokenizer key is missing or has a type that does not fit.
    #[error("tokenizer metadata: {0}")]
    Metadata(#[from] GgufError),
    /// The file carries no vocabulary at all.
    #[error(
        "the file has no tokenizer (`tokenizer.ggml.model` is {0}); only token ids can be given to this model"
    )]
    NoTokenizer(String),
    /// `tokenizer.ggml.model` names an algorithm that is not implemented.
    #[error(
        "`tokenizer.ggml.model` is `{0}`, which is not supported (supported: {supported}); \
         give a Hugging Face tokenizer.json with `Tokenizer::from_json`",
        supported = super::SUPPORTED_MODELS.join(", ")
    )]
    UnsupportedModel(String),
    /// A BPE vocabulary without `tokenizer.ggml.pre`: the rule for splitting text into words is
    /// not known, and a guess would silently give wrong ids.
    #[error(
        "`tokenizer.ggml.pre` is missing, so the way this BPE vocabulary splits text is unknown; name it with \
         `Tokenizer::from_metadata_with_pre`, or give a Hugging Face tokenizer.json with `Tokenizer::from_json`"
    )]
    MissingPre,
    /// `tokenizer.ggml.pre` names a rule that is not implemented.
    #[error(
        "`tokenizer.ggml.pre` is `{0}`, an unknown pre-tokenizer; name one that splits alike with \
         `Tokenizer::from_metadata_with_pre`, or give a Hugging Face tokenizer.json with `Tokenizer::from_json`"
    )]
    UnknownPre(String),
    /// `tokenizer.ggml.tokens` is empty.
    #[error("`tokenizer.ggml.tokens` is empty")]
    EmptyVocabulary,
    /// Two ids with the same text.
    #[error("`tokenizer.ggml.tokens`: the tokens {first} and {second} have the same text `{text}`")]
    DuplicateToken {
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
        /// The text both have.
        text: String,
    },
    /// An array that runs parallel to the tokens is shorter than they are.
    #[error("`{key}` has {len} entries for {tokens} tokens")]
    ShortArray {
        /// Metadata key.
        key: &'static str,
        /// Its length.
        len: usize,
        /// Length of `tokenizer.ggml.tokens`.
        tokens: usize,
    },
    /// A merge line that is not two parts separated by a space.
    #[error("`tokenizer.ggml.merges`: entry {index}, `{merge}`, is not `left right`")]
    MalformedMerge {
        /// Position in the list.
        index: usize,
        /// The line.
        merge: String,
    },
    /// A merge of, or to, something that is no token.
    #[error(
        "`tokenizer.ggml.merges`: entry {index}, `{merge}`, needs the token `{token}`, which is not in the vocabulary"
    )]
    MergeNotInVocabulary {
        /// Position in the list.
        index: usize,
        /// The line.
        merge: String,
        /// What is missing.
        token: String,
    },
    /// A tokenizer.json could not be read.
    #[error("tokenizer.json: {0}")]
    Json(String),
    /// The tokenizer.json has another vocabulary than the model file.
    #[error(
        "tokenizer.json does not belong to this model: token {id} is `{json}` there and `{gguf}` in the file"
    )]
    JsonMismatch {
        /// First id that differs.
        id: u32,
        /// Its text in tokenizer.json.
        json: String,
        /// Its text in the GGUF file.
        gguf: String,
    },
    /// The tokenizer refused a text.
    #[error("cannot encode the text: {0}")]
    Encode(String),
    /// An id outside of the vocabulary.
    #[error("token id {id} is outside of the vocabulary of {size}")]
    UnknownId {
        /// The id.
        id: u32,
        /// Vocabulary size.
        size: usize,
    },
}
