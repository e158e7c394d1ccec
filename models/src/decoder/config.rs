//! Configuration of a dense decoder and the metadata all families share.

use burn_gguf::gguf::{FromValue, Gguf, GgufError, Metadata, Value};
use burn_gguf::ops::{GluActivation, RopeStyle};

use crate::error::ModelError;
use crate::layers::{
    AttentionGate, DeltaNetConfig, IndexerConfig, MoeConfig, QkNorm, RopeConfig, Yarn,
};

/// Shape and options of a [`DenseDecoder`](super::DenseDecoder).
#[derive(Clone, Debug)]
pub struct DecoderConfig {
    /// `general.architecture`.
    pub architecture: String,
    /// Tokens in the vocabulary: rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of each layer's MLP.
    pub intermediate: Vec<usize>,
    /// Query heads of each layer.
    pub heads: Vec<usize>,
    /// Key/value heads of each layer.
    pub kv_heads: Vec<usize>,
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Positions the model was made for.
    pub context_length: usize,
    /// Rotary embedding of full-attention layers.
    pub rope: RopeConfig,
    /// Rotary embedding of sliding-window layers.
    pub rope_sliding: RopeConfig,
    /// Sliding window of each layer, `None` for full attention.
    pub windows: Vec<Option<usize>>,
    /// Factor on attention scores.
    pub attention_scale: f32,
    /// Factor on token embeddings.
    pub embedding_scale: Option<f32>,
    /// Experts in place of the MLP of each layer from [`dense_lead`](Self::dense_lead) on.
    pub moe: Option<MoeConfig>,
    /// Layers in front that have an MLP and see all keys.
    pub dense_lead: usize,
    /// The choice of the blocks of keys that layers from [`dense_lead`](Self::dense_lead) on see.
    pub indexer: Option<IndexerConfig>,
    /// The MLP's activation.
    pub activation: GluActivation,
    /// Whether each layer's query, key and value projections have biases.
    pub qkv_bias: bool,
    /// How queries and keys are normalized.
    pub qk_norm: QkNorm,
    /// The gate on what attention found.
    pub attention_gate: AttentionGate,
    /// The delta net of layers that have one in place of attention, and whether the file joins its strength and decay.
    pub delta_net: Option<(DeltaNetConfig, bool)>,
    /// Which layers those are; none where the list is empty.
    pub recurrent: Vec<bool>,
    /// Epsilon of the norms of attention's and the MLP's outputs, where there are such (Gemma).
    pub post_norms: Option<f32>,
    /// Whether full-attention layers know no positions.
    pub nope_full: bool,
    /// Epsilon of a norm without weights over what the first layer reads.
    pub input_norm: Option<f32>,
    /// Factor on the logits.
    pub logit_scale: Option<f32>,
    /// Logits become `cap * tanh(logits / cap)`.
    pub logit_softcap: Option<f32>,
    /// Layers behind which images add to the residual stream (DeepStack), from the first on.
    pub deepstack: usize,
    /// Whether the head shares the embedding's blocks (no `output.weight` in the file).
    pub tied_output: bool,
}

impl DecoderConfig {
    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.heads.len()
    }

    /// Reads the keys all dense families share. Families then set what they do otherwise.
    ///
    /// # Errors
    /// A missing or mistyped key, or values that contradict each other.
    pub fn read(gguf: &Gguf, architecture: &str) -> Result<Self, ModelError> {
        let keys = MetadataReader::new(gguf.metadata(), architecture);
        let blocks: usize = keys.get("block_count")?;
        let nextn: usize = keys.get_or("nextn_predict_layers", 0)?;
        let layers = blocks
            .checked_sub(nextn)
            .filter(|&n| n > 0)
            .ok_or_else(|| keys.invalid("block_count", blocks, "no layer is left to run"))?;
        if blocks > gguf.tensors().len() {
            return Err(keys.invalid(
                "block_count",
                blocks,
                "the file has fewer tensors than that",
            ));
        }
        // A block that predicts further tokens says so in its tensors.
        let predicts = |i: usize| {
            let prefix = format!("blk.{i}.nextn.");
            gguf.tensors()
                .any(|tensor| tensor.name().starts_with(&prefix))
        };
        if let Some(block) = (0..blocks).find(|&i| predicts(i) != (i >= layers)) {
            let reason = match block < layers {
                true => format!("block {block} has tensors of such a layer (\"nextn\")"),
                false => format!("block {block} has no tensors of such a layer (\"nextn\")"),
            };
            return Err(keys.invalid("nextn_predict_layers", nextn, &reason));
        }
        let per_layer = |key: &str| -> Result<Vec<usize>, ModelError> {
            let mut values: Vec<usize> = keys.per_layer(key, blocks)?;
            values.truncate(layers);
            Ok(values)
        };
        let hidden: usize = keys.get("embedding_length")?;
        let heads = per_layer("attention.head_count")?;
        let kv_heads = if keys.has("attention.head_count_kv") {
            per_layer("attention.head_count_kv")?
        } else {
            heads.clone()
        };
        if let Some(&count) = heads.iter().find(|&&n| n == 0) {
            let reason = "there must be at least one";
            return Err(keys.invalid("attention.head_count", count, reason));
        }
        if let Some(layer) = (0..layers)
            .find(|&i| kv_heads[i] == 0 || heads[i] == 0 || !heads[i].is_multiple_of(kv_heads[i]))
        {
            return Err(keys.invalid(
                "attention.head_count_kv",
                kv_heads[layer],
                "query heads must be a multiple of key/value heads",
            ));
        }
        let head_dim: usize = keys.get_or("attention.key_length", hidden / heads[0])?;
        let value_dim: usize = keys.get_or("attention.value_length", head_dim)?;
        if value_dim != head_dim {
            return Err(keys.invalid(
                "attention.value_length",
                value_dim,
                "this architecture needs it equal to attention.key_length",
            ));
        }
        // Models of experts alone may leave it out.
        let intermediate = match keys.has("feed_forward_length") || !keys.has("expert_count") {
            true => per_layer("feed_forward_length")?,
            false => vec![1; layers],
        };
        // The module is laid out before its tensors are looked at: refuse what no tensor of the file can fill.
        let widest = gguf.tensors().map(|t| t.n_elements()).max().unwrap_or(0);
        let fits = |width: Option<usize>| width.is_some_and(|w| w > 0 && w as u64 <= widest);
        let reason = "no tensor of the file is that wide";
        if !fits(Some(hidden)) {
            return Err(keys.invalid("embedding_length", hidden, reason));
        }
        if let Some(&width) = intermediate.iter().find(|&&w| !fits(Some(w))) {
            return Err(keys.invalid("feed_forward_length", width, reason));
        }
        if !heads.iter().all(|&n| fits(n.checked_mul(head_dim))) {
            return Err(keys.invalid("attention.key_length", head_dim, reason));
        }
        let context_length: usize = keys.get("context_length")?;
        let rope = keys.rope(head_dim, context_length)?;
        let embedding = gguf.require("token_embd.weight")?;
        let vocab_size = embedding.shape().get(1).map_or(0, |&n| n as usize);
        Ok(Self {
            architecture: architecture.to_string(),
            vocab_size,
            hidden,
            intermediate,
            heads,
            kv_heads,
            head_dim,
            eps: keys.positive("attention.layer_norm_rms_epsilon", None)? as f32,
            context_length,
            rope_sliding: rope.clone(),
            rope,
            windows: vec![None; layers],
            attention_scale: 1.0 / (head_dim as f32).sqrt(),
            embedding_scale: None,
            moe: None,
            dense_lead: 0,
            indexer: None,
            activation: GluActivation::Silu,
            qkv_bias: gguf.tensors().any(|t| is_qkv_bias(t.name())),
            qk_norm: QkNorm::None,
            attention_gate: AttentionGate::None,
            delta_net: None,
            recurrent: Vec::new(),
            post_norms: None,
            nope_full: false,
            input_norm: None,
            logit_scale: None,
            logit_softcap: None,
            deepstack: 0,
            tied_output: gguf.tensor("output.weight").is_none(),
        })
    }
}

/// Whether a tensor is the bias of a query, key or value projection. One is enough to ask for all of them: a file
/// that lacks some must not pass for one without any.
fn is_qkv_bias(name: &str) -> bool {
    let part = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'));
    part.is_some_and(|(_, part)| {
        matches!(
            part,
            "attn_q.bias" | "attn_k.bias" | "attn_v.bias" | "attn_qkv.bias"
        )
    })
}

/// Reads metadata keys under an architecture's prefix.
pub struct MetadataReader<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl<'a> MetadataReader<'a> {
    /// Keys are read as `architecture.key`.
    pub fn new(metadata: &'a Metadata, architecture: &'a str) -> Self {
        Self {
            metadata,
            architecture,
        }
    }

    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// Whether the key is present.
    pub fn has(&self, key: &str) -> bool {
        self.metadata.value(&self.full(key)).is_some()
    }

    /// A required key.
    ///
    /// # Errors
    /// If it is absent or of another kind.
    pub fn get<T: FromValue<'a>>(&self, key: &str) -> Result<T, GgufError> {
        self.metadata.get(&self.full(key))
    }

    /// An optional key.
    ///
    /// # Errors
    /// If it is of another kind.
    pub fn get_or<T: FromValue<'a>>(&self, key: &str, default: T) -> Result<T, GgufError> {
        self.metadata.get_or(&self.full(key), default)
    }

    /// A key that holds one value for all layers or an array of one per layer.
    ///
    /// # Errors
    /// If it is absent, of another kind, or an array of another length.
    pub fn per_layer<T: FromValue<'a> + Clone>(
        &self,
        key: &str,
        layers: usize,
    ) -> Result<Vec<T>, GgufError> {
        self.metadata.per_layer(&self.full(key), layers)
    }

    /// A finite number above 0; `default` where the key is absent.
    ///
    /// # Errors
    /// If it is anything else, or absent without a default.
    pub fn positive(&self, key: &str, default: Option<f64>) -> Result<f64, ModelError> {
        let value: f64 = match default {
            Some(default) => self.get_or(key, default)?,
            None => self.get(key)?,
        };
        // Below this, f32 arithmetic on it loses all digits.
        match value.is_finite() && value >= f64::from(f32::MIN_POSITIVE) {
            true => Ok(value),
            false => Err(self.invalid(key, value, "it must be a finite number above 0")),
        }
    }

    /// An error about this key's value.
    pub fn invalid(&self, key: &str, value: impl ToString, reason: &str) -> ModelError {
        ModelError::InvalidValue {
            key: self.full(key),
            value: value.to_string(),
            reason: reason.to_string(),
        }
    }

    /// Which layers have a sliding window (`attention.sliding_window_pattern`): a boolean for each, or every `n`-th has
    /// none (`default` where the key is absent).
    ///
    /// # Errors
    /// A key of another kind, or a list of another length.
    pub fn sliding_layers(&self, layers: usize, default: usize) -> Result<Vec<bool>, ModelError> {
        let key = "attention.sliding_window_pattern";
        let list = matches!(self.metadata.value(&self.full(key)), Some(Value::Array(_)));
        if list {
            return Ok(self.per_layer(key, layers)?);
        }
        let n: usize = self.get_or(key, default)?;
        Ok((0..layers).map(|i| n == 0 || i % n < n - 1).collect())
    }

    /// How the pairs of a head divide among time, row and column (`rope.dimension_sections`).
    ///
    /// # Errors
    /// If the key is absent or no list of three or four numbers, or the sections have more pairs than a head.
    pub fn rope_sections(&self, n_rot: usize) -> Result<[usize; 3], ModelError> {
        let key = "rope.dimension_sections";
        let sections: Vec<i64> = self.get(key)?;
        let reason = "expected three or four numbers of at least 0 that add up to at most half the rotated width";
        let bad = || self.invalid(key, format!("{sections:?}"), reason);
        let sizes: Vec<usize> = sections
            .iter()
            .map(|&n| usize::try_from(n).ok().filter(|&n| n <= n_rot))
            .collect::<Option<_>>()
            .ok_or_else(bad)?;
        let sum: usize = sizes.iter().sum();
        match sizes[..] {
            [t, h, w] | [t, h, w, 0] if sum > 0 && sum <= n_rot / 2 => Ok([t, h, w]),
            _ => Err(bad()),
        }
    }

    /// The rotary embedding of full-attention layers.
    ///
    /// # Errors
    /// A mistyped key, an odd rotated width, or a scaling type that is not known.
    pub fn rope(&self, head_dim: usize, context: usize) -> Result<RopeConfig, ModelError> {
        let n_rot: usize = self.get_or("rope.dimension_count", head_dim)?;
        if n_rot > head_dim || !n_rot.is_multiple_of(2) || n_rot == 0 {
            return Err(self.invalid(
                "rope.dimension_count",
                n_rot,
                "it must be even, above 0 and at most the head width",
            ));
        }
        let base = self.positive("rope.freq_base", Some(10_000.0))?;
        let mut rope = RopeConfig::new(n_rot, base, RopeStyle::Neox);
        let kind: String = self.get_or("rope.scaling.type", "linear".to_string())?;
        let factor: f64 = self.get_or(
            "rope.scaling.factor",
            self.get_or("rope.scale_linear", 0.0)?,
        )?;
        if !(factor.is_finite() && factor >= 0.0) {
            let reason = "it must be a finite number of at least 0 (0 is none)";
            return Err(self.invalid("rope.scaling.factor", factor, reason));
        }
        let factor = if factor > 0.0 { factor } else { 1.0 };
        rope.attn_factor = self.get_or("rope.scaling.attn_factor", 1.0)?;
        match kind.as_str() {
            "none" => {}
            "linear" => rope.freq_scale = 1.0 / factor,
            "yarn" => {
                rope.freq_scale = 1.0 / factor;
                rope.yarn = Some(Yarn {
                    original_context: self
                        .get_or("rope.scaling.original_context_length", context)?,
                    ext_factor: self.get_or("rope.scaling.yarn_ext_factor", 1.0)?,
                    beta_fast: self.get_or("rope.scaling.yarn_beta_fast", 32.0)?,
                    beta_slow: self.get_or("rope.scaling.yarn_beta_slow", 1.0)?,
                });
            }
            other => {
                return Err(self.invalid(
                    "rope.scaling.type",
                    other,
                    "known are none, linear and yarn",
                ));
            }
        }
        Ok(rope)
    }
}
