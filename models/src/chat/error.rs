//! What can go wrong between messages and a prompt.

use std::fmt;

use burn_gguf::gguf::GgufError;

/// Where in a template something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Metadata key of the template, or the name it was given.
    pub template: String,
    /// Line, counted from 1, where known.
    pub line: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}, line {line}", self.template),
            None => out.write_str(&self.template),
        }
    }
}

/// Why a chat could not be rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A template key has a type that does not fit.
    #[error("chat template metadata: {0}")]
    Metadata(#[from] GgufError),
    /// The file has no chat template: it is a base model.
    #[error(
        "the file has no chat template (`tokenizer.chat_template`), so it has no notion of a conversation; \
         give it the prompt as it is (`--raw` on the command line)"
    )]
    NoTemplate,
    /// There are templates, but none of this name.
    #[error("the file has no chat template named `{name}` (it has: {})", available.join(", "))]
    UnknownVariant {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
    /// The template is not valid Jinja, or uses something that is not supported.
    #[error("chat template {at}: {message}")]
    Syntax {
        /// Where.
        at: Location,
        /// What is wrong.
        message: String,
    },
    /// The template itself refused the conversation with `raise_exception`.
    #[error("chat template {at} refuses the conversation: {message}")]
    Raised {
        /// Where.
        at: Location,
        /// The template's own words.
        message: String,
    },
    /// The template took more steps than any conversation needs.
    #[error("chat template {at}: stopped after {steps} steps, it does not seem to end")]
    Runaway {
        /// Where.
        at: Location,
        /// Number of steps allowed.
        steps: u64,
    },
    /// An operation failed while rendering.
    #[error("chat template {at}: {message}")]
    Render {
        /// Where.
        at: Location,
        /// What failed.
        message: String,
    },
    /// Parts that are not text have to become placeholders before they are flattened.
    #[error("message {message} has a part of type `{kind}`, which cannot be written as text")]
    PartNotText {
        /// Position of the message.
        message: usize,
        /// The part's `type`.
        kind: String,
    },
}
