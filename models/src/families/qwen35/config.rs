//! Configuration from metadata.

use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::families::experts::experts_beside_a_shared_one;
use crate::layers::{AttentionGate, DeltaNetConfig, QkNorm};

/// `qwen35`: delta nets, and every few layers gated attention whose heads rotate in part, by three axes.
///
/// # Errors
/// A missing or contradictory key.
pub fn config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    rotating_by_axes(gguf, read(gguf, "qwen35")?)
}

/// `qwen35moe`: the same with experts in every layer.
///
/// # Errors
/// A missing or contradictory key.
pub fn moe_config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let config = rotating_by_axes(gguf, read(gguf, "qwen35moe")?)?;
    Ok(DecoderConfig {
        moe: Some(experts_beside_a_shared_one(gguf, &config)?),
        ..config
    })
}

/// `qwen3next`: as `qwen35moe`, with one axis, and the value heads of a key head side by side.
///
/// # Errors
/// A missing or contradictory key.
pub fn next_config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let mut config = read(gguf, "qwen3next")?;
    if let Some((net, joined)) = &mut config.delta_net {
        net.grouped = true;
        *joined = true;
    }
    Ok(DecoderConfig {
        moe: Some(experts_beside_a_shared_one(gguf, &config)?),
        ..config
    })
}

fn rotating_by_axes(gguf: &Gguf, mut config: DecoderConfig) -> Result<DecoderConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), &config.architecture);
    config.rope.sections = Some(keys.rope_sections(config.rope.n_rot)?);
    Ok(config)
}

fn read(gguf: &Gguf, architecture: &str) -> Result<DecoderConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), architecture);
    let config = DecoderConfig::read(gguf, architecture)?;
    let layers = config.layers();
    let recurrent = match keys.has("attention.recurrent_layers") {
        true => {
            let blocks: usize = keys.get("block_count")?;
            let mut list: Vec<bool> = keys.per_layer("attention.recurrent_layers", blocks)?;
            list.truncate(layers);
            list
        }
        false => {
            let interval: usize = keys.get_or("full_attention_interval", 4)?;
            if interval == 0 {
                let reason = "it must be at least 1";
                return Err(keys.invalid("full_attention_interval", interval, reason));
            }
            (0..layers)
                .map(|i| !(i + 1).is_multiple_of(interval))
                .collect()
        }
    };
    let delta_net = delta_net(&keys, gguf, &config)?;
    Ok(DecoderConfig {
        qk_norm: QkNorm::Head,
        attention_gate: AttentionGate::InQuery,
        delta_net: Some((delta_net, false)),
        recurrent,
        ..config
    })
}

fn delta_net(
    keys: &MetadataReader<'_>,
    gguf: &Gguf,
    model: &DecoderConfig,
) -> Result<DeltaNetConfig, ModelError> {
    let widest = gguf.tensors().map(|t| t.n_elements()).max().unwrap_or(0);
    // Refused before anything of that size is laid out.
    let size = |key: &str| -> Result<usize, ModelError> {
        let value: usize = keys.get(key)?;
        match value > 0 && value as u64 <= widest {
            true => Ok(value),
            false => Err(keys.invalid(key, value, "no tensor of the file is of that size")),
        }
    };
    let kernel = size("ssm.conv_kernel")?;
    let head_dim = size("ssm.state_size")?;
    let key_heads = size("ssm.group_count")?;
    let value_heads = size("ssm.time_step_rank")?;
    let inner = size("ssm.inner_size")?;
    if !value_heads.is_multiple_of(key_heads) {
        let reason = format!("it must be a multiple of ssm.group_count, {key_heads}");
        return Err(keys.invalid("ssm.time_step_rank", value_heads, &reason));
    }
    if value_heads.checked_mul(head_dim) != Some(inner) {
        let reason = format!("{value_heads} heads of {head_dim} values are expected");
        return Err(keys.invalid("ssm.inner_size", inner, &reason));
    }
    Ok(DeltaNetConfig {
        hidden: model.hidden,
        kernel,
        key_heads,
        value_heads,
        head_dim,
        grouped: false,
        eps: model.eps,
        arithmetic: Arithmetic::default(),
    })
}
