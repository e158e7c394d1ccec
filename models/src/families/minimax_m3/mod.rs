//! MiniMax-M3 (`minimax-m3`): attention over the blocks of keys that an indexer chooses, and experts, behind dense layers.

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
