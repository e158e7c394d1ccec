//! Experts from metadata.

use burn_gguf::Arithmetic;
use burn_gguf::gguf::{Gguf, TensorInfo};

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::layers::{Gating, MoeConfig};

/// GGUF tensor names of experts and module paths; `{}` is the layer.
pub const EXPERT_BINDINGS: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp.weight", "layers.{}.moe.router.weight"),
    ("blk.{}.exp_probs_b.bias", "layers.{}.moe.choice_bias"),
    ("blk.{}.ffn_gate_exps.weight", "layers.{}.moe.gate.weight"),
    ("blk.{}.ffn_up_exps.weight", "layers.{}.moe.up.weight"),
    (
        "blk.{}.ffn_gate_up_exps.weight",
        "layers.{}.moe.gate_up.weight",
    ),
    ("blk.{}.ffn_down_exps.weight", "layers.{}.moe.down.weight"),
    (
        "blk.{}.ffn_gate_shexp.weight",
        "layers.{}.moe.shared.gate.weight",
    ),
    (
        "blk.{}.ffn_up_shexp.weight",
        "layers.{}.moe.shared.up.weight",
    ),
    (
        "blk.{}.ffn_down_shexp.weight",
        "layers.{}.moe.shared.down.weight",
    ),
    (
        "blk.{}.ffn_gate_inp_shexp.weight",
        "layers.{}.moe.shared_gate.weight",
    ),
];

/// The experts of `qwen3moe` and its relatives: shares are a softmax, and those of the chosen experts add up to 1 whatever
/// `expert_weights_norm` says.
///
/// # Errors
/// A missing or contradictory key.
pub fn softmax_experts(gguf: &Gguf, model: &DecoderConfig) -> Result<MoeConfig, ModelError> {
    softmax_experts_of(gguf, model, 0)
}

/// As [`softmax_experts`], by the tensors of one layer.
///
/// # Errors
/// A missing or contradictory key.
pub fn softmax_experts_of(
    gguf: &Gguf,
    model: &DecoderConfig,
    layer: usize,
) -> Result<MoeConfig, ModelError> {
    read(gguf, model, Gating::Softmax, layer)
}

/// The experts of `minimax-m2`: shares are sigmoids, the choice among them has a bias, and those chosen add up to 1.
///
/// # Errors
/// A missing or contradictory key.
pub fn sigmoid_experts(gguf: &Gguf, model: &DecoderConfig) -> Result<MoeConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), &model.architecture);
    // 2 is the sigmoid, 0 and absence the family's own.
    let gating: u32 = keys.get_or("expert_gating_func", 2)?;
    if gating != 2 && gating != 0 {
        return Err(keys.invalid(
            "expert_gating_func",
            gating,
            "this family has a sigmoid (2)",
        ));
    }
    Ok(MoeConfig {
        choice_bias: true,
        ..read(gguf, model, Gating::Sigmoid, model.dense_lead)?
    })
}

/// The experts of `qwen35moe` and `qwen3next`: those of [`softmax_experts`] beside a gated MLP of every token, where the file
/// has one.
///
/// # Errors
/// A missing or contradictory key.
pub fn experts_beside_a_shared_one(
    gguf: &Gguf,
    model: &DecoderConfig,
) -> Result<MoeConfig, ModelError> {
    let experts = softmax_experts(gguf, model)?;
    // The width is the tensor's: keys differ between converters.
    Ok(MoeConfig {
        shared: shared_width(gguf),
        shared_gate: any_layer(gguf, "ffn_gate_inp_shexp.weight").is_some(),
        ..experts
    })
}

/// Width of the expert that all tokens share, if any layer has one; a layer that then lacks it is an error of loading.
pub(super) fn shared_width(gguf: &Gguf) -> Option<usize> {
    let shape = any_layer(gguf, "ffn_gate_shexp.weight")?.shape();
    shape.get(1).map(|&width| width as usize)
}

/// The first tensor of that name in any layer.
fn any_layer<'a>(gguf: &'a Gguf, name: &str) -> Option<&'a TensorInfo> {
    gguf.tensors().find(|tensor| {
        let block = tensor.name().strip_prefix("blk.");
        block
            .and_then(|rest| rest.split_once('.'))
            .is_some_and(|(_, part)| part == name)
    })
}

fn read(
    gguf: &Gguf,
    model: &DecoderConfig,
    gating: Gating,
    layer: usize,
) -> Result<MoeConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), &model.architecture);
    let experts: usize = keys.get("expert_count")?;
    let block = |name: &str| format!("blk.{}.{name}.weight", layer);
    let router = gguf.require(&block("ffn_gate_inp"))?;
    if experts == 0 || router.shape().get(1) != Some(&(experts as u64)) {
        let reason = format!("the router's tensor has the shape {:?}", router.shape());
        return Err(keys.invalid("expert_count", experts, &reason));
    }
    let used: usize = keys.get("expert_used_count")?;
    if used == 0 || used > experts {
        let reason = format!("it must be 1 to {experts}, the number of experts");
        return Err(keys.invalid("expert_used_count", used, &reason));
    }
    let fallback = model.intermediate[layer] / used;
    let intermediate: usize = keys.get_or("expert_feed_forward_length", fallback)?;
    let fused_gate_up = gguf.tensor(&block("ffn_gate_up_exps")).is_some();
    // Refused before anything of that size is laid out.
    let widest = gguf.tensors().map(|t| t.n_elements()).max().unwrap_or(0);
    if intermediate == 0 || intermediate as u64 > widest {
        let reason = "no tensor of the file is that wide";
        return Err(keys.invalid("expert_feed_forward_length", intermediate, reason));
    }
    let scale: f32 = keys.get_or("expert_weights_scale", 0.0)?;
    if !scale.is_finite() {
        let reason = "it must be a finite number (0 is none)";
        return Err(keys.invalid("expert_weights_scale", scale, reason));
    }
    Ok(MoeConfig {
        hidden: model.hidden,
        experts,
        used,
        intermediate,
        gating,
        normalize: true,
        scale: if scale == 0.0 { 1.0 } else { scale },
        choice_bias: false,
        shared: None,
        shared_gate: false,
        fused_gate_up,
        activation: model.activation,
        arithmetic: Arithmetic::default(),
    })
}
