//! Low-rank adapters (LoRA) as GGUF files: applied to packed weights while the model runs, trained, and saved.
//!
//! ```no_run
//! use burn::module::Module;
//! use burn::tensor::Device;
//! use burn_gguf::gguf::Gguf;
//! use burn_gguf::nn::{LoraWeights, attach_lora};
//! use burn_gguf_models::LoadOptions;
//! use burn_gguf_models::families::qwen3vl;
//! use burn_gguf_models::lora::save_lora;
//!
//! let device = Device::flex();
//! let gguf = Gguf::open("model.gguf")?;
//! let (model, report) = qwen3vl::load_text(&gguf, &device, LoadOptions::default())?;
//! // Norms stay as they are; only adapters train.
//! let model = attach_lora(model.no_grad(), |layer| {
//!     let wanted = layer.path.contains("attention");
//!     Ok::<_, std::io::Error>(wanted.then(|| LoraWeights::initial(layer, 16, 32.0, &device)))
//! })?
//! .train();
//! // ... a training loop of Burn's ...
//! save_lora("adapter.gguf", &model.valid(), "qwen3vl", &report.weights)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
