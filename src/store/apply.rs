//! Loading a module.

use std::collections::{HashMap, HashSet};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Shape, Tensor, TensorData};
use burn_store::{Applier, ApplyError, ApplyResult, ModuleSnapshot, PathFilter};

use super::dense::dense_blocks;
use super::{GgufStore, GgufStoreError, LoadProfile, LoadProgress, NameMap, ProgressFn};
use crate::gguf::{Gguf, TensorInfo};
use crate::nn::{GGML_PARAM, LAYOUT_FIELD, layout_values};
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
    let mut mapper = GgufApplier {
        dense: Applier::new(
            dense,
            filter.clone(),
            Some(store.from_adapter.clone_box()),
            false,
        ),
        names: &store.names,
        files: gguf
            .tensors()
            .map(|info| (store.names.to_module(info.name()), info))
            .collect(),
        filter,
        profile: store.profile,
        path: Vec::new(),
        containers: Vec::new(),
        staged: None,
        packed: ApplyResult {
            applied: Vec::new(),
            skipped: Vec::new(),
            missing: Vec::new(),
            unused: Vec::new(),
            errors: Vec::new(),
        },
        progress: Progress::new(&gguf, &mut store.progress),
    };
    // A clone shares its tensors, so mapping it costs nothing and a panic leaves the module whole.
    *module = module.clone().map(&mut mapper);
    let result = mapper.finish(&packed);
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
pub(super) fn ggml_paths<M: Module>(module: &M) -> HashSet<String> {
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

/// Puts packed weights into [`GgmlParam`](crate::nn::GgmlParam)s and leaves every other parameter to burn-store's
/// [`Applier`].
struct GgufApplier<'a> {
    dense: Applier,
    names: &'a NameMap,
    files: HashMap<String, &'a TensorInfo>,
    filter: Option<PathFilter>,
    profile: LoadProfile,
    path: Vec<String>,
    containers: Vec<String>,
    // The weight whose layout has been applied and whose words come next.
    staged: Option<GgmlTensor>,
    packed: ApplyResult,
    progress: Progress<'a>,
}

impl GgufApplier<'_> {
    fn in_ggml_param(&self) -> bool {
        self.containers.last().is_some_and(|c| c == GGML_PARAM)
    }

    /// The parameter's path: the current one without its last segment.
    fn param_path(&self) -> String {
        self.path[..self.path.len() - 1].join(".")
    }

    fn report_dense(&mut self) {
        if let Some(info) = self.files.get(&self.path.join(".")) {
            self.progress.add(info);
        }
    }

    /// Loads the weight of the parameter `layout` belongs to.
    fn stage(&mut self, layout: &Param<Tensor<1, Int>>) -> Option<GgmlTensor> {
        let path = self.param_path();
        let wanted = match &self.filter {
            None => true,
            Some(filter) => filter.matches(&path),
        };
        if !wanted {
            self.packed.skipped.push(path);
            return None;
        }
        let Some(info) = self.files.get(&path).copied() else {
            self.packed.missing.push((path, GGML_PARAM.to_string()));
            return None;
        };
        let expected: Vec<i64> = layout.val().to_data().iter::<i64>().collect();
        match self.read(info, &layout.lazy_device()) {
            Ok(tensor) => {
                let found = layout_values(tensor.layout());
                if expected[1..] != found[1..] {
                    self.packed.errors.push(ApplyError::ShapeMismatch {
                        path,
                        expected: stack_shape(&expected),
                        found: stack_shape(&found),
                    });
                    return None;
                }
                self.packed.applied.push(path);
                self.progress.add(info);
                Some(tensor)
            }
            Err(message) => {
                self.packed
                    .errors
                    .push(ApplyError::LoadError { path, message });
                None
            }
        }
    }

    fn read(&self, info: &TensorInfo, device: &burn::tensor::Device) -> Result<GgmlTensor, String> {
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
        result.map_err(|e| format!("{} ({})", e, info.file()))
    }

    fn finish(self, packed: &HashSet<String>) -> ApplyResult {
        let mut result = self.dense.into_result();
        result.applied.extend(self.packed.applied);
        result.skipped.extend(self.packed.skipped);
        result.missing.extend(self.packed.missing);
        result.missing.sort();
        result.errors.extend(self.packed.errors);
        // Reported under the file's own names: nothing in the module answers to them.
        result.unused = result
            .unused
            .iter()
            .filter(|path| !packed.contains(*path))
            .map(|path| self.names.to_file(path))
            .collect();
        result
    }
}

/// `[rows, cols]`, or `[matrices, rows, cols]` for a stack.
fn stack_shape(values: &[i64]) -> Shape {
    let dims: Vec<usize> = values[1..].iter().map(|&v| v.max(0) as usize).collect();
    match dims[0] {
        1 => Shape::from(dims[1..].to_vec()),
        _ => Shape::from(dims),
    }
}

impl ModuleMapper for GgufApplier<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_string());
        self.containers.push(container_type.to_string());
        if container_type != GGML_PARAM {
            self.dense.enter_module(name, container_type);
        }
    }

    fn exit_module(&mut self, name: &str, container_type: &str) {
        self.path.pop();
        self.containers.pop();
        if container_type != GGML_PARAM {
            self.dense.exit_module(name, container_type);
        }
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let param = self.dense.map_float(param);
        self.report_dense();
        param
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        if !self.in_ggml_param() {
            let param = self.dense.map_int(param);
            self.report_dense();
            return param;
        }
        let id = param.id;
        let device = param.lazy_device();
        if self.path.last().is_some_and(|name| name == LAYOUT_FIELD) {
            // Rank 1 by construction; the reshapes only satisfy the generic rank.
            let layout = Param::initialized(id, param.val().reshape([4]));
            self.staged = self.stage(&layout);
            match &self.staged {
                None => param,
                Some(tensor) => {
                    let values = layout_values(tensor.layout()).map(|v| v as i32);
                    let data = TensorData::new(values.to_vec(), [4]);
                    let values =
                        Tensor::<1, Int>::from_data(data, (&device, burn::tensor::DType::I32));
                    param.transform_for_load(values.reshape([4; D]), id)
                }
            }
        } else {
            match self.staged.take() {
                None => param,
                Some(tensor) => {
                    // Not a reshape: NdArray's would copy the blocks out of the file's map.
                    let words = Tensor::from_dispatch(tensor.words().clone().into_dispatch());
                    param.transform_for_load(words, id)
                }
            }
        }
    }

    fn map_bool<const D: usize>(
        &mut self,
        param: Param<Tensor<D, Bool>>,
    ) -> Param<Tensor<D, Bool>> {
        let param = self.dense.map_bool(param);
        self.report_dense();
        param
    }
}
