//! The architectures this crate runs.

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use super::{gemma3, gemma4, minimax_m2, minimax_m3, muse_glimmer, qwen, qwen3vl, qwen35};
use crate::error::ModelError;
use crate::load::{LoadOptions, LoadReport};
use crate::model::TextModel;

type Load = fn(&Gguf, &Device, LoadOptions) -> Result<(Box<dyn TextModel>, LoadReport), ModelError>;

/// One architecture.
pub struct Family {
    /// `general.architecture`.
    pub architecture: &'static str,
    /// The models people know it by.
    pub models: &'static str,
    /// What it needs beyond a plain Llama stack.
    pub parts: &'static [&'static str],
    pub(crate) load: Load,
}

const FAMILIES: &[Family] = &[
    Family {
        architecture: "qwen2",
        models: "Qwen2, Qwen2.5, Qwen2.5-Coder",
        parts: &["QKV biases"],
        load: qwen::load_qwen2,
    },
    Family {
        architecture: "qwen3",
        models: "Qwen3 (dense)",
        parts: &["per-head QK norm", "explicit head width"],
        load: qwen::load_qwen3,
    },
    Family {
        architecture: "qwen3moe",
        models: "Qwen3 (experts)",
        parts: &[
            "per-head QK norm",
            "explicit head width",
            "softmax top-k experts",
        ],
        load: qwen::load_qwen3moe,
    },
    Family {
        architecture: "qwen3vl",
        models: "Qwen3-VL (dense)",
        parts: &[
            "per-head QK norm",
            "explicit head width",
            "interleaved M-RoPE",
            "DeepStack",
            "images",
        ],
        load: qwen3vl::load,
    },
    Family {
        architecture: "qwen3vlmoe",
        models: "Qwen3-VL (experts)",
        parts: &[
            "per-head QK norm",
            "explicit head width",
            "softmax top-k experts",
            "interleaved M-RoPE",
            "DeepStack",
            "images",
        ],
        load: qwen3vl::load_moe,
    },
    Family {
        architecture: "qwen35",
        models: "Qwen3.5, 3.6, 3.8 (dense)",
        parts: &[
            "gated delta nets",
            "gated attention",
            "partial interleaved M-RoPE",
            "images",
        ],
        load: qwen35::load,
    },
    Family {
        architecture: "qwen35moe",
        models: "Qwen3.5, 3.6, 3.8 (experts)",
        parts: &[
            "gated delta nets",
            "gated attention",
            "partial interleaved M-RoPE",
            "softmax top-k experts",
            "gated shared expert",
            "images",
        ],
        load: qwen35::load_moe,
    },
    Family {
        architecture: "qwen3next",
        models: "Qwen3-Next",
        parts: &[
            "gated delta nets",
            "gated attention",
            "partly rotating heads",
            "softmax top-k experts",
            "gated shared expert",
        ],
        load: qwen35::load_next,
    },
    Family {
        architecture: "gemma3",
        models: "Gemma 3 (text)",
        parts: &[
            "per-head QK norm",
            "sandwich norms",
            "GeGLU",
            "sliding-window layers",
            "two rotary bases",
            "scaled embeddings",
        ],
        load: gemma3::load,
    },
    Family {
        architecture: "gemma4",
        models: "Gemma 4 (26B-A4B, 31B, 12B, E2B, E4B)",
        parts: &[
            "per-head QK and V norms",
            "sandwich norms",
            "GeGLU",
            "sliding-window layers of another head width",
            "values from the key projection",
            "proportional rotation",
            "softmax top-k experts beside the MLP",
            "embeddings per layer",
            "shared keys and values",
            "capped logits",
            "images",
        ],
        load: gemma4::load,
    },
    Family {
        architecture: "minimax-m2",
        models: "MiniMax-M2",
        parts: &[
            "QK norm over all heads",
            "partly rotating heads",
            "sigmoid top-k experts with a choice bias",
        ],
        load: minimax_m2::load,
    },
    Family {
        architecture: "minimax-m3",
        models: "MiniMax-M3",
        parts: &[
            "block-sparse attention with an indexer",
            "per-head QK norm",
            "partly rotating heads",
            "SwiGLU-OAI",
            "dense layers in front",
            "sigmoid top-k experts with a choice bias",
            "shared expert",
            "images",
        ],
        load: minimax_m3::load,
    },
    Family {
        architecture: "muse-glimmer",
        models: "Muse-Glimmer (text)",
        parts: &[
            "gated attention",
            "sliding-window layers",
            "full layers without positions",
            "sandwich norms",
            "scaled and capped logits",
        ],
        load: muse_glimmer::load,
    },
];

/// Every architecture this crate runs.
pub fn families() -> &'static [Family] {
    FAMILIES
}

/// The family of an architecture, if it is run.
pub fn family(architecture: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.architecture == architecture)
}
