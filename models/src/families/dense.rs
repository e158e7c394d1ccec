//! Loading a dense decoder by its family's binding table.

use burn::tensor::Device;
use burn_gguf::gguf::{Gguf, GgufError, RowSplit};

use super::experts::EXPERT_BINDINGS;
use crate::decoder::{DecoderConfig, DenseDecoder};
use crate::error::ModelError;
use crate::layers::AttentionGate;
use crate::load::{self, LoadOptions, LoadReport};
use crate::model::TextModel;
use crate::placement::Placement;

/// GGUF tensor names of the parts all dense decoders share, and the module paths they fill.
pub const SHARED_BINDINGS: &[(&str, &str)] = &[
    ("token_embd.weight", "embedding.weight"),
    ("output_norm.weight", "output_norm.weight"),
    ("output.weight", "output.weight"),
    ("blk.{}.attn_norm.weight", "layers.{}.attention_norm.weight"),
    ("blk.{}.attn_q.weight", "layers.{}.attention.q.weight"),
    ("blk.{}.attn_k.weight", "layers.{}.attention.k.weight"),
    ("blk.{}.attn_v.weight", "layers.{}.attention.v.weight"),
    (
        "blk.{}.attn_output.weight",
        "layers.{}.attention.output.weight",
    ),
    (
        "blk.{}.attn_q_norm.weight",
        "layers.{}.attention.q_norm.weight",
    ),
    (
        "blk.{}.attn_k_norm.weight",
        "layers.{}.attention.k_norm.weight",
    ),
    ("blk.{}.ffn_norm.weight", "layers.{}.mlp_norm.weight"),
    ("blk.{}.ffn_gate.weight", "layers.{}.mlp.gate.weight"),
    ("blk.{}.ffn_up.weight", "layers.{}.mlp.up.weight"),
    ("blk.{}.ffn_down.weight", "layers.{}.mlp.down.weight"),
];

/// Builds the module of `config` on `device` and fills it from the file, by the shared bindings and the family's own.
pub fn load_decoder(
    gguf: &Gguf,
    config: &DecoderConfig,
    bindings: &[(&str, &str)],
    device: &Device,
    options: LoadOptions,
) -> Result<(DenseDecoder, LoadReport), ModelError> {
    let gguf = with_queries_keys_and_values_apart(gguf, config)?;
    let placement = Placement::plan(&gguf, config.layers(), device, &options.placement)?;
    let model = DenseDecoder::placed(config, options.arithmetic, &placement);
    let tables: &[&[_]] = &[SHARED_BINDINGS, EXPERT_BINDINGS, bindings];
    let (model, mut report) = load::load_module(&gguf, model, tables, options)?;
    set_aside(&mut report, config.layers());
    Ok((model, report))
}

/// Tells tensors of blocks behind the last layer from those that are left over.
pub(super) fn set_aside(report: &mut LoadReport, layers: usize) {
    (report.skipped, report.unused) = std::mem::take(&mut report.unused)
        .into_iter()
        .partition(|name| block(name).is_some_and(|block| block >= layers));
}

/// The file with each `attn_qkv` of a layer with attention seen as what it holds: the rows of queries, keys and values.
fn with_queries_keys_and_values_apart(
    gguf: &Gguf,
    config: &DecoderConfig,
) -> Result<Gguf, GgufError> {
    let mut splits = Vec::new();
    for layer in (0..config.layers()).filter(|&i| config.recurrent.get(i) != Some(&true)) {
        let name = |part: &str, kind: &str| format!("blk.{layer}.{part}.{kind}");
        let gates = match config.attention_gate {
            AttentionGate::InQuery => 2,
            _ => 1,
        };
        let rows = |heads: usize| (heads * config.head_dim) as u64;
        let (q, kv) = (
            gates * rows(config.heads[layer]),
            rows(config.kv_heads[layer]),
        );
        for kind in ["weight", "bias"] {
            let tensor = name("attn_qkv", kind);
            if gguf.tensor(&tensor).is_some() {
                let parts = [("attn_q", q), ("attn_k", kv), ("attn_v", kv)];
                splits.push(RowSplit {
                    tensor,
                    parts: parts.map(|(part, rows)| (name(part, kind), rows)).to_vec(),
                });
            }
        }
    }
    gguf.with_row_splits(&splits)
}

/// The block a tensor belongs to.
fn block(name: &str) -> Option<usize> {
    let (number, _) = name.strip_prefix("blk.")?.split_once('.')?;
    number.parse().ok()
}

/// As [`load_module`], for any text model.
pub(super) fn load(
    gguf: &Gguf,
    config: &DecoderConfig,
    bindings: &[(&str, &str)],
    device: &Device,
    options: LoadOptions,
) -> Result<(Box<dyn TextModel>, LoadReport), ModelError> {
    let (model, report) = load_decoder(gguf, config, bindings, device, options)?;
    Ok((Box::new(model), report))
}
