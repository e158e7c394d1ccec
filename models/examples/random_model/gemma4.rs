//! Gemma 4 with experts: its layers are of two kinds, with heads of their own, and have an MLP beside the experts.

use burn_gguf::gguf::{Array, GgufWriter, Value};

use crate::vocabulary;
use crate::weights::{list, matrix, norm, values};

const HIDDEN: u64 = 1024;
const LAYERS: u64 = 6;
/// Every so many layers see all positions.
const INTERVAL: u64 = 6;
const HEADS: u64 = 16;
const MLP: u64 = 2112;
const EXPERTS: u64 = 32;
const EXPERT: u64 = 704;

/// Heads of one kind of layer.
#[derive(Clone, Copy)]
struct Heads {
    dim: u64,
    kv: u64,
}

const SLIDING: Heads = Heads { dim: 256, kv: 8 };
const FULL: Heads = Heads { dim: 512, kv: 2 };

fn sliding(i: u64) -> bool {
    !(i + 1).is_multiple_of(INTERVAL)
}

fn heads(i: u64) -> Heads {
    match sliding(i) {
        true => SLIDING,
        false => FULL,
    }
}

/// Everything but the keys that all families have.
pub fn write(file: &mut GgufWriter<'_>) {
    metadata(file);
    vocabulary::write_gemma(file);
    matrix(file, "token_embd.weight", &[HIDDEN, vocabulary::TOKENS]);
    norm(file, "output_norm.weight", HIDDEN);
    // Of the pairs of a head, the first quarter rotates.
    let pairs = FULL.dim / 2;
    let divisor = |i| if i < pairs / 4 { 1.0 } else { 1e30 };
    list(file, "rope_freqs.weight", (0..pairs).map(divisor).collect());
    for i in 0..LAYERS {
        layer(i, file);
    }
}

fn metadata(file: &mut GgufWriter<'_>) {
    let mut set = |key: &str, value: Value| {
        file.set_metadata(&format!("gemma4.{key}"), value);
    };
    for (key, value) in [
        ("block_count", LAYERS),
        ("context_length", 32768),
        ("embedding_length", HIDDEN),
        ("embedding_length_per_layer_input", 0),
        ("feed_forward_length", MLP),
        ("expert_count", EXPERTS),
        ("expert_used_count", 8),
        ("expert_feed_forward_length", EXPERT),
        ("attention.head_count", HEADS),
        ("attention.key_length", FULL.dim),
        ("attention.value_length", FULL.dim),
        ("attention.key_length_swa", SLIDING.dim),
        ("attention.value_length_swa", SLIDING.dim),
        ("attention.shared_kv_layers", 0),
        ("attention.sliding_window", 1024),
        ("rope.dimension_count", FULL.dim),
        ("rope.dimension_count_swa", SLIDING.dim),
    ] {
        set(key, Value::U32(value as u32));
    }
    for (key, value) in [
        ("rope.freq_base", 1e6),
        ("rope.freq_base_swa", 1e4),
        ("attention.layer_norm_rms_epsilon", 1e-6),
        ("final_logit_softcapping", 30.0),
    ] {
        set(key, Value::F32(value));
    }
    let kv = (0..LAYERS).map(|i| heads(i).kv as u32).collect();
    set("attention.head_count_kv", Value::Array(Array::U32(kv)));
    let pattern = Value::Array(Array::Bool((0..LAYERS).map(sliding).collect()));
    set("attention.sliding_window_pattern", pattern);
}

fn layer(i: u64, file: &mut GgufWriter<'_>) {
    let name = |part: &str| format!("blk.{i}.{part}");
    for part in [
        "attn_norm",
        "post_attention_norm",
        "ffn_norm",
        "post_ffw_norm",
        "pre_ffw_norm_2",
        "post_ffw_norm_1",
        "post_ffw_norm_2",
    ] {
        norm(file, &name(&format!("{part}.weight")), HIDDEN);
    }
    norm(file, &name("layer_output_scale.weight"), 1);
    let Heads { dim, kv } = heads(i);
    norm(file, &name("attn_q_norm.weight"), dim);
    // Scores are not divided by the root of a head's width; this does it.
    let scale = 1.0 / (dim as f32).sqrt();
    values(file, &name("attn_k_norm.weight"), &[dim], move |x| {
        scale * (1.0 + 0.1 * x)
    });
    let mut matrix = |part: &str, shape: &[u64]| {
        matrix(file, &name(&format!("{part}.weight")), shape);
    };
    matrix("attn_q", &[HIDDEN, HEADS * dim]);
    matrix("attn_k", &[HIDDEN, kv * dim]);
    // In the others keys are values too.
    if sliding(i) {
        matrix("attn_v", &[HIDDEN, kv * dim]);
    }
    matrix("attn_output", &[HEADS * dim, HIDDEN]);
    matrix("ffn_gate", &[HIDDEN, MLP]);
    matrix("ffn_up", &[HIDDEN, MLP]);
    matrix("ffn_down", &[MLP, HIDDEN]);
    matrix("ffn_gate_up_exps", &[HIDDEN, 2 * EXPERT, EXPERTS]);
    matrix("ffn_down_exps", &[EXPERT, HIDDEN, EXPERTS]);
    norm(file, &name("ffn_down_exps.scale"), EXPERTS);
    // What it multiplies is divided by the root of its width.
    let router = name("ffn_gate_inp.weight");
    values(file, &router, &[HIDDEN, EXPERTS], |x| 3f32.sqrt() * x);
    norm(file, &name("ffn_gate_inp.scale"), HIDDEN);
}
