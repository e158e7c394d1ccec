//! Filling a module that mixes packed weights with burn's own parameters.

use burn::module::{ModuleMapper, Param, ParamId};
use burn::tensor::{Bool, DType, Device, Int, Shape, Tensor, TensorData};
use burn_store::burn_pack::Tensor as PackTensor;
use burn_store::{Applier, ApplyError, ApplyResult, ModuleAdapter, ModuleSnapshot, PathFilter};

use crate::nn::{Description, GGML_PARAM, LAYOUT_FIELD, LORA_FIELD};
use crate::tensor::GgmlTensor;

/// Where packed weights come from.
pub(crate) trait PackedSource {
    /// The weight of the parameter at `path` and the values its rows really have, before they were filled up to whole
    /// blocks; `None` if there is none, `Err` with the reason if there is one that cannot be used.
    fn read(&mut self, path: &str, device: &Device) -> Option<Result<(GgmlTensor, usize), String>>;

    /// Called when the parameter at `path`, packed or not, has its value.
    fn applied(&mut self, _path: &str) {}
}

/// Puts packed weights into [`GgmlParam`](crate::nn::GgmlParam)s and leaves every other parameter to burn-store's
/// [`Applier`].
pub(crate) struct PackedApplier<S> {
    source: S,
    dense: Applier,
    filter: Option<PathFilter>,
    path: Vec<String>,
    containers: Vec<String>,
    // The weight whose layout has been applied and whose words come next.
    staged: Option<(GgmlTensor, Description)>,
    packed: ApplyResult,
    ids: Vec<(ParamId, String)>,
}

impl<S: PackedSource> PackedApplier<S> {
    /// `dense` are the tensors for all parameters that are not packed, `adapter` turns them into the module's form.
    pub(crate) fn new(
        source: S,
        dense: Vec<PackTensor>,
        filter: Option<PathFilter>,
        adapter: Option<Box<dyn ModuleAdapter>>,
    ) -> Self {
        Self {
            source,
            dense: Applier::new(dense, filter.clone(), adapter, false),
            filter,
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
            ids: Vec::new(),
        }
    }

    /// Fills `module`. `unused` of the result speaks of dense tensors only. With it come the ids and paths of the packed
    /// weights that were filled.
    pub(crate) fn apply<M: ModuleSnapshot>(
        mut self,
        module: &mut M,
    ) -> (ApplyResult, Vec<(ParamId, String)>) {
        // A clone shares its tensors, so mapping it costs nothing and a panic leaves the module whole.
        *module = module.clone().map(&mut self);
        let mut result = self.dense.into_result();
        result.applied.extend(self.packed.applied);
        result.skipped.extend(self.packed.skipped);
        result.missing.extend(self.packed.missing);
        result.missing.sort();
        result.errors.extend(self.packed.errors);
        (result, self.ids)
    }

    fn in_ggml_param(&self) -> bool {
        self.containers.last().is_some_and(|c| c == GGML_PARAM)
    }

    /// The parameter's path: the current one without its last segment.
    fn param_path(&self) -> String {
        self.path[..self.path.len() - 1].join(".")
    }

    /// Reads the weight of the parameter `layout` belongs to.
    fn stage(&mut self, layout: &Param<Tensor<1, Int>>) -> Option<(GgmlTensor, Description)> {
        let path = self.param_path();
        let wanted = match &self.filter {
            None => true,
            Some(filter) => filter.matches(&path),
        };
        if !wanted {
            self.packed.skipped.push(path);
            return None;
        }
        let Some(read) = self.source.read(&path, &layout.lazy_device()) else {
            self.packed.missing.push((path, GGML_PARAM.to_string()));
            return None;
        };
        let expected: Vec<i64> = layout.val().to_data().iter::<i64>().collect();
        match read {
            Ok((tensor, cols)) => {
                let description = Description::of(&tensor, cols);
                let found: Vec<i64> = description.values().into_iter().map(i64::from).collect();
                // Any type, and any factors, of the shape the module was built for.
                if expected[1..4] != found[1..4] {
                    self.packed.errors.push(ApplyError::ShapeMismatch {
                        path,
                        expected: stack_shape(&expected),
                        found: stack_shape(&found),
                    });
                    return None;
                }
                self.source.applied(&path);
                self.packed.applied.push(path);
                Some((tensor, description))
            }
            Err(message) => {
                self.packed
                    .errors
                    .push(ApplyError::LoadError { path, message });
                None
            }
        }
    }
}

/// `[rows, cols]`, or `[matrices, rows, cols]` for a stack.
fn stack_shape(values: &[i64]) -> Shape {
    let dims: Vec<usize> = values[1..4].iter().map(|&v| v.max(0) as usize).collect();
    match dims[0] {
        1 => Shape::from(dims[1..].to_vec()),
        _ => Shape::from(dims),
    }
}

impl<S: PackedSource> ModuleMapper for PackedApplier<S> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_string());
        self.containers.push(container_type.to_string());
        if container_type != GGML_PARAM || name == LORA_FIELD {
            self.dense.enter_module(name, container_type);
        }
    }

    fn exit_module(&mut self, name: &str, container_type: &str) {
        self.path.pop();
        self.containers.pop();
        if container_type != GGML_PARAM || name == LORA_FIELD {
            self.dense.exit_module(name, container_type);
        }
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let param = self.dense.map_float(param);
        self.source.applied(&self.path.join("."));
        param
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        if !self.in_ggml_param() {
            let param = self.dense.map_int(param);
            self.source.applied(&self.path.join("."));
            return param;
        }
        let id = param.id;
        let device = param.lazy_device();
        if self.path.last().is_some_and(|name| name == LAYOUT_FIELD) {
            // Rank 1 by construction; the reshapes only satisfy the generic rank.
            let n = param.lazy_shape().num_elements();
            let layout = Param::initialized(id, param.val().reshape([n]));
            self.staged = self.stage(&layout);
            match &self.staged {
                None => param,
                Some((_, description)) => {
                    let values = description.values();
                    let n = values.len();
                    let data = TensorData::new(values, [n]);
                    let values = Tensor::<1, Int>::from_data(data, (&device, DType::I32));
                    param.transform_for_load(values.reshape([n; D]), id)
                }
            }
        } else {
            match self.staged.take() {
                None => param,
                Some((tensor, _)) => {
                    self.ids.push((id, self.param_path()));
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
        self.source.applied(&self.path.join("."));
        param
    }
}
