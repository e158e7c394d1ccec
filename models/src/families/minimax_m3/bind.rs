//! Tensors of MiniMax-M3 beyond those all dense decoders have.

/// GGUF tensor name and module path; `{}` is the layer.
pub const BINDINGS: &[(&str, &str)] = &[
    (
        "blk.{}.indexer.q_proj.weight",
        "layers.{}.attention.indexer.q.weight",
    ),
    (
        "blk.{}.indexer.k_proj.weight",
        "layers.{}.attention.indexer.k.weight",
    ),
    (
        "blk.{}.indexer.q_norm.weight",
        "layers.{}.attention.indexer.q_norm.weight",
    ),
    (
        "blk.{}.indexer.k_norm.weight",
        "layers.{}.attention.indexer.k_norm.weight",
    ),
];
