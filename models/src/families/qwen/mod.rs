//! Qwen2 / Qwen2.5 (`qwen2`) and Qwen3 (`qwen3`, `qwen3moe`) text models.

mod bind;
mod config;

pub use bind::BINDINGS;
pub use config::{qwen2_config, qwen3_config, qwen3moe_config};

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use super::dense;
use crate::error::ModelError;
use crate::load::{LoadOptions, LoadReport};
use crate::model::TextModel;

pub(super) fn load_qwen2(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &qwen2_config(gguf)?, BINDINGS, device, options)
}

pub(super) fn load_qwen3(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &qwen3_config(gguf)?, BINDINGS, device, options)
}

pub(super) fn load_qwen3moe(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &qwen3moe_config(gguf)?, BINDINGS, device, options)
}
