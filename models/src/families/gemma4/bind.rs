//! Tensors of Gemma 4 beyond those all dense decoders have.

/// GGUF tensor name and module path; `{}` is the layer.
pub const BINDINGS: &[(&str, &str)] = &[
    (
        "blk.{}.post_attention_norm.weight",
        "layers.{}.post_attention_norm.weight",
    ),
    (
        "blk.{}.post_ffw_norm.weight",
        "layers.{}.post_mlp_norm.weight",
    ),
    // A weight over the router's input, no factor of the router's.
    (
        "blk.{}.ffn_gate_inp.scale",
        "layers.{}.expert_norms.router.weight",
    ),
    (
        "blk.{}.pre_ffw_norm_2.weight",
        "layers.{}.expert_norms.input.weight",
    ),
    (
        "blk.{}.post_ffw_norm_1.weight",
        "layers.{}.expert_norms.mlp.weight",
    ),
    (
        "blk.{}.post_ffw_norm_2.weight",
        "layers.{}.expert_norms.output.weight",
    ),
    ("blk.{}.layer_output_scale.weight", "layers.{}.output_scale"),
    ("blk.{}.inp_gate.weight", "layers.{}.per_layer.gate.weight"),
    (
        "blk.{}.proj.weight",
        "layers.{}.per_layer.projection.weight",
    ),
    ("blk.{}.post_norm.weight", "layers.{}.per_layer.norm.weight"),
    ("per_layer_token_embd.weight", "per_layer.embedding.weight"),
    ("per_layer_model_proj.weight", "per_layer.projection.weight"),
    ("per_layer_proj_norm.weight", "per_layer.norm.weight"),
];
