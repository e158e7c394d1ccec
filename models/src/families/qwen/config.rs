//! Configuration from metadata.

use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::layers::{Gating, MoeConfig};

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

/// `qwen3moe`: `qwen3` with experts in every layer.
///
/// # Errors
/// A missing or contradictory key.
pub fn qwen3moe_config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let read = DecoderConfig::read(gguf, "qwen3moe")?;
    Ok(DecoderConfig {
        qk_norm: true,
        moe: Some(softmax_experts(gguf, &read)?),
        ..read
    })
}

/// The experts of `qwen3moe` and its relatives: shares are a softmax, and those of the chosen experts add up to 1 whatever
/// `expert_weights_norm` says.
///
/// # Errors
/// A missing or contradictory key.
pub fn softmax_experts(gguf: &Gguf, model: &DecoderConfig) -> Result<MoeConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), &model.architecture);
    let experts: usize = keys.get("expert_count")?;
    let router = gguf.require("blk.0.ffn_gate_inp.weight")?;
    if experts == 0 || router.shape().get(1) != Some(&(experts as u64)) {
        let reason = format!("the router's tensor has the shape {:?}", router.shape());
        return Err(keys.invalid("expert_count", experts, &reason));
    }
    let used: usize = keys.get("expert_used_count")?;
    if used == 0 || used > experts {
        let reason = format!("it must be 1 to {experts}, the number of experts");
        return Err(keys.invalid("expert_used_count", used, &reason));
    }
    let fallback = model.intermediate[0] / used;
    let intermediate: usize = keys.get_or("expert_feed_forward_length", fallback)?;
    let fused_gate_up = gguf.tensor("blk.0.ffn_gate_up_exps.weight").is_some();
    // Refused before anything of that size is laid out.
    let widest = gguf.tensors().map(|t| t.n_elements()).max().unwrap_or(0);
    if intermediate == 0 || intermediate as u64 > widest {
        let reason = "no tensor of the file is that wide";
        return Err(keys.invalid("expert_feed_forward_length", intermediate, reason));
    }
    let scale: f32 = keys.get_or("expert_weights_scale", 0.0)?;
    Ok(MoeConfig {
        hidden: model.hidden,
        experts,
        used,
        intermediate,
        gating: Gating::Softmax,
        normalize: true,
        scale: if scale == 0.0 { 1.0 } else { scale },
        choice_bias: false,
        fused_gate_up,
        activation: model.activation,
        arithmetic: Arithmetic::default(),
    })
}
