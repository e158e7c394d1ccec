//! A tower inside a text file, as Ollama's converters wrote it.
//!
//! They keep the checkpoint's names for most tensors of Qwen's tower, count DeepStack mergers instead of naming their
//! layers, and give no projector.

use burn_gguf::gguf::Gguf;

use super::super::processor::ProcessorKind;
use super::fit::towers;
use super::keys::Keys;
use super::{MmprojError, Tensors};

/// Parts of names that differ: Ollama's, and that of mmproj files.
const PARTS: &[(&str, &str)] = &[
    ("v.patch_embed.", "v.patch_embd."),
    ("v.pos_embed.", "v.position_embd."),
    ("v.merger.norm.", "v.post_ln."),
    ("v.merger.linear_fc1.", "mm.0."),
    ("v.merger.linear_fc2.", "mm.2."),
    (".norm1.", ".ln1."),
    (".norm2.", ".ln2."),
    (".mlp.linear_fc1.", ".ffn_up."),
    (".mlp.linear_fc2.", ".ffn_down."),
];

/// Names below this are numbered, not named by their layer.
const MERGERS: &str = "v.deepstack_merger.";

/// The layers of the DeepStack mergers, in the mergers' order.
pub(super) const INDEXES: &str = "deepstack_visual_indexes";

/// The projector that an architecture's files have where they do not say.
pub(super) fn projector(text: &Gguf, architecture: &str) -> Result<ProcessorKind, MmprojError> {
    match towers(architecture) {
        [] => Err(MmprojError::TextOnly {
            file: text.file().clone(),
            architecture: architecture.to_owned(),
        }),
        // Gemma 4's two towers: one has blocks, the other only norms around its patches.
        kinds if text.tensor("v.patch_norm.1.weight").is_some() => {
            let unified = kinds.iter().find(|&&k| k == ProcessorKind::Gemma4Uv);
            Ok(*unified.unwrap_or(&kinds[0]))
        }
        kinds => Ok(kinds[0]),
    }
}

/// The tensors by the names of mmproj files.
pub(super) fn tensors(keys: &Keys<'_>, found: Tensors) -> Result<Tensors, MmprojError> {
    let layers: Option<Vec<usize>> = keys.get(INDEXES)?;
    let names = found.names.into_iter().map(|(_, name)| {
        let known = match name.strip_prefix(MERGERS) {
            Some(rest) => merger(keys, layers.as_deref(), &name, rest)?,
            None => PARTS.iter().fold(name.clone(), |known, (theirs, ours)| {
                known.replacen(theirs, ours, 1)
            }),
        };
        Ok((known, name))
    });
    Ok(Tensors::new(names.collect::<Result<_, MmprojError>>()?))
}

fn merger(
    keys: &Keys<'_>,
    layers: Option<&[usize]>,
    name: &str,
    rest: &str,
) -> Result<String, MmprojError> {
    let (number, part) = rest.split_once('.').unwrap_or((rest, ""));
    let layer = number
        .parse::<usize>()
        .ok()
        .and_then(|n| layers.unwrap_or_default().get(n));
    let Some(layer) = layer else {
        let value = layers.map_or("missing".to_owned(), |layers| format!("{layers:?}"));
        let reason = format!("it must list the layer of tensor `{name}`");
        return Err(keys.invalid(INDEXES, value, reason));
    };
    let part = part.replacen("linear_", "", 1);
    Ok(format!("v.deepstack.{layer}.{part}"))
}
