//! Configuration from metadata.

use burn_gguf::gguf::Gguf;

use crate::decoder::DecoderConfig;
use crate::error::ModelError;

/// `qwen2`: QKV biases, no norm of queries and keys.
///
/// # Errors
/// A missing or contradictory key.
pub fn qwen2_config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    DecoderConfig::read(gguf, "qwen2")
}

/// `qwen3`: queries and keys normalized per head; the head width is a key of its own.
///
/// # Errors
/// A missing or contradictory key.
pub fn qwen3_config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    Ok(DecoderConfig {
        qk_norm: true,
        ..DecoderConfig::read(gguf, "qwen3")?
    })
}
