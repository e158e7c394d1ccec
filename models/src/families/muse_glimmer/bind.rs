//! Tensors of Muse-Glimmer beyond those all dense decoders have.

/// GGUF tensor name and module path; `{}` is the layer.
pub const BINDINGS: &[(&str, &str)] = &[
    ("blk.{}.attn_gate.weight", "layers.{}.attention.gate.weight"),
    (
        "blk.{}.post_attention_norm.weight",
        "layers.{}.post_attention_norm.weight",
    ),
    (
        "blk.{}.post_ffw_norm.weight",
        "layers.{}.post_mlp_norm.weight",
    ),
];
