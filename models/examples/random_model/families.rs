//! Metadata and tensors of each family.

use burn_gguf::gguf::{Array, GgufWriter, Value};

use crate::gemma4;
use crate::shapes::{Delta, Experts, Gate, Indexer, Model, model};
use crate::vocabulary;
use crate::weights::{matrix, norm, values};

/// The architectures there are.
pub const NAMES: &[&str] = &[
    "gemma4",
    "minimax-m2",
    "minimax-m3",
    "muse-glimmer",
    "qwen3",
    "qwen3moe",
    "qwen3next",
    "qwen35",
    "qwen35moe",
];

/// Metadata and tensors of a model.
pub fn write(
    architecture: &str,
    file: &mut GgufWriter<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    file.set_metadata("general.architecture", architecture)
        .set_metadata("general.type", "model")
        .set_metadata("general.name", "random");
    if architecture == "gemma4" {
        gemma4::write(file);
        return Ok(());
    }
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
            match experts.shared {
                Some(shared) if shared.gated => {
                    count("expert_shared_feed_forward_length", shared.width);
                }
                Some(shared) => count("expert_shared_count", shared.width / experts.width),
                None => {}
            }
            if experts.sigmoid {
                count("expert_gating_func", 2);
            }
        }
        if let Some(lead) = self.dense_lead {
            count("leading_dense_block_count", lead);
        }
        if let Some(indexer) = &self.indexer {
            count("attention.indexer.head_count", indexer.heads);
            count("attention.indexer.key_length", indexer.dim);
            count("attention.indexer.top_k", indexer.blocks);
            count("attention.indexer.block_size", indexer.block);
            count("attention.indexer.local_blocks", 1);
        }
        if let Some(window) = &self.window {
            count("attention.sliding_window", window.size);
            let sliding = (1..=self.layers).map(|i| !i.is_multiple_of(window.interval));
            let sliding = Value::Array(Array::Bool(sliding.collect()));
            set("attention.sliding_window_pattern", sliding);
        }
        set("rope.freq_base", Value::F32(self.base));
        set("attention.layer_norm_rms_epsilon", Value::F32(self.eps));
        if let Some(scale) = self.experts.as_ref().and_then(|experts| experts.scale) {
            set("expert_weights_scale", Value::F32(scale));
            set("expert_weights_norm", Value::Bool(true));
        }
        if let Some(logits) = &self.logits {
            set("logit_scale", Value::F32(logits.scale));
            set("final_logit_softcapping", Value::F32(logits.cap));
        }
        if let Some(sections) = self.sections {
            let sections = Value::Array(Array::I32(sections.to_vec()));
            set("rope.dimension_sections", sections);
        }
    }

    fn layer(&self, i: u64, file: &mut GgufWriter<'_>) {
        let name = |part: &str| format!("blk.{i}.{part}");
        for part in self.norms {
            norm(file, &name(&format!("{part}.weight")), self.hidden);
        }
        let dense = i < self.dense_lead.unwrap_or(0);
        match &self.delta {
            Some(delta) if !(i + 1).is_multiple_of(delta.interval) => {
                self.delta_net(delta, &name, file);
            }
            _ => self.attention(&name, file),
        }
        if let Some(indexer) = self.indexer.as_ref().filter(|_| !dense) {
            self.indexer(indexer, &name, file);
        }
        match &self.experts {
            Some(experts) if !dense => self.experts(experts, &name, file),
            _ => self.mlp("", self.feed_forward, &[], &name, file),
        }
    }

    fn mlp(
        &self,
        kind: &str,
        width: u64,
        stack: &[u64],
        name: &dyn Fn(&str) -> String,
        file: &mut GgufWriter<'_>,
    ) {
        for (part, shape) in [
            ("gate", [self.hidden, width]),
            ("up", [self.hidden, width]),
            ("down", [width, self.hidden]),
        ] {
            let shape = [&shape[..], stack].concat();
            matrix(file, &name(&format!("ffn_{part}{kind}.weight")), &shape);
        }
    }

    fn experts(&self, experts: &Experts, name: &dyn Fn(&str) -> String, file: &mut GgufWriter<'_>) {
        self.mlp("_exps", experts.width, &[experts.count], name, file);
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
            self.mlp("_shexp", shared.width, &[], name, file);
            if shared.gated {
                let gate = name("ffn_gate_inp_shexp.weight");
                values(file, &gate, &[self.hidden, 1], move |x| x * scale);
            }
        }
    }

    fn attention(&self, name: &dyn Fn(&str) -> String, file: &mut GgufWriter<'_>) {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let queries = match self.gate {
            Gate::Joined => 2 * q,
            Gate::None | Gate::Apart => q,
        };
        for (part, shape) in [
            ("attn_q", [self.hidden, queries]),
            ("attn_k", [self.hidden, kv]),
            ("attn_v", [self.hidden, kv]),
            ("attn_output", [q, self.hidden]),
        ] {
            matrix(file, &name(&format!("{part}.weight")), &shape);
        }
        if let Gate::Apart = self.gate {
            matrix(file, &name("attn_gate.weight"), &[self.hidden, q]);
        }
        let widths = match self.wide_norms {
            true => [q, kv],
            false => [self.head_dim; 2],
        };
        norm(file, &name("attn_q_norm.weight"), widths[0]);
        norm(file, &name("attn_k_norm.weight"), widths[1]);
    }

    /// Its projections are F32, as converters leave them.
    fn indexer(&self, indexer: &Indexer, name: &dyn Fn(&str) -> String, file: &mut GgufWriter<'_>) {
        let scale = (3.0 / self.hidden as f32).sqrt();
        for (part, width) in [("q", indexer.heads * indexer.dim), ("k", indexer.dim)] {
            let weight = name(&format!("indexer.{part}_proj.weight"));
            values(file, &weight, &[self.hidden, width], move |x| x * scale);
            let weight = name(&format!("indexer.{part}_norm.weight"));
            norm(file, &weight, indexer.dim);
        }
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
