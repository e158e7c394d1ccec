//! Text model families as [Burn](https://burn.dev) modules fed from GGUF files.
//!
//! ```no_run
//! use burn::tensor::Device;
//! use burn_gguf_models::chat::{Chat, Message};
//! use burn_gguf_models::generation::SamplingParams;
//! use burn_gguf_models::{AutoModel, GenerateOptions};
//!
//! let model = AutoModel::open("model.gguf", &Device::flex())?;
//! let prompt = model.chat_prompt(&Chat::new().with(Message::user("Name three rivers.")))?;
//! let options = GenerateOptions { max_tokens: Some(64), sampling: SamplingParams::greedy(), ..Default::default() };
//! for piece in model.generate(prompt, options)? {
//!     print!("{}", piece?.text);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod auto;
pub mod chat;
pub mod decoder;
pub mod demo;
mod error;
pub mod families;
mod fingerprint;
pub mod generation;
mod imatrix;
pub mod layers;
mod load;
pub mod lora;
mod model;
mod multimodal;
mod placement;
mod prompt;
mod session;
mod state;
pub mod tokenizer;
pub mod vision;

pub use auto::AutoModel;
pub use error::ModelError;
pub use generation::{GenerateOptions, Generation};
pub use imatrix::{Imatrix, ImatrixEntry, ImatrixOptions};
pub use load::{LoadOptions, LoadReport, ProgressFn};
pub use model::{ImagePositions, LogitsOf, ModelInput, TextModel};
pub use multimodal::{MEDIA_MARKER, MediaRows};
pub use placement::{Placement, PlacementOptions};
pub use prompt::{ImageRows, Prompt, PromptPart, PromptRow};
pub use session::{ModelSource, Session, SessionOptions};
pub use state::StateError;
