//! Saving a module.

use std::collections::HashMap;

use burn_gguf_kernels::GgmlType;
use burn_store::burn_pack::Tensor as PackTensor;
use burn_store::{ModuleSnapshot, bridge};

use super::apply::{ggml_paths, scale_name};
use super::dense::{dequantize, encode};
use super::{GgufStore, GgufStoreError};
use crate::gguf::GgufWriter;
use crate::nn::{Description, LAYOUT_FIELD, LORA_FIELD, WORDS_FIELD};

pub(super) fn save<M: ModuleSnapshot>(
    store: &mut GgufStore,
    module: &M,
) -> Result<(), GgufStoreError> {
    let target = store.target.clone().ok_or(GgufStoreError::NoTarget)?;
    if !store.overwrite && std::fs::symlink_metadata(&target).is_ok() {
        return Err(GgufStoreError::Exists { path: target });
    }
    let filter = (!store.filter.is_empty()).then(|| store.filter.clone());
    let adapter = Some(store.to_adapter.clone_box());
    // The adapter may rename parameters; names and filter speak of the module's own paths, met in the same order.
    let paths = module
        .collect(None, None, false)
        .into_iter()
        .map(|tensor| tensor.name);
    let collected = module.collect(None, adapter, false);
    let packed = ggml_paths(module);
    let mut parts: HashMap<String, Packed> = HashMap::new();
    let mut writer = GgufWriter::new();
    for (key, value) in &store.metadata {
        writer.set_metadata(key, value.clone());
    }
    for (path, tensor) in paths.zip(collected) {
        let (owner, part) = match path.rsplit_once('.') {
            Some((owner, part)) if packed.contains(owner) => (owner.to_string(), Some(part)),
            _ => (path, None),
        };
        if part.is_none()
            && let Some((weight, _)) = owner.split_once(&format!(".{LORA_FIELD}."))
            && packed.contains(weight)
        {
            return Err(GgufStoreError::Adapted {
                path: weight.to_owned(),
            });
        }
        if filter.as_ref().is_some_and(|f| !f.matches(&owner)) {
            continue;
        }
        match part {
            None => {
                let name = match store.names.to_file(&owner) {
                    name if name == owner => store.names.to_file(&tensor.name),
                    name => name,
                };
                add_dense(&mut writer, &name, tensor)?;
            }
            Some(part) => {
                let entry = parts.entry(owner.clone()).or_default();
                match part {
                    LAYOUT_FIELD => entry.layout = Some(layout(&tensor)?),
                    WORDS_FIELD => entry.words = Some(tensor),
                    _ => {}
                }
                if entry.layout.is_some()
                    && let Some(words) = entry.words.take()
                    && let Some(description) = entry.layout.take()
                {
                    add_packed(
                        &mut writer,
                        &store.names.to_file(&owner),
                        description,
                        words,
                    )?;
                }
            }
        }
    }
    writer.write_file(&target)?;
    Ok(())
}

/// The two halves of a packed weight as they are collected.
#[derive(Default)]
struct Packed {
    layout: Option<Description>,
    words: Option<PackTensor>,
}

fn read(path: &str, tensor: &PackTensor) -> Result<burn::tensor::TensorData, GgufStoreError> {
    bridge::to_data(tensor).map_err(|e| GgufStoreError::Read {
        path: path.to_string(),
        reason: e.to_string(),
    })
}

fn layout(tensor: &PackTensor) -> Result<Description, GgufStoreError> {
    let values: Vec<i64> = read(&tensor.name, tensor)?.iter::<i64>().collect();
    Description::parse(&values).ok_or_else(|| GgufStoreError::Read {
        path: tensor.name.clone(),
        reason: "the weight was never loaded".to_string(),
    })
}

fn add_packed(
    writer: &mut GgufWriter<'_>,
    name: &str,
    description: Description,
    words: PackTensor,
) -> Result<(), GgufStoreError> {
    let Description {
        layout,
        cols,
        scales,
    } = description;
    if let Some(scales) = scales {
        let factors = scales.factors().to_vec();
        let name = scale_name(name);
        writer.tensor_with(&name, &[factors.len() as u64], GgmlType::F32, move |out| {
            out.write_all(bytemuck::cast_slice(&factors))
        });
    }
    let mut shape = vec![cols as u64, layout.rows() as u64];
    if layout.matrices() > 1 {
        shape.push(layout.matrices() as u64);
    }
    if cols != layout.cols() {
        // A GGUF row is whole blocks: rows that were filled up in memory go out as the numbers they stand for.
        writer.tensor_with(name, &shape, GgmlType::F32, move |out| {
            let bytes = words.to_bytes().map_err(std::io::Error::other)?;
            let values = dequantize(layout.ggml_type(), &bytes[..layout.byte_len()])
                .map_err(std::io::Error::other)?;
            for row in values.chunks_exact(layout.cols()) {
                out.write_all(bytemuck::cast_slice(&row[..cols]))?;
            }
            Ok(())
        });
        return Ok(());
    }
    writer.tensor_with(name, &shape, layout.ggml_type(), move |out| {
        let bytes = words.to_bytes().map_err(std::io::Error::other)?;
        out.write_all(&bytes[..layout.byte_len()])
    });
    Ok(())
}

fn add_dense(
    writer: &mut GgufWriter<'_>,
    name: &str,
    tensor: PackTensor,
) -> Result<(), GgufStoreError> {
    let ggml_type: GgmlType =
        encode(tensor.dtype).ok_or_else(|| GgufStoreError::UnsupportedDtype {
            path: tensor.name.clone(),
            dtype: format!("{:?}", tensor.dtype),
        })?;
    let shape: Vec<u64> = tensor.shape.iter().rev().map(|&n| n as u64).collect();
    writer.tensor_with(name, &shape, ggml_type, move |out| {
        let bytes = tensor.to_bytes().map_err(std::io::Error::other)?;
        out.write_all(&bytes)
    });
    Ok(())
}
