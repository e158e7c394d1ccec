//! Configuration from metadata.

use burn_gguf::gguf::Gguf;

use crate::decoder::DecoderConfig;
use crate::error::ModelError;
use crate::families::experts::softmax_experts;
use crate::layers::QkNorm;

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
        qk_norm: QkNorm::Head,
        ..DecoderConfig::read(gguf, "qwen3")?
    })
}

/// `qwen3moe`: `qwen3` with experts in every layer.
///
/// # Errors
/// A missing or contradictory key.
pub fn qwen3moe_config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let read = DecoderConfig::read(gguf, "qwen3moe")?;
    Ok(DecoderConfig {
        qk_norm: QkNorm::Head,
        moe: Some(softmax_experts(gguf, &read)?),
        ..read
    })
}
