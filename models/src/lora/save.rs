//! Writing adapter files.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use burn::module::{Module, ParamId};
use burn_gguf::GgmlType;
use burn_gguf::gguf::GgufWriter;
use burn_gguf::nn::lora_adapters;

use super::{A, ADAPTER_TYPE_KEY, ALPHA_KEY, B, LoraError, TYPE_KEY};

/// Writes the adapters of `module` as a GGUF file that this crate and llama.cpp apply to the model's file, and returns its
/// size in bytes. `names` are those of the module's weights in that file
/// ([`LoadReport::weights`](crate::LoadReport::weights)), `architecture` is its `general.architecture`.
///
/// # Errors
/// If there are no adapters, a layer has several, they differ in alpha (`scale * rank`), or the file cannot be written.
pub fn save_lora<M: Module>(
    path: impl AsRef<Path>,
    module: &M,
    architecture: &str,
    names: &HashMap<ParamId, String>,
) -> Result<u64, LoraError> {
    let adapters = lora_adapters(module);
    let Some(alpha) = adapters
        .first()
        .map(|a| a.weights.scale * a.weights.rank as f32)
    else {
        return Err(LoraError::NothingToSave);
    };
    let mut writer = GgufWriter::new();
    writer
        .metadata("general.architecture", architecture)
        .metadata(TYPE_KEY, "adapter")
        .metadata(ADAPTER_TYPE_KEY, "lora")
        .metadata(ALPHA_KEY, alpha);
    let mut written = HashSet::new();
    for adapter in adapters {
        let (target, weights) = (adapter.target, adapter.weights);
        let Some(weight) = names.get(&target.weight) else {
            return Err(LoraError::Unnamed { path: target.path });
        };
        if !written.insert(weight) {
            return Err(LoraError::Several {
                weight: weight.clone(),
            });
        }
        let found = weights.scale * weights.rank as f32;
        // The file stores alpha; the division by the rank may round.
        if (found - alpha).abs() > 1e-5 * alpha.abs() {
            return Err(LoraError::Alphas {
                weight: weight.clone(),
                found,
                first: alpha,
            });
        }
        let rank = weights.rank as u64;
        let bytes =
            |values: Vec<f32>| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        writer
            .tensor(
                format!("{weight}{A}"),
                &[target.d_input as u64, rank],
                GgmlType::F32,
                bytes(weights.a),
            )
            .tensor(
                format!("{weight}{B}"),
                &[rank, target.d_output as u64],
                GgmlType::F32,
                bytes(weights.b),
            );
    }
    Ok(writer.write_file(path)?)
}
