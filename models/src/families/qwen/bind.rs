//! Tensors of Qwen models beyond those all dense decoders have.

/// GGUF tensor name and module path; `{}` is the layer.
pub const BINDINGS: &[(&str, &str)] = &[
    ("blk.{}.attn_q.bias", "layers.{}.attention.q.bias"),
    ("blk.{}.attn_k.bias", "layers.{}.attention.k.bias"),
    ("blk.{}.attn_v.bias", "layers.{}.attention.v.bias"),
    (
        "blk.{}.attn_q_norm.weight",
        "layers.{}.attention.q_norm.weight",
    ),
    (
        "blk.{}.attn_k_norm.weight",
        "layers.{}.attention.k_norm.weight",
    ),
];
