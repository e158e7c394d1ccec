//! Qwen3.5, 3.6 and 3.8 (`qwen35`, `qwen35moe`) and Qwen3-Next (`qwen3next`): delta nets beside gated attention.

mod bind;
mod config;

pub use bind::BINDINGS;
pub use config::{config, moe_config, next_config};

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use super::dense;
use crate::error::ModelError;
use crate::load::{LoadOptions, LoadReport};
use crate::model::TextModel;

pub(super) fn load(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &config(gguf)?, BINDINGS, device, options)
}

pub(super) fn load_moe(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &moe_config(gguf)?, BINDINGS, device, options)
}

pub(super) fn load_next(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &next_config(gguf)?, BINDINGS, device, options)
}
