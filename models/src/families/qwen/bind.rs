//! Tensors of Qwen models beyond those all dense decoders have.

/// GGUF tensor name and module path; `{}` is the layer.
pub const BINDINGS: &[(&str, &str)] = &[
    ("blk.{}.attn_q.bias", "layers.{}.attention.q.bias"),
    ("blk.{}.attn_k.bias", "layers.{}.attention.k.bias"),
    ("blk.{}.attn_v.bias", "layers.{}.attention.v.bias"),
];
