//! Errors of adapters.

use burn_gguf::LoadError;
use burn_gguf::gguf::{FileName, GgufError};

/// What can go wrong with an adapter.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    /// The file is at fault, or cannot be written.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A tensor cannot be read.
    #[error("{file}: {source}")]
    Tensor {
        /// The adapter file.
        file: FileName,
        /// What is wrong.
        source: Box<LoadError>,
    },
    /// The file holds something else.
    #[error("{file} is no low-rank adapter: key \"{key}\" is \"{value}\", expected \"{expected}\"")]
    NotAnAdapter {
        /// The file.
        file: FileName,
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What an adapter has.
        expected: &'static str,
    },
    /// An adapter that sets in after certain tokens.
    #[error("{file} is an activated adapter (\"{key}\"), which is not supported")]
    Activated {
        /// The file.
        file: FileName,
        /// The key that says so.
        key: &'static str,
    },
    /// The adapter was made for another architecture.
    #[error("{file} adapts \"{found}\" models, this is a \"{expected}\" model")]
    OtherArchitecture {
        /// The file.
        file: FileName,
        /// The adapter's `general.architecture`.
        found: String,
        /// The model's.
        expected: String,
    },
    /// A number that scales nothing sensibly.
    #[error("{file}: the {what} is {value}; it must be a finite number")]
    Scale {
        /// The file.
        file: FileName,
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f32,
    },
    /// The file adapts nothing.
    #[error("{file} has no adapter in it")]
    Empty {
        /// The file.
        file: FileName,
    },
    /// Numbers that make every logit infinite or none.
    #[error(
        "{file}: the adapter of \"{weight}\" or its scale is infinite or not a number; ask for a smaller scale, or train it again"
    )]
    NotFinite {
        /// The file.
        file: FileName,
        /// The weight's name.
        weight: String,
    },
    /// A tensor that is no half of an adapter.
    #[error(
        "{file}: tensor \"{tensor}\" is no \".lora_a\" or \".lora_b\" matrix; without it the adapter would compute something else"
    )]
    UnknownTensor {
        /// The file.
        file: FileName,
        /// The tensor.
        tensor: String,
    },
    /// One half of an adapter.
    #[error("{file} has \"{found}\" without its other half")]
    Unpaired {
        /// The file.
        file: FileName,
        /// The tensor there is.
        found: String,
    },
    /// A weight that takes no adapter.
    #[error(
        "{file} adapts \"{weight}\", which is no linear layer of this model (embeddings and stacked experts take no adapters)"
    )]
    NoTarget {
        /// The file.
        file: FileName,
        /// The weight's name.
        weight: String,
    },
    /// Matrices that do not fit each other or their weight.
    #[error(
        "{file}: the adapter of \"{weight}\" is {shapes} (contiguous dimension first), its weight takes {d_input} values and gives {d_output}"
    )]
    Shape {
        /// The file.
        file: FileName,
        /// The weight's name.
        weight: String,
        /// Dimensions of the `.lora_a` and the `.lora_b` tensor.
        shapes: String,
        /// Width of the weight's input.
        d_input: usize,
        /// Width of its output.
        d_output: usize,
    },
    /// The module has none.
    #[error("the module has no adapters to save; add them with burn_gguf::nn::attach_lora")]
    NothingToSave,
    /// Adapters of different strength in one file.
    #[error(
        "the adapter of \"{weight}\" has alpha {found}, another one {first}; a file has one for all"
    )]
    Alphas {
        /// A weight's name.
        weight: String,
        /// `scale * rank` of its adapter.
        found: f32,
        /// `scale * rank` of the first.
        first: f32,
    },
    /// A layer has several, and a file holds one.
    #[error("\"{weight}\" has more than one adapter; a file holds one")]
    Several {
        /// The weight's name.
        weight: String,
    },
    /// The adapter's weight has no name.
    #[error("the weight of \"{path}\" is not one of those the model was loaded from")]
    Unnamed {
        /// The layer's path.
        path: String,
    },
}
