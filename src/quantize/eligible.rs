//! Which tensors a recipe may touch at all, and what kind of tensor each is.

/// Parts of names of tensors that stay as they are: small, or harmed by any rounding.
const KEPT: &[&str] = &[
    "_norm.weight",
    // Routing of experts.
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    // Gemma 3n's small projections.
    "altup",
    "laurel",
    "per_layer_model_proj",
    // Short convolutions of recurrent layers.
    "ssm_conv1d",
    "shortconv.conv.weight",
    // Sparse attention of MiniMax.
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    // RWKV's mixing vectors and low-rank pairs.
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    // Relative positions of T5.
    "attn_rel_b.weight",
    // Image and audio encoders: positions, patches and codebooks.
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// As [`KEPT`], whole names (BERT's tables).
const KEPT_NAMES: &[&str] = &["position_embd.weight", "token_types.weight"];

/// As [`KEPT`], for one architecture.
const KEPT_BY_ARCHITECTURE: &[(&str, &[&str])] = &[(
    "glm5-next",
    &[
        "hc_",
        "indexer.attn_q_b",
        "indexer.attn_k",
        "indexer.proj",
        "indexer_compressor_gate",
        "indexer_compressor_ape",
        "ssm_f_a.weight",
        "ssm_f_b.weight",
        "ssm_g_a.weight",
        "ssm_g_b.weight",
        "ssm_beta.weight",
        "attn_kv_a_mqa.weight",
        "attn_k_b.weight",
        "attn_v_b.weight",
    ],
)];

/// Parts of names that never get fewer than eight bits by a mix, by architecture.
const EIGHT_BITS_BY_ARCHITECTURE: &[(&str, &[&str])] =
    &[("glm5-next", &["attn_q_a", "attn_q_b", "nextn.eh_proj"])];

/// Whether a tensor of this name and shape (ggml's `ne` order) is one to quantize.
pub(super) fn is_eligible(architecture: &str, name: &str, shape: &[u64]) -> bool {
    // As ggml counts them: trailing dimensions of 1 are none.
    let dimensions = shape.iter().rposition(|&d| d != 1).map_or(1, |i| i + 1);
    dimensions >= 2
        && name.ends_with("weight")
        && !KEPT_NAMES.contains(&name)
        && !KEPT.iter().any(|part| name.contains(part))
        && !listed(KEPT_BY_ARCHITECTURE, architecture, name)
}

/// Whether a mix must leave this tensor eight bits.
pub(super) fn needs_eight_bits(architecture: &str, name: &str) -> bool {
    listed(EIGHT_BITS_BY_ARCHITECTURE, architecture, name)
}

fn listed(table: &[(&str, &[&str])], architecture: &str, name: &str) -> bool {
    table
        .iter()
        .filter(|(of, _)| *of == architecture)
        .any(|(_, parts)| parts.iter().any(|part| name.contains(part)))
}

/// The kinds of tensors that recipes tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Output,
    TokenEmbedding,
    /// Values, alone or fused with queries and keys or in a latent projection.
    AttnV,
    AttnK,
    AttnQ,
    AttnOutput,
    FfnUp,
    FfnGate,
    FfnDown,
    Other,
}

pub(super) const OUTPUT: &str = "output.weight";
pub(super) const PER_LAYER_EMBEDDING: &str = "per_layer_token_embd.weight";

/// Parts of names, in the order they are looked for.
const KINDS: &[(&str, Kind)] = &[
    ("attn_qkv.weight", Kind::AttnV),
    ("attn_kv_b.weight", Kind::AttnV),
    ("attn_v.weight", Kind::AttnV),
    ("attn_k.weight", Kind::AttnK),
    ("attn_q.weight", Kind::AttnQ),
    ("attn_output.weight", Kind::AttnOutput),
    ("ffn_up", Kind::FfnUp),
    ("ffn_gate", Kind::FfnGate),
    ("ffn_down", Kind::FfnDown),
];

/// The kind of the tensor of this name.
pub(super) fn kind(name: &str) -> Kind {
    match name {
        OUTPUT => Kind::Output,
        "token_embd.weight" | PER_LAYER_EMBEDDING => Kind::TokenEmbedding,
        _ => KINDS
            .iter()
            .find(|(part, _)| name.contains(part))
            .map_or(Kind::Other, |(_, kind)| *kind),
    }
}
