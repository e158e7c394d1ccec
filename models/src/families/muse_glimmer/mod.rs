//! Muse-Glimmer (`muse-glimmer`), the text model.

mod bind;
mod config;

pub use bind::BINDINGS;
pub use config::config;

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
