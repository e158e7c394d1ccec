//! Qwen3-VL (`qwen3vl`, `qwen3vlmoe`): the text model, which reads images of the `qwen3vl_merger` tower.
//!
//! Its tensors are those of `qwen3` and `qwen3moe`.

mod config;

pub use config::{config, moe_config};

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use super::{dense, qwen};
use crate::decoder::DenseDecoder;
use crate::error::ModelError;
use crate::load::{LoadOptions, LoadReport};
use crate::model::TextModel;

/// The text model as a module, for example to train it.
///
/// # Errors
/// Keys or tensors that do not make up the model.
pub fn load_text(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(DenseDecoder, LoadReport), ModelError> {
    dense::load_decoder(gguf, &config(gguf)?, qwen::BINDINGS, device, options)
}

/// GGUF tensor names and module paths of the text model, to save it; `{}` is the layer.
pub fn bindings() -> [&'static [(&'static str, &'static str)]; 2] {
    [dense::SHARED_BINDINGS, qwen::BINDINGS]
}

pub(super) fn load(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    let (model, report) = load_text(gguf, device, options)?;
    Ok((Box::new(model), report))
}

pub(super) fn load_moe(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    dense::load(gguf, &moe_config(gguf)?, qwen::BINDINGS, device, options)
}
