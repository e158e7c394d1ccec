//! The dense decoder: the architecture of `qwen2`, `qwen3` and `gemma3`.

mod config;
mod model;

pub use config::{DecoderConfig, MetadataReader};
pub use model::DenseDecoder;
