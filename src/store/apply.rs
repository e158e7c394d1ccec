//! Loading a module.

use std::collections::{HashMap, HashSet};

use burn::module::{Module, ModuleVisitor};
use burn::tensor::Device;
use burn_store::{ApplyResult, ModuleSnapshot};

use super::applier::{PackedApplier, PackedSource};
use super::dense::dense_blocks;
use super::{GgufStore, GgufStoreError, LoadProfile, LoadProgress, ProgressFn};
use crate::gguf::{Gguf, TensorInfo};
use crate::nn::GGML_PARAM;
use crate::tensor::GgmlTensor;

pub(super) fn load<M: ModuleSnapshot>(
    store: &mut GgufStore,
    module: &mut M,
) -> Result<ApplyResult, GgufStoreError> {
    let packed = ggml_paths(module);
    let dense: Vec<_> = store
        .ensure_cache()?
        .iter()
        .filter(|(path, _)| !packed.contains(*path))
        .map(|(_, tensor)| tensor.clone())
        .collect();
    let filter = (!store.filter.is_empty()).then(|| store.filter.clone());
    let gguf = store.source()?.clone();
    let adapter = Some(store.from_adapter.clone_box());
    let source = GgufSource {
        files: gguf
            .tensors()
            .map(|info| (store.names.to_module(info.name()), info))
            .collect(),
        profile: store.profile,
        progress: Progress::new(&gguf, &mut store.progress),
    };
    let mapper = PackedApplier::new(source, dense, filter, adapter);
    let mut result = mapper.apply(module);
    // Reported under the file's own names: nothing in the module answers to them.
    result.unused = result
        .unused
        .iter()
        .filter(|path| !packed.contains(*path))
        .map(|path| store.names.to_file(path))
        .collect();
    check(store, result)
}

fn check(store: &GgufStore, result: ApplyResult) -> Result<ApplyResult, GgufStoreError> {
    if store.validate && !result.errors.is_empty() {
        return Err(GgufStoreError::Mismatch {
            messages: result.errors.iter().map(ToString::to_string).collect(),
            result: Box::new(result),
        });
    }
    if !store.allow_partial && !result.missing.is_empty() {
        let names = result.missing.iter();
        return Err(GgufStoreError::Missing {
            names: names.map(|(path, _)| store.names.to_file(path)).collect(),
            result: Box::new(result),
        });
    }
    Ok(result)
}

/// Paths of the module's [`GgmlParam`](crate::nn::GgmlParam)s.
pub(crate) fn ggml_paths<M: Module>(module: &M) -> HashSet<String> {
    #[derive(Default)]
    struct Finder {
        path: Vec<String>,
        found: HashSet<String>,
    }

    impl ModuleVisitor for Finder {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            if container_type == GGML_PARAM {
                self.found.insert(self.path.join("."));
            }
            self.path.push(name.to_string());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
    }

    let mut finder = Finder::default();
    module.visit(&mut finder);
    finder.found
}

struct Progress<'a> {
    report: Option<&'a mut ProgressFn>,
    bytes: u64,
    total: u64,
}

impl<'a> Progress<'a> {
    fn new(gguf: &Gguf, report: &'a mut Option<ProgressFn>) -> Self {
        Self {
            report: report.as_mut(),
            bytes: 0,
            total: gguf.tensors().map(|t| t.byte_len() as u64).sum(),
        }
    }

    fn add(&mut self, info: &TensorInfo) {
        self.bytes += info.byte_len() as u64;
        if let Some(report) = &mut self.report {
            report(LoadProgress {
                tensor: info.name(),
                bytes: self.bytes,
                total: self.total,
            });
        }
    }
}

/// The block-quantized tensors of a file.
struct GgufSource<'a> {
    files: HashMap<String, &'a TensorInfo>,
    profile: LoadProfile,
    progress: Progress<'a>,
}

impl PackedSource for GgufSource<'_> {
    fn read(&mut self, path: &str, device: &Device) -> Option<Result<(GgmlTensor, usize), String>> {
        let info = self.files.get(path).copied()?;
        let result = match self.profile {
            LoadProfile::Packed => GgmlTensor::from_gguf(info, device).map_err(|e| e.to_string()),
            LoadProfile::Dense(dtype) => info
                .usable_type()
                .map_err(|e| e.to_string())
                .and_then(|ty| dense_blocks(info, ty, dtype).map_err(|e| e.to_string()))
                .and_then(|(layout, blocks)| {
                    GgmlTensor::from_bytes(layout, blocks, device).map_err(|e| e.to_string())
                }),
        };
        Some(match result {
            Ok(tensor) => {
                let cols = tensor.layout().cols();
                Ok((tensor, cols))
            }
            Err(message) => Err(format!("{message} ({})", info.file())),
        })
    }

    fn applied(&mut self, path: &str) {
        if let Some(info) = self.files.get(path) {
            self.progress.add(info);
        }
    }
}
