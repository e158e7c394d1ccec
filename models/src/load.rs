//! Filling a model's module from a file.

use std::collections::HashMap;

use burn::module::{Module, ParamId};
use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;
use burn_gguf::store::{GgufStore, LoadProfile, LoadProgress, NameMap};
use burn_store::{IdentityAdapter, ModuleSnapshot};

use crate::error::ModelError;
use crate::lora::{self, LoraFile};
use crate::placement::PlacementOptions;
use crate::vision::VisionOptions;

/// Told how far a load has come.
pub type ProgressFn = Box<dyn FnMut(LoadProgress<'_>) + Send>;

/// How a model is loaded.
#[derive(Default)]
pub struct LoadOptions {
    /// How products on block-quantized weights are computed.
    pub arithmetic: Arithmetic,
    /// Whether weights stay packed.
    pub profile: LoadProfile,
    /// Called after every tensor.
    pub progress: Option<ProgressFn>,
    /// Low-rank adapters on the text model, all of which add up.
    pub lora: Vec<LoraFile>,
    /// Which further devices it is spread over.
    pub placement: PlacementOptions,
    /// How the eyes of a model that reads images are found and loaded.
    pub vision: VisionOptions,
}

/// What a load left over.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Tensors of the file that no part of the model uses.
    pub unused: Vec<String>,
    /// Tensors of blocks behind the last layer, which predict further tokens (MTP, NextN) and are not run.
    pub skipped: Vec<String>,
    /// Names of the packed weights in the file, by their parameter's id.
    pub weights: HashMap<ParamId, String>,
}

/// Fills `model` by its binding tables.
pub(crate) fn load_module<M: Module>(
    gguf: &Gguf,
    mut model: M,
    bindings: &[&[(&str, &str)]],
    options: LoadOptions,
) -> Result<(M, LoadReport), ModelError> {
    let names = bindings
        .iter()
        .fold(NameMap::default(), |map, table| map.with(table));
    let mut store = GgufStore::from_gguf(gguf.clone())
        .with_name_map(names)
        .with_from_adapter(IdentityAdapter)
        .with_profile(options.profile);
    if let Some(progress) = options.progress {
        store = store.on_progress(progress);
    }
    let result = model
        .load_from(&mut store)
        .map_err(|source| ModelError::Store {
            architecture: gguf.metadata().architecture().unwrap_or("?").to_string(),
            source: Box::new(source),
        })?;
    // A factor without its weight: the file means something this model would get wrong.
    let stray = |name: &&String| {
        name.strip_suffix(".scale").is_some_and(|stem| {
            let stem = stem.strip_suffix(".weight").unwrap_or(stem);
            !result.unused.contains(&format!("{stem}.weight"))
        })
    };
    if let Some(name) = result.unused.iter().find(stray) {
        return Err(ModelError::StrayScale {
            architecture: gguf.metadata().architecture().unwrap_or("?").to_string(),
            tensor: name.clone(),
        });
    }
    let weights = store.loaded_weights().clone();
    for lora in &options.lora {
        let architecture = gguf.metadata().architecture()?;
        model = lora::attach(model, lora, architecture, &weights)?;
    }
    Ok((
        model,
        LoadReport {
            unused: result.unused,
            skipped: Vec::new(),
            weights,
        },
    ))
}
