//! Low-rank adapters (LoRA) as GGUF files: applied to packed weights while the model runs, trained, and saved.

mod error;
mod read;
mod save;

use std::path::PathBuf;

pub use error::LoraError;
pub(crate) use read::attach;
pub use save::save_lora;

/// An adapter file to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraFile {
    /// The GGUF file.
    pub path: PathBuf,
    /// Factor on what it adds; 1 is as trained.
    pub scale: f32,
}

impl LoraFile {
    /// The file as trained.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            scale: 1.0,
        }
    }
}

/// Suffix of the tensor `[rank, d_input]` of a weight's adapter.
const A: &str = ".lora_a";
/// Suffix of the tensor `[d_output, rank]`.
const B: &str = ".lora_b";
const TYPE_KEY: &str = "general.type";
const ADAPTER_TYPE_KEY: &str = "adapter.type";
const ALPHA_KEY: &str = "adapter.lora.alpha";
/// Tokens after which an activated adapter sets in.
const INVOCATION_KEY: &str = "adapter.alora.invocation_tokens";
