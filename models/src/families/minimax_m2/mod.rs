//! MiniMax-M2 (`minimax-m2`). Its tensors are those of `qwen3moe`, and a bias of the experts' choice.

mod config;

pub use config::config;

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use super::{dense, qwen};
use crate::error::ModelError;
use crate::load::{LoadOptions, LoadReport};
use crate::model::TextModel;

pub(super) fn load(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &config(gguf)?, qwen::BINDINGS, device, options)
}
