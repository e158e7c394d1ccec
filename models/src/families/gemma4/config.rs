//! Configuration from metadata and the tensors there are.

use burn_gguf::gguf::Gguf;
use burn_gguf::ops::GluActivation;
use burn_gguf::{Arithmetic, GgmlType};

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::families::experts::softmax_experts_of;
use crate::layers::{AttentionConfig, AttentionGate, KvSource, MoeConfig, QkNorm, RopeConfig};

/// What the frequencies of full layers are divided by: one tensor for all of them.
pub(super) const ROPE_FREQS: &str = "rope_freqs.weight";

/// Shape and options of a [`Gemma4Decoder`](super::Gemma4Decoder).
#[derive(Clone, Debug)]
pub struct Gemma4Config {
    /// Tokens in the vocabulary: rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Positions the model was made for.
    pub context_length: usize,
    /// The layers.
    pub layers: Vec<Gemma4LayerConfig>,
    /// Rotary embedding of full layers.
    pub rope: RopeConfig,
    /// Rotary embedding of sliding-window layers.
    pub rope_sliding: RopeConfig,
    /// Width of the embedding that each layer has of its own for every token, if any.
    pub per_layer: Option<usize>,
    /// Whether the rows of an image see each other in both directions, in sliding-window layers.
    pub bidirectional_images: bool,
    /// Logits become `cap * tanh(logits / cap)`.
    pub logit_softcap: Option<f32>,
    /// Whether the head shares the embedding's blocks (no `output.weight` in the file).
    pub tied_output: bool,
}

/// Shape and options of a [`Gemma4Layer`](super::Gemma4Layer).
#[derive(Clone, Debug)]
pub struct Gemma4LayerConfig {
    /// The attention; a layer with a window is a sliding-window layer.
    pub attention: AttentionConfig,
    /// The layer whose cache is read: its own, or an earlier one's.
    pub cache: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Experts beside the MLP.
    pub moe: Option<MoeConfig>,
    /// Width of the layer's own token embedding, if any.
    pub per_layer: Option<usize>,
    /// Whether a factor on the layer's output is in the file.
    pub output_scale: bool,
}

/// Width and key/value heads of the attention of one kind of layer.
struct Widths {
    full: usize,
    sliding: usize,
}

/// Reads `gemma4`.
///
/// # Errors
/// A missing or contradictory key, or sizes that no tensor of the file has.
pub fn config(gguf: &Gguf) -> Result<Gemma4Config, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), "gemma4");
    let mut read = DecoderConfig::read(gguf, "gemma4")?;
    read.activation = GluActivation::GeluTanh;
    let count = read.layers();
    let blocks: usize = keys.get("block_count")?;
    let mut sliding: Vec<bool> = keys.per_layer("attention.sliding_window_pattern", blocks)?;
    sliding.truncate(count);
    let window: usize = keys.get("attention.sliding_window")?;
    if window == 0 {
        let reason = "a window has at least one position";
        return Err(keys.invalid("attention.sliding_window", window, reason));
    }
    let widths = Widths {
        full: read.head_dim,
        sliding: sliding_width(gguf, &keys, &read)?,
    };
    let caches = caches(&keys, &read, &sliding)?;
    let per_layer = per_layer(gguf, &keys, count)?;
    let cap: f32 = keys.get_or("final_logit_softcapping", 30.0)?;
    if !(cap.is_finite() && cap >= 0.0) {
        let reason = "it must be a finite number of at least 0 (0 is none)";
        return Err(keys.invalid("final_logit_softcapping", cap, reason));
    }
    let layer = |i: usize| -> Result<Gemma4LayerConfig, ModelError> {
        let tensor = |name: &str| gguf.tensor(&format!("blk.{i}.{name}")).is_some();
        let attention = AttentionConfig {
            hidden: read.hidden,
            heads: read.heads[i],
            kv_heads: read.kv_heads[i],
            head_dim: if sliding[i] {
                widths.sliding
            } else {
                widths.full
            },
            // The norms of queries and keys stand in for it.
            scale: 1.0,
            window: sliding[i].then_some(window),
            qkv_bias: read.qkv_bias,
            kv: match (caches[i] == i, tensor("attn_v.weight")) {
                (false, _) => KvSource::Shared,
                (true, true) => KvSource::Apart,
                (true, false) => KvSource::Joined,
            },
            qk_norm: QkNorm::Head,
            v_norm: true,
            gate: AttentionGate::None,
            indexer: None,
            eps: read.eps,
            arithmetic: Arithmetic::default(),
        };
        let moe = tensor("ffn_gate_inp.weight")
            .then(|| softmax_experts_of(gguf, &read, i))
            .transpose()?;
        Ok(Gemma4LayerConfig {
            attention,
            cache: caches[i],
            intermediate: read.intermediate[i],
            moe,
            per_layer,
            output_scale: tensor("layer_output_scale.weight"),
        })
    };
    let layers = (0..count).map(layer).collect::<Result<_, _>>()?;
    Ok(Gemma4Config {
        vocab_size: read.vocab_size,
        hidden: read.hidden,
        eps: read.eps,
        context_length: read.context_length,
        layers,
        rope: RopeConfig {
            divisors: divisors(gguf, &keys, &read.rope, &sliding)?,
            ..read.rope.clone()
        },
        rope_sliding: sliding_rope(&keys, &read, widths.sliding)?,
        per_layer,
        // Those with embeddings of their own in each layer (E2B, E4B) read images causally.
        bidirectional_images: per_layer.is_none(),
        logit_softcap: (cap > 0.0).then_some(cap),
        tied_output: read.tied_output,
    })
}

fn widest(gguf: &Gguf) -> u64 {
    gguf.tensors().map(|t| t.n_elements()).max().unwrap_or(0)
}

/// Width of a head of sliding-window layers.
fn sliding_width(
    gguf: &Gguf,
    keys: &MetadataReader<'_>,
    read: &DecoderConfig,
) -> Result<usize, ModelError> {
    let key = "attention.key_length_swa";
    let width: usize = keys.get(key)?;
    let widest = widest(gguf);
    let fits = |n: Option<usize>| n.is_some_and(|n| n > 0 && n as u64 <= widest);
    if !read.heads.iter().all(|&n| fits(n.checked_mul(width))) {
        return Err(keys.invalid(key, width, "no tensor of the file is that wide"));
    }
    let values: usize = keys.get("attention.value_length_swa")?;
    if values != width {
        let reason = "this architecture needs it equal to attention.key_length_swa";
        return Err(keys.invalid("attention.value_length_swa", values, reason));
    }
    Ok(width)
}

fn sliding_rope(
    keys: &MetadataReader<'_>,
    read: &DecoderConfig,
    width: usize,
) -> Result<RopeConfig, ModelError> {
    let key = "rope.dimension_count_swa";
    let n_rot: usize = keys.get_or(key, width)?;
    if n_rot == 0 || n_rot > width || !n_rot.is_multiple_of(2) {
        let reason = "it must be even, above 0 and at most attention.key_length_swa";
        return Err(keys.invalid(key, n_rot, reason));
    }
    let base = keys.positive("rope.freq_base_swa", Some(10_000.0))?;
    Ok(RopeConfig::new(n_rot, base, read.rope.style))
}

/// The divisors of full layers' frequencies; required where there are such layers.
fn divisors(
    gguf: &Gguf,
    keys: &MetadataReader<'_>,
    rope: &RopeConfig,
    sliding: &[bool],
) -> Result<Option<Vec<f32>>, ModelError> {
    if sliding.iter().all(|&sliding| sliding) {
        return Ok(None);
    }
    let info = gguf.require(ROPE_FREQS)?;
    let pairs = rope.n_rot / 2;
    if info.usable_type()? != GgmlType::F32 || info.shape() != [pairs as u64] {
        let found = format!("{ROPE_FREQS} has the type {:?}", info.usable_type()?);
        let reason = format!(
            "{found} and the shape {:?}; {pairs} values of F32 are expected",
            info.shape()
        );
        return Err(keys.invalid("rope.dimension_count", rope.n_rot, &reason));
    }
    let values = info.data().chunks_exact(4);
    let values: Vec<f32> = values
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    match values.iter().find(|v| !(v.is_finite() && **v > 0.0)) {
        Some(value) => Err(ModelError::InvalidValue {
            key: ROPE_FREQS.to_owned(),
            value: value.to_string(),
            reason: "its values must be finite numbers above 0".to_owned(),
        }),
        None => Ok(Some(values)),
    }
}

/// The layer whose cache each layer reads: the last layers have none, and read that of the last layer of their kind
/// that has.
fn caches(
    keys: &MetadataReader<'_>,
    read: &DecoderConfig,
    sliding: &[bool],
) -> Result<Vec<usize>, ModelError> {
    let key = "attention.shared_kv_layers";
    let shared: usize = keys.get_or(key, 0)?;
    let Some(own) = sliding.len().checked_sub(shared).filter(|&own| own > 0) else {
        return Err(keys.invalid(key, shared, "no layer is left that has keys of its own"));
    };
    let mut caches: Vec<usize> = (0..own).collect();
    for layer in own..sliding.len() {
        let source = (0..own).rev().find(|&i| sliding[i] == sliding[layer]);
        let Some(source) = source else {
            let reason = format!("layer {layer} has no earlier layer of its kind to share with");
            return Err(keys.invalid(key, shared, &reason));
        };
        if read.kv_heads[layer] != read.kv_heads[source] {
            let reason = format!("layer {layer} shares the {} heads", read.kv_heads[source]);
            let reason = format!("{reason} of layer {source}, so it must have as many");
            let heads = read.kv_heads[layer];
            return Err(keys.invalid("attention.head_count_kv", heads, &reason));
        }
        caches.push(source);
    }
    Ok(caches)
}

/// Width of each layer's own token embedding.
fn per_layer(
    gguf: &Gguf,
    keys: &MetadataReader<'_>,
    layers: usize,
) -> Result<Option<usize>, ModelError> {
    let key = "embedding_length_per_layer_input";
    let width: usize = keys.get(key)?;
    if width == 0 {
        return Ok(None);
    }
    let all = width.checked_mul(layers);
    match all.is_some_and(|n| n as u64 <= widest(gguf)) {
        true => Ok(Some(width)),
        false => Err(keys.invalid(key, width, "no tensor of the file is that wide")),
    }
}
