//! Gemma 4 (`gemma4`): layers of two kinds, which differ in width, heads and rotation; experts beside the MLP, embeddings
//! of each layer's own, or layers that share keys and values, by model.

mod bind;
mod config;
mod layer;
mod model;
mod per_layer;

pub use bind::BINDINGS;
pub use config::{Gemma4Config, Gemma4LayerConfig, config};
pub use layer::{ExpertNorms, Gemma4Layer};
pub use model::Gemma4Decoder;
pub use per_layer::{PerLayerEmbeddings, PerLayerInput};

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use super::dense::{self, SHARED_BINDINGS};
use super::experts::EXPERT_BINDINGS;
use crate::error::ModelError;
use crate::load::{LoadOptions, LoadReport, load_module};
use crate::model::TextModel;
use crate::placement::Placement;

pub(super) fn load(
    gguf: &Gguf,
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    let (model, report) = load_decoder(gguf, config(gguf)?, device, options)?;
    Ok((Box::new(model), report))
}

/// Builds the module of `config` on `device` and fills it from the file.
///
/// # Errors
/// Tensors that do not make up the model, or devices it cannot be spread over.
pub fn load_decoder(
    gguf: &Gguf,
    config: Gemma4Config,
    device: &Device,
    options: LoadOptions,
) -> Result<(Gemma4Decoder, LoadReport), ModelError> {
    let placement = Placement::plan(gguf, config.layers.len(), device, &options.placement)?;
    let model = Gemma4Decoder::placed(&config, options.arithmetic, &placement);
    let tables: &[&[_]] = &[SHARED_BINDINGS, EXPERT_BINDINGS, BINDINGS];
    let (model, mut report) = load_module(gguf, model, tables, options)?;
    // Read with the configuration.
    report.unused.retain(|name| name != config::ROPE_FREQS);
    dense::set_aside(&mut report, config.layers.len());
    Ok((model, report))
}
