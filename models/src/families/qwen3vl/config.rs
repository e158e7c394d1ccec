//! Configuration from metadata.

use burn_gguf::gguf::Gguf;

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::families::experts::softmax_experts;
use crate::layers::QkNorm;

/// `qwen3vl`: `qwen3` with rotary positions of three axes, and images that add to the first layers.
///
/// # Errors
/// A missing or contradictory key.
pub fn config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    read(gguf, "qwen3vl")
}

/// `qwen3vlmoe`: the same with experts in every layer.
///
/// # Errors
/// A missing or contradictory key.
pub fn moe_config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let config = read(gguf, "qwen3vlmoe")?;
    Ok(DecoderConfig {
        moe: Some(softmax_experts(gguf, &config)?),
        ..config
    })
}

fn read(gguf: &Gguf, architecture: &str) -> Result<DecoderConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), architecture);
    let mut config = DecoderConfig::read(gguf, architecture)?;
    config.qk_norm = QkNorm::Head;
    let sections = keys.rope_sections(config.rope.n_rot)?;
    config.rope.sections = Some(sections);
    config.rope_sliding.sections = Some(sections);
    // Files that hold their tower (Ollama's) list its layers instead.
    let listed: Vec<i64> = keys.get_or("vision.deepstack_visual_indexes", Vec::new())?;
    config.deepstack = keys.get_or("n_deepstack_layers", listed.len())?;
    if config.deepstack > config.layers() {
        return Err(keys.invalid(
            "n_deepstack_layers",
            config.deepstack,
            "the model has fewer layers than that",
        ));
    }
    Ok(config)
}
