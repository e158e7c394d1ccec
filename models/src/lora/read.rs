//! Reading adapter files.

use std::collections::{BTreeMap, HashMap};

use burn::module::{Module, ParamId};
use burn::tensor::{Device, FloatDType};
use burn_gguf::GgmlTensor;
use burn_gguf::gguf::{FileName, Gguf, TensorInfo};
use burn_gguf::nn::{LoraTarget, LoraWeights, attach_lora, lora_targets};

use super::{A, ADAPTER_TYPE_KEY, ALPHA_KEY, B, INVOCATION_KEY, LoraError, LoraFile, TYPE_KEY};

/// Applies an adapter file to a loaded model; `names` are those of its weights in the model's file.
///
/// # Errors
/// A file that is no adapter, was made for another architecture, or does not fit the model.
pub(crate) fn attach<M: Module>(
    module: M,
    lora: &LoraFile,
    architecture: &str,
    names: &HashMap<ParamId, String>,
) -> Result<M, LoraError> {
    let gguf = Gguf::open(&lora.path)?;
    let file = gguf.file();
    let alpha = check(&gguf, architecture)?;
    if !lora.scale.is_finite() {
        return Err(LoraError::Scale {
            file: file.clone(),
            what: "scale asked for",
            value: lora.scale,
        });
    }
    let mut pairs = pairs(&gguf)?;
    if pairs.is_empty() {
        return Err(LoraError::Empty { file: file.clone() });
    }
    let targets = lora_targets(&module);
    let device = module.devices().into_iter().next().unwrap_or_default();
    let mut ready = HashMap::new();
    for target in targets {
        let Some(name) = names.get(&target.weight) else {
            continue;
        };
        if let Some((a, b)) = pairs.remove(name.as_str()) {
            let weights = read_pair(file, name, a, b, &target, &device)?;
            let strength = match alpha {
                0.0 => 1.0,
                alpha => alpha / weights.rank as f32,
            };
            let scale = lora.scale * strength;
            let mut values = weights.a.iter().chain(&weights.b);
            if !scale.is_finite() || values.any(|v| !v.is_finite()) {
                return Err(LoraError::NotFinite {
                    file: file.clone(),
                    weight: name.clone(),
                });
            }
            ready.insert(target.path, LoraWeights { scale, ..weights });
        }
    }
    if let Some(weight) = pairs.into_keys().next() {
        return Err(LoraError::NoTarget {
            file: file.clone(),
            weight: weight.to_owned(),
        });
    }
    attach_lora(module, |target| Ok(ready.remove(&target.path)))
}

/// Checks the metadata and returns alpha.
fn check(gguf: &Gguf, architecture: &str) -> Result<f32, LoraError> {
    let metadata = gguf.metadata();
    let file = || gguf.file().clone();
    for (key, expected) in [(TYPE_KEY, "adapter"), (ADAPTER_TYPE_KEY, "lora")] {
        let value: String = metadata.get_or(key, String::new())?;
        if value != expected {
            return Err(LoraError::NotAnAdapter {
                file: file(),
                key,
                value,
                expected,
            });
        }
    }
    let found = metadata.architecture()?;
    if found != architecture {
        return Err(LoraError::OtherArchitecture {
            file: file(),
            found: found.to_owned(),
            expected: architecture.to_owned(),
        });
    }
    if metadata.contains(INVOCATION_KEY) {
        return Err(LoraError::Activated {
            file: file(),
            key: INVOCATION_KEY,
        });
    }
    let alpha: f32 = metadata.get_or(ALPHA_KEY, 0.0)?;
    match alpha.is_finite() {
        true => Ok(alpha),
        false => Err(LoraError::Scale {
            file: file(),
            what: "alpha",
            value: alpha,
        }),
    }
}

/// Both matrices of each adapted weight.
fn pairs(gguf: &Gguf) -> Result<BTreeMap<&str, (&TensorInfo, &TensorInfo)>, LoraError> {
    let mut halves: BTreeMap<&str, [Option<&TensorInfo>; 2]> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let name = tensor.name();
        let half = [A, B]
            .iter()
            .enumerate()
            .find_map(|(i, suffix)| Some((i, name.strip_suffix(suffix)?)));
        let Some((i, weight)) = half else {
            return Err(LoraError::UnknownTensor {
                file: gguf.file().clone(),
                tensor: name.to_owned(),
            });
        };
        halves.entry(weight).or_default()[i] = Some(tensor);
    }
    let mut pairs = BTreeMap::new();
    for (weight, halves) in halves {
        match halves {
            [Some(a), Some(b)] => pairs.insert(weight, (a, b)),
            [a, b] => {
                return Err(LoraError::Unpaired {
                    file: gguf.file().clone(),
                    found: a.or(b).map_or("", |t| t.name()).to_owned(),
                });
            }
        };
    }
    Ok(pairs)
}

/// The numbers of an adapter, with a scale of 1.
fn read_pair(
    file: &FileName,
    weight: &str,
    a: &TensorInfo,
    b: &TensorInfo,
    target: &LoraTarget,
    device: &Device,
) -> Result<LoraWeights, LoraError> {
    let dims = |t: &TensorInfo| {
        let mut dims = t.shape().to_vec();
        while dims.len() > 2 && dims.last() == Some(&1) {
            dims.pop();
        }
        dims.resize(2, 1);
        dims
    };
    let ([a_in, a_rank], [b_rank, b_out]) = ([dims(a)[0], dims(a)[1]], [dims(b)[0], dims(b)[1]]);
    let plain = a.n_elements() == a_in.saturating_mul(a_rank)
        && b.n_elements() == b_rank.saturating_mul(b_out);
    let fits = a_in == target.d_input as u64
        && b_out == target.d_output as u64
        && a_rank == b_rank
        && a_rank > 0;
    if !(plain && fits) {
        return Err(LoraError::Shape {
            file: file.clone(),
            weight: weight.to_owned(),
            shapes: format!("{:?} and {:?}", a.shape(), b.shape()),
            d_input: target.d_input,
            d_output: target.d_output,
        });
    }
    let floats = |tensor: &TensorInfo| -> Result<Vec<f32>, LoraError> {
        let packed = GgmlTensor::from_gguf(tensor, device).map_err(|source| LoraError::Tensor {
            file: file.clone(),
            source: Box::new(source),
        })?;
        let values = packed.dequantize(FloatDType::F32).into_data();
        Ok(values.iter::<f32>().collect())
    };
    Ok(LoraWeights {
        rank: a_rank as usize,
        a: floats(a)?,
        b: floats(b)?,
        scale: 1.0,
    })
}
