//! Tensors of Qwen3.5 and Qwen3-Next beyond those all dense decoders have.

/// GGUF tensor name and module path; `{}` is the layer.
pub const BINDINGS: &[(&str, &str)] = &[
    // The norm before the MLP, which other families call `ffn_norm`.
    (
        "blk.{}.post_attention_norm.weight",
        "layers.{}.mlp_norm.weight",
    ),
    ("blk.{}.attn_qkv.weight", "layers.{}.delta_net.qkv.weight"),
    ("blk.{}.attn_gate.weight", "layers.{}.delta_net.gate.weight"),
    ("blk.{}.ssm_conv1d.weight", "layers.{}.delta_net.conv"),
    ("blk.{}.ssm_a", "layers.{}.delta_net.a"),
    ("blk.{}.ssm_dt.bias", "layers.{}.delta_net.dt"),
    (
        "blk.{}.ssm_alpha.weight",
        "layers.{}.delta_net.alpha.weight",
    ),
    ("blk.{}.ssm_beta.weight", "layers.{}.delta_net.beta.weight"),
    (
        "blk.{}.ssm_ba.weight",
        "layers.{}.delta_net.beta_alpha.weight",
    ),
    ("blk.{}.ssm_norm.weight", "layers.{}.delta_net.norm.weight"),
    ("blk.{}.ssm_out.weight", "layers.{}.delta_net.output.weight"),
];
