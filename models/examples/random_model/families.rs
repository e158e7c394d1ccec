//! Metadata and tensors of each family.

use burn_gguf::gguf::{Array, GgufWriter, Value};

use crate::vocabulary;
use crate::weights::{matrix, norm, values};

/// The architectures there are.
pub const NAMES: &[&str] = &["qwen35", "qwen35moe", "qwen3moe", "qwen3next", "minimax-m2"];

/// Linear attention in place of attention.
struct Delta {
    key_heads: u64,
    value_heads: u64,
    dim: u64,
    /// Every so many layers have attention all the same.
    interval: u64,
    /// Strength and decay in one projection.
    joined: bool,
}

struct Experts {
    count: u64,
    used: u32,
    width: u64,
    /// Width of the MLP that all tokens share.
    shared: Option<u64>,
    /// A sigmoid for each, with a bias for the choice.
    sigmoid: bool,
}

struct Model {
    pre: &'static str,
    hidden: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    rotated: u64,
    sections: Option<[i32; 4]>,
    feed_forward: u64,
    delta: Option<Delta>,
    experts: Option<Experts>,
    /// The norm before the MLP.
    mlp_norm: &'static str,
    /// Queries hold the gate of attention's output.
    gated: bool,
    /// Norms of queries and keys over all heads together.
    wide_norms: bool,
}

fn model(architecture: &str) -> Option<Model> {
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
        sections: Some([11, 11, 10, 0]),
        feed_forward: 3584,
        delta: delta(16, false),
        experts: None,
        mlp_norm: "post_attention_norm",
        gated: true,
        wide_norms: false,
    };
    let experts = Experts {
        count: 128,
        used: 8,
        width: 256,
        shared: Some(256),
        sigmoid: false,
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
            mlp_norm: "ffn_norm",
            gated: false,
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
            mlp_norm: "ffn_norm",
            gated: false,
            wide_norms: true,
            ..qwen35
        },
        _ => return None,
    })
}

/// Metadata and tensors of a model.
pub fn write(
    architecture: &str,
    file: &mut GgufWriter<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let Some(model) = model(architecture) else {
        let known = NAMES.join(", ");
        return Err(format!("no family \"{architecture}\"; there are {known}").into());
    };
    model.metadata(architecture, file);
    vocabulary::write(file, model.pre);
    matrix(
        file,
        "token_embd.weight",
        &[model.hidden, vocabulary::TOKENS],
    );
    norm(file, "output_norm.weight", model.hidden);
    matrix(file, "output.weight", &[model.hidden, vocabulary::TOKENS]);
    for i in 0..model.layers {
        model.layer(i, file);
    }
    Ok(())
}

impl Model {
    fn metadata(&self, architecture: &str, file: &mut GgufWriter<'_>) {
        file.set_metadata("general.architecture", architecture)
            .set_metadata("general.type", "model")
            .set_metadata("general.name", "random");
        let mut set = |key: &str, value: Value| {
            file.set_metadata(&format!("{architecture}.{key}"), value);
        };
        let mut count = |key: &str, value: u64| set(key, Value::U32(value as u32));
        count("block_count", self.layers);
        count("context_length", 32768);
        count("embedding_length", self.hidden);
        count("feed_forward_length", self.feed_forward);
        count("attention.head_count", self.heads);
        count("attention.head_count_kv", self.kv_heads);
        count("attention.key_length", self.head_dim);
        count("attention.value_length", self.head_dim);
        count("rope.dimension_count", self.rotated);
        if let Some(delta) = &self.delta {
            count("ssm.conv_kernel", 4);
            count("ssm.state_size", delta.dim);
            count("ssm.group_count", delta.key_heads);
            count("ssm.time_step_rank", delta.value_heads);
            count("ssm.inner_size", delta.value_heads * delta.dim);
            count("full_attention_interval", delta.interval);
        }
        if let Some(experts) = &self.experts {
            count("expert_count", experts.count);
            count("expert_used_count", u64::from(experts.used));
            count("expert_feed_forward_length", experts.width);
            if let Some(shared) = experts.shared {
                count("expert_shared_feed_forward_length", shared);
            }
            if experts.sigmoid {
                count("expert_gating_func", 2);
            }
        }
        set("rope.freq_base", Value::F32(1e7));
        set("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
        if let Some(sections) = self.sections {
            let sections = Value::Array(Array::I32(sections.to_vec()));
            set("rope.dimension_sections", sections);
        }
    }

    fn layer(&self, i: u64, file: &mut GgufWriter<'_>) {
        let name = |part: &str| format!("blk.{i}.{part}");
        norm(file, &name("attn_norm.weight"), self.hidden);
        norm(
            file,
            &name(&format!("{}.weight", self.mlp_norm)),
            self.hidden,
        );
        match &self.delta {
            Some(delta) if !(i + 1).is_multiple_of(delta.interval) => {
                self.delta_net(delta, &name, file);
            }
            _ => self.attention(&name, file),
        }
        let mlp = |kind: &str, width: u64, stack: &[u64], file: &mut GgufWriter<'_>| {
            for (part, shape) in [
                ("gate", [self.hidden, width]),
                ("up", [self.hidden, width]),
                ("down", [width, self.hidden]),
            ] {
                let shape = [&shape[..], stack].concat();
                matrix(file, &name(&format!("ffn_{part}{kind}.weight")), &shape);
            }
        };
        let Some(experts) = &self.experts else {
            return mlp("", self.feed_forward, &[], file);
        };
        mlp("_exps", experts.width, &[experts.count], file);
        let scale = (3.0 / self.hidden as f32).sqrt();
        let router = [self.hidden, experts.count];
        values(file, &name("ffn_gate_inp.weight"), &router, move |x| {
            x * scale
        });
        if experts.sigmoid {
            let bias = name("exp_probs_b.bias");
            values(file, &bias, &[experts.count], |x| 0.1 * x);
        }
        if let Some(shared) = experts.shared {
            mlp("_shexp", shared, &[], file);
            let gate = name("ffn_gate_inp_shexp.weight");
            values(file, &gate, &[self.hidden, 1], move |x| x * scale);
        }
    }

    fn attention(&self, name: &dyn Fn(&str) -> String, file: &mut GgufWriter<'_>) {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let queries = if self.gated { 2 * q } else { q };
        for (part, shape) in [
            ("attn_q", [self.hidden, queries]),
            ("attn_k", [self.hidden, kv]),
            ("attn_v", [self.hidden, kv]),
            ("attn_output", [q, self.hidden]),
        ] {
            matrix(file, &name(&format!("{part}.weight")), &shape);
        }
        let widths = match self.wide_norms {
            true => [q, kv],
            false => [self.head_dim; 2],
        };
        norm(file, &name("attn_q_norm.weight"), widths[0]);
        norm(file, &name("attn_k_norm.weight"), widths[1]);
    }

    fn delta_net(&self, delta: &Delta, name: &dyn Fn(&str) -> String, file: &mut GgufWriter<'_>) {
        let (heads, inner) = (delta.value_heads, delta.value_heads * delta.dim);
        let mixed = 2 * delta.key_heads * delta.dim + inner;
        matrix(file, &name("attn_qkv.weight"), &[self.hidden, mixed]);
        matrix(file, &name("attn_gate.weight"), &[self.hidden, inner]);
        matrix(file, &name("ssm_out.weight"), &[inner, self.hidden]);
        match delta.joined {
            true => matrix(file, &name("ssm_ba.weight"), &[self.hidden, 2 * heads]),
            false => {
                matrix(file, &name("ssm_alpha.weight"), &[self.hidden, heads]);
                matrix(file, &name("ssm_beta.weight"), &[self.hidden, heads]);
            }
        }
        norm(file, &name("ssm_norm.weight"), delta.dim);
        values(file, &name("ssm_conv1d.weight"), &[4, mixed], |x| 0.9 * x);
        // As the original models start: exponents of 0 to 16, steps of 0.001 to 0.1.
        values(file, &name("ssm_a"), &[heads], |x| -8.0 * (x + 1.001));
        values(file, &name("ssm_dt.bias"), &[heads], |x| {
            let step = 10f32.powf(x - 2.0);
            step.exp_m1().ln()
        });
    }
}
