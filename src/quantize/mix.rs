//! Choosing a tensor's type by a recipe: the conditions of [`recipe`](super::recipe), evaluated.

use burn_gguf_kernels::GgmlType;

use super::eligible::{Kind, kind, needs_eight_bits};
use super::recipe::{Clause, Mix, When};
use crate::gguf::{Gguf, GgufError, Metadata, Value};

/// What a mix needs to know of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub architecture: String,
    layers: usize,
    experts: u64,
    /// Query heads to a key-value head, in the first layer; 0 if it has none.
    queries_per_key: u64,
    /// Tensors that are values of attention.
    attn_v_count: usize,
    has_output: bool,
}

impl Model {
    /// Reads the facts from metadata and names; keys that are absent count as 0, as in encoders of images.
    pub(super) fn of(gguf: &Gguf) -> Result<Self, GgufError> {
        let metadata = gguf.metadata();
        let architecture = metadata.architecture()?.to_owned();
        let key = |name: &str| format!("{architecture}.{name}");
        let heads = first_layer(metadata, &key("attention.head_count"))?.unwrap_or(0);
        let key_heads = first_layer(metadata, &key("attention.head_count_kv"))?.unwrap_or(heads);
        let kinds = || gguf.tensors().map(|t| kind(t.name()));
        Ok(Model {
            layers: metadata.get_or(&key("block_count"), 0)?,
            experts: metadata.get_or(&key("expert_count"), 0)?,
            queries_per_key: heads.checked_div(key_heads).unwrap_or(0),
            attn_v_count: kinds().filter(|&k| k == Kind::AttnV).count(),
            has_output: kinds().any(|k| k == Kind::Output),
            architecture,
        })
    }

    /// A large model with few key-value heads: their matrices are small, more bits for them cost nothing.
    fn is_70b(&self) -> bool {
        match self.architecture.as_str() {
            "llama" => self.layers == 80 && self.queries_per_key != 1,
            "qwen2" | "deci" | "olmo" => self.layers == 80,
            "jais2" => self.layers == 68,
            _ => false,
        }
    }

    pub(super) fn is_output(&self, kind: Kind) -> bool {
        kind == Kind::Output || (kind == Kind::TokenEmbedding && !self.has_output)
    }
}

/// The value, or the first of an array of one for each layer.
fn first_layer(metadata: &Metadata, key: &str) -> Result<Option<u64>, GgufError> {
    match metadata.value(key) {
        Some(Value::Array(_)) => Ok(metadata.get::<Vec<u64>>(key)?.first().copied()),
        _ => metadata.get_optional(key),
    }
}

/// Tensors of a kind that came before.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    attn_v: usize,
    ffn_down: usize,
    ffn_gate: usize,
    ffn_up: usize,
}

/// A tensor's place among its kind.
struct Place<'a> {
    model: &'a Model,
    has_importance: bool,
    /// Tensors of the kind before it.
    count: usize,
    /// Its layer, and how many there are.
    layer: usize,
    layers: usize,
}

impl Place<'_> {
    fn holds(&self, when: When) -> bool {
        let (model, eighth) = (self.model, self.layers / 8);
        let last_eighth = 7 * self.layers / 8;
        match when {
            When::GroupedQueries => model.queries_per_key >= 4,
            When::GroupedQueriesOrExperts => model.queries_per_key >= 4 || model.experts >= 4,
            When::EightExperts => model.experts == 8,
            When::NotEightExperts => model.experts != 8,
            When::Importance => self.has_importance,
            When::NoImportance => !self.has_importance,
            When::Before(n) => self.count < n,
            When::FirstPart(parts) => self.layer < self.layers / parts,
            When::FirstPartCounted(parts) => self.count < self.layers / parts,
            When::MoreBits => {
                self.layer < eighth || self.layer >= last_eighth || (self.layer - eighth) % 3 == 2
            }
            When::Middle => self.layer >= eighth && self.layer < last_eighth,
        }
    }

    fn choose(&self, clauses: &[Clause], base: GgmlType) -> GgmlType {
        clauses
            .iter()
            .find(|(conditions, _)| conditions.iter().all(|&when| self.holds(when)))
            .map_or(base, |(_, ty)| *ty)
    }
}

/// The type that `mix` gives the tensor. Tensors must come in the order of layers: places are counted.
pub(super) fn choose(
    mix: &Mix,
    model: &Model,
    has_importance: bool,
    counters: &mut Counters,
    name: &str,
    shape: &[u64],
) -> GgmlType {
    if needs_eight_bits(&model.architecture, name) && mix.base.block_len() > 1 {
        return GgmlType::Q8_0;
    }
    let kind = kind(name);
    if model.is_output(kind) {
        let fills = shape[0].is_multiple_of(mix.base.block_len() as u64);
        return if fills { mix.output } else { GgmlType::Q8_0 };
    }
    if let Some(unless_stacked) = mix.unless_stacked {
        let is_stack = shape.get(2).is_some_and(|&n| n > 1);
        return if is_stack { mix.base } else { unless_stacked };
    }
    let (clauses, count) = match kind {
        Kind::TokenEmbedding => return mix.token_embedding,
        Kind::Output | Kind::Other => return mix.base,
        Kind::AttnV => (mix.attn_v, Some(&mut counters.attn_v)),
        Kind::AttnK => (mix.attn_k, None),
        Kind::AttnQ => (mix.attn_q, None),
        Kind::AttnOutput => (mix.attn_output, None),
        Kind::FfnDown => (mix.ffn_down, Some(&mut counters.ffn_down)),
        Kind::FfnGate => (mix.ffn_in, Some(&mut counters.ffn_gate)),
        Kind::FfnUp => (mix.ffn_in, Some(&mut counters.ffn_up)),
    };
    let before = count.map_or(0, |count| {
        *count += 1;
        *count - 1
    });
    let is_v = kind == Kind::AttnV;
    // A layer of experts may have several tensors of a kind: only the name tells the layer.
    let named = (model.experts > 1 && !is_v).then(|| layer(name)).flatten();
    let place = Place {
        model,
        has_importance,
        count: before,
        layer: named.unwrap_or(before),
        layers: if is_v {
            model.attn_v_count
        } else {
            model.layers
        },
    };
    let chosen = place.choose(clauses, mix.base);
    match chosen {
        GgmlType::Q3K | GgmlType::Q4K if is_v && !mix.smallest && model.is_70b() => GgmlType::Q5K,
        chosen => chosen,
    }
}

/// The number in `blk.N.`.
pub(super) fn layer(name: &str) -> Option<usize> {
    let rest = name.strip_prefix("blk.")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}
