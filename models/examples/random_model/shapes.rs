//! What each family is made of, in sizes.

/// Linear attention in place of attention.
pub struct Delta {
    pub key_heads: u64,
    pub value_heads: u64,
    pub dim: u64,
    /// Every so many layers have attention all the same.
    pub interval: u64,
    /// Strength and decay in one projection.
    pub joined: bool,
}

/// The MLP that all tokens share.
#[derive(Clone, Copy)]
pub struct Shared {
    pub width: u64,
    pub gated: bool,
}

pub struct Experts {
    pub count: u64,
    pub used: u32,
    pub width: u64,
    pub shared: Option<Shared>,
    /// A sigmoid for each, with a bias for the choice.
    pub sigmoid: bool,
    /// Factor of what the chosen ones return.
    pub scale: Option<f32>,
}

/// Attention to blocks of positions that an indexer chooses; in layers with experts.
pub struct Indexer {
    pub heads: u64,
    pub dim: u64,
    pub block: u64,
    pub blocks: u64,
}

/// Attention to the last positions only.
pub struct Window {
    pub size: u64,
    /// Every so many layers see all positions.
    pub interval: u64,
}

/// The gate of attention's output.
pub enum Gate {
    None,
    /// In the projection of queries.
    Joined,
    Apart,
}

pub struct Logits {
    pub scale: f32,
    pub cap: f32,
}

pub struct Model {
    pub pre: &'static str,
    pub hidden: u64,
    pub layers: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    pub rotated: u64,
    pub base: f32,
    pub sections: Option<[i32; 4]>,
    pub feed_forward: u64,
    pub delta: Option<Delta>,
    pub experts: Option<Experts>,
    /// Layers at the start without experts.
    pub dense_lead: Option<u64>,
    pub indexer: Option<Indexer>,
    pub window: Option<Window>,
    /// The norms of a layer but those of queries and keys.
    pub norms: &'static [&'static str],
    pub gate: Gate,
    /// Norms of queries and keys over all heads together.
    pub wide_norms: bool,
    pub eps: f32,
    pub logits: Option<Logits>,
}

const NORMS: &[&str] = &["attn_norm", "ffn_norm"];

/// The sizes of `architecture`, or `None` for one that is not here.
pub fn model(architecture: &str) -> Option<Model> {
    let delta = |value_heads: u64, joined: bool| {
        Some(Delta {
            key_heads: 16,
            value_heads,
            dim: 128,
            interval: 4,
            joined,
        })
    };
    let qwen35 = Model {
        pre: "qwen35",
        hidden: 1024,
        layers: 24,
        heads: 8,
        kv_heads: 2,
        head_dim: 256,
        rotated: 64,
        base: 1e7,
        sections: Some([11, 11, 10, 0]),
        feed_forward: 3584,
        delta: delta(16, false),
        experts: None,
        dense_lead: None,
        indexer: None,
        window: None,
        norms: &["attn_norm", "post_attention_norm"],
        gate: Gate::Joined,
        wide_norms: false,
        eps: 1e-6,
        logits: None,
    };
    let experts = Experts {
        count: 128,
        used: 8,
        width: 256,
        shared: Some(Shared {
            width: 256,
            gated: true,
        }),
        sigmoid: false,
        scale: None,
    };
    Some(match architecture {
        "qwen35" => qwen35,
        "qwen35moe" => Model {
            layers: 8,
            delta: delta(32, false),
            experts: Some(experts),
            ..qwen35
        },
        "qwen3next" => Model {
            pre: "qwen2",
            layers: 8,
            sections: None,
            delta: delta(32, true),
            experts: Some(Experts {
                used: 10,
                ..experts
            }),
            ..qwen35
        },
        // The smallest of them, but for its vocabulary.
        "qwen3" => Model {
            pre: "qwen2",
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            rotated: 128,
            base: 1e6,
            sections: None,
            feed_forward: 3072,
            delta: None,
            norms: NORMS,
            gate: Gate::None,
            ..qwen35
        },
        "qwen3moe" => Model {
            pre: "qwen2",
            layers: 8,
            heads: 16,
            kv_heads: 4,
            head_dim: 128,
            rotated: 128,
            sections: None,
            delta: None,
            experts: Some(Experts {
                count: 64,
                width: 512,
                shared: None,
                ..experts
            }),
            norms: NORMS,
            gate: Gate::None,
            ..qwen35
        },
        "minimax-m2" => Model {
            pre: "minimax-m2",
            // The width of an expert, in this family.
            feed_forward: 512,
            layers: 8,
            heads: 16,
            kv_heads: 4,
            head_dim: 128,
            rotated: 64,
            sections: None,
            delta: None,
            experts: Some(Experts {
                count: 64,
                width: 512,
                shared: None,
                sigmoid: true,
                ..experts
            }),
            norms: NORMS,
            gate: Gate::None,
            wide_norms: true,
            ..qwen35
        },
        "minimax-m3" => Model {
            pre: "minimax-m2",
            layers: 4,
            heads: 16,
            kv_heads: 4,
            head_dim: 128,
            rotated: 64,
            base: 5e6,
            sections: None,
            feed_forward: 12288,
            delta: None,
            experts: Some(Experts {
                count: 16,
                used: 4,
                width: 3072,
                shared: Some(Shared {
                    width: 3072,
                    gated: false,
                }),
                sigmoid: true,
                scale: Some(2.0),
            }),
            dense_lead: Some(1),
            indexer: Some(Indexer {
                heads: 4,
                dim: 128,
                block: 128,
                blocks: 16,
            }),
            norms: NORMS,
            gate: Gate::None,
            ..qwen35
        },
        "muse-glimmer" => Model {
            pre: "llama4",
            hidden: 2048,
            layers: 8,
            heads: 32,
            kv_heads: 2,
            head_dim: 128,
            rotated: 128,
            base: 5e5,
            sections: None,
            feed_forward: 6144,
            delta: None,
            window: Some(Window {
                size: 2048,
                interval: 4,
            }),
            norms: &[
                "attn_norm",
                "post_attention_norm",
                "ffn_norm",
                "post_ffw_norm",
            ],
            gate: Gate::Apart,
            eps: 1e-5,
            logits: Some(Logits {
                scale: 0.196_116_14,
                cap: 20.0,
            }),
            ..qwen35
        },
        _ => return None,
    })
}
