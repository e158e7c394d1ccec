//! Configuration from metadata.

use burn_gguf::gguf::Gguf;
use burn_gguf::ops::GluActivation;

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::families::experts::{shared_width, sigmoid_experts};
use crate::layers::{IndexerConfig, MoeConfig, QkNorm};

const ARCHITECTURE: &str = "minimax-m3";

/// `minimax-m3`: per-head norms, a part of each head rotating, and behind the dense layers an indexer and experts beside a
/// shared one.
///
/// # Errors
/// A missing or contradictory key.
pub fn config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), ARCHITECTURE);
    let read = DecoderConfig::read(gguf, ARCHITECTURE)?;
    // There is no tied form of this family.
    gguf.require("output.weight")?;
    let layers = read.layers();
    let dense_lead: usize = keys.get_or("leading_dense_block_count", 0)?;
    if dense_lead > layers {
        let reason = format!("there are {layers} layers");
        return Err(keys.invalid("leading_dense_block_count", dense_lead, &reason));
    }
    // The rows of a weight of this layer: keys of widths differ between converters.
    let rows = |layer: usize, name: &str| {
        let tensor = gguf.tensor(&format!("blk.{layer}.{name}.weight"))?;
        tensor.shape().get(1).map(|&rows| rows as usize)
    };
    let intermediate = (0..layers)
        .map(|layer| rows(layer, "ffn_gate").unwrap_or(read.intermediate[layer]))
        .collect();
    let model = DecoderConfig {
        qk_norm: QkNorm::Head,
        activation: GluActivation::SwigluOai,
        intermediate,
        dense_lead,
        ..read
    };
    if dense_lead == layers {
        return Ok(model);
    }
    let experts = sigmoid_experts(gguf, &model)?;
    let fused = rows(dense_lead, "ffn_gate_up_exps").map(|rows| rows / 2);
    let width = rows(dense_lead, "ffn_gate_exps").or(fused);
    Ok(DecoderConfig {
        moe: Some(MoeConfig {
            intermediate: width.unwrap_or(experts.intermediate),
            shared: shared_width(gguf),
            ..experts
        }),
        indexer: Some(indexer(&keys, gguf, &model)?),
        ..model
    })
}

fn indexer(
    keys: &MetadataReader<'_>,
    gguf: &Gguf,
    model: &DecoderConfig,
) -> Result<IndexerConfig, ModelError> {
    let heads: usize = keys.get("attention.indexer.head_count")?;
    if let Some(kv_heads) = model.kv_heads[model.dense_lead..]
        .iter()
        .find(|&&kv_heads| kv_heads != heads)
    {
        let reason = format!("a layer has {kv_heads} key/value heads, and each needs one");
        return Err(keys.invalid("attention.indexer.head_count", heads, &reason));
    }
    let head_dim: usize = keys.get("attention.indexer.key_length")?;
    let name = format!("blk.{}.indexer.k_proj.weight", model.dense_lead);
    let shape = gguf.require(&name)?.shape();
    if shape.get(1) != Some(&(head_dim as u64)) {
        let reason = format!("tensor \"{name}\" has the shape {shape:?}");
        return Err(keys.invalid("attention.indexer.key_length", head_dim, &reason));
    }
    if head_dim < model.rope.n_rot {
        let reason = format!("{} values of a head rotate", model.rope.n_rot);
        return Err(keys.invalid("attention.indexer.key_length", head_dim, &reason));
    }
    let positive = |key: &str| -> Result<usize, ModelError> {
        match keys.get(key)? {
            0 => Err(keys.invalid(key, 0, "it must be at least 1")),
            value => Ok(value),
        }
    };
    let block_size = positive("attention.indexer.block_size")?;
    let top = positive("attention.indexer.top_k")?;
    let local: usize = keys.get("attention.indexer.local_blocks")?;
    if local > top {
        let reason = format!("a token sees {top} blocks (attention.indexer.top_k)");
        return Err(keys.invalid("attention.indexer.local_blocks", local, &reason));
    }
    Ok(IndexerConfig {
        hidden: model.hidden,
        heads,
        head_dim,
        block_size,
        top,
        local,
        eps: model.eps,
    })
}
