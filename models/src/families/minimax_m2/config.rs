//! Configuration from metadata.

use burn_gguf::gguf::Gguf;

use crate::decoder::DecoderConfig;
use crate::error::ModelError;
use crate::families::experts::sigmoid_experts;
use crate::layers::QkNorm;

/// `minimax-m2`: queries and keys normalized over all heads together, a part of each head rotating, experts in every layer.
///
/// # Errors
/// A missing or contradictory key.
pub fn config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let read = DecoderConfig::read(gguf, "minimax-m2")?;
    // There is no tied form of this family.
    gguf.require("output.weight")?;
    Ok(DecoderConfig {
        qk_norm: QkNorm::Token,
        moe: Some(sigmoid_experts(gguf, &read)?),
        ..read
    })
}
