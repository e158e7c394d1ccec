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
    /// An image or video that names no file and has no pixels.
    #[error("message {message}, part {part}: the {kind} has no pixels, path or URL")]
    MissingMedia {
        /// Position of the message.
        message: usize,
        /// Position of the part.
        part: usize,
        /// The part's `type`.
        kind: String,
    },
    /// The prompt has not one place for each image.
    #[error(
        "{template} has {} for image {image} (of {images}); it must have exactly one",
        places(*found)
    )]
    MediaPlaces {
        /// The template, or what else the text came from.
        template: String,
        /// Which image, counted from 1.
        image: usize,
        /// How many images there are.
        images: usize,
        /// Places found.
        found: usize,
    },
    /// A text has more or fewer markers than there are images.
    #[error(
        "the prompt has {found} `{marker}` and there are {images} images; it must have one for each"
    )]
    MarkerCount {
        /// The marker.
        marker: &'static str,
        /// Markers found.
        found: usize,
        /// Images given.
        images: usize,
    },
    /// Parts that are not text or media cannot be rendered.
    #[error("message {message} has a part of type `{kind}`, which cannot be written as text")]
    PartNotText {
        /// Position of the message.
        message: usize,
        /// The part's `type`.
        kind: String,
    },
}

fn places(found: usize) -> String {
    match found {
        0 => "no place".to_owned(),
        n => format!("{n} places"),
    }
}
