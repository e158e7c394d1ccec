//! Loading a module.

use std::collections::{HashMap, HashSet};

use burn::module::{Module, ModuleVisitor};
use burn::tensor::Device;
use burn_store::{ApplyResult, ModuleSnapshot};

use super::applier::{PackedApplier, PackedSource};
use super::dense::{dense_blocks, dequantize, plain_type};
use super::{GgufStore, GgufStoreError, LoadProfile, LoadProgress, NameMap, ProgressFn};
use crate::gguf::{Gguf, TensorInfo};
use crate::layout::GgmlLayout;
use crate::nn::GGML_PARAM;
use crate::tensor::{GgmlTensor, layout_of};

pub(super) fn load<M: ModuleSnapshot>(
    store: &mut GgufStore,
    module: &mut M,
) -> Result<ApplyResult, GgufStoreError> {
    let packed = ggml_paths(module);
    let gguf = store.source()?.clone();
    let scales = scales_of(&gguf, &store.names, |name| {
        packed.contains(&store.names.to_module(name))
    });
    let pieces = pieces_of(&gguf, &packed, &store.names);
    let beside: HashSet<String> = scales
        .values()
        .chain(pieces.values())
        .flatten()
        .map(|info| store.names.to_module(info.name()))
        .collect();
    let dense: Vec<_> = store
        .ensure_cache()?
        .iter()
        .filter(|(path, _)| !packed.contains(*path) && !beside.contains(*path))
        .map(|(_, tensor)| tensor.clone())
        .collect();
    let filter = (!store.filter.is_empty()).then(|| store.filter.clone());
    let adapter = Some(store.from_adapter.clone_box());
    let source = GgufSource {
        files: gguf
            .tensors()
            .map(|info| (store.names.to_module(info.name()), info))
            .collect(),
        scales,
        pieces,
        profile: store.profile,
        progress: Progress::new(&gguf, &mut store.progress),
    };
    let mapper = PackedApplier::new(source, dense, filter, adapter);
    let (mut result, ids) = mapper.apply(module);
    // Where two names stand for one path, the one this file has.
    let names: HashMap<String, &str> = gguf
        .tensors()
        .map(|info| (store.names.to_module(info.name()), info.name()))
        .collect();
    let name_of = |path: &String| match names.get(path) {
        Some(name) => (*name).to_owned(),
        None => store.names.to_file(path),
    };
    store.loaded = ids
        .into_iter()
        .map(|(id, path)| (id, name_of(&path)))
        .collect();
    // Reported under the file's own names: nothing in the module answers to them.
    result.unused = result
        .unused
        .iter()
        .filter(|path| !packed.contains(*path))
        .map(name_of)
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
    /// By the weight's name, the tensors beside it that scale it or its input.
    scales: HashMap<&'a str, Vec<&'a TensorInfo>>,
    /// By the stack's path, its matrices where the file has them apart.
    pieces: HashMap<String, Vec<&'a TensorInfo>>,
    profile: LoadProfile,
    progress: Progress<'a>,
}

impl PackedSource for GgufSource<'_> {
    fn read(&mut self, path: &str, device: &Device) -> Option<Result<(GgmlTensor, usize), String>> {
        if let Some(pieces) = self.pieces.get(path) {
            let stacked = stack(pieces, self.profile, device);
            return Some(stacked.map(|tensor| (tensor.clone(), tensor.layout().cols())));
        }
        let info = self.files.get(path).copied()?;
        let result = match self.profile {
            // What has the wanted form already is not copied.
            LoadProfile::Dense(dtype) if info.ggml_type() == Some(plain_type(dtype)) => {
                GgmlTensor::from_gguf(info, device).map_err(|e| e.to_string())
            }
            LoadProfile::Packed => GgmlTensor::from_gguf(info, device).map_err(|e| e.to_string()),
            LoadProfile::Dense(dtype) => info
                .usable_type()
                .map_err(|e| e.to_string())
                .and_then(|ty| dense_blocks(info, ty, dtype).map_err(|e| e.to_string()))
                .and_then(|(layout, blocks)| {
                    GgmlTensor::from_bytes(layout, blocks, device).map_err(|e| e.to_string())
                }),
        };
        let result = result.and_then(|tensor| self.scale(info.name(), tensor));
        Some(match result {
            Ok(tensor) => {
                let cols = tensor.layout().cols();
                Ok((tensor, cols))
            }
            Err(message) => Err(format!("{message} ({})", info.file())),
        })
    }

    fn applied(&mut self, path: &str) {
        for info in self.pieces.get(path).into_iter().flatten() {
            self.progress.add(info);
        }
        if let Some(info) = self.files.get(path) {
            self.progress.add(info);
        }
    }
}

impl GgufSource<'_> {
    /// Gives the tensor the factors that the file has beside it.
    fn scale(&self, name: &str, tensor: GgmlTensor) -> Result<GgmlTensor, String> {
        let beside = self.scales.get(name).into_iter().flatten();
        // An `.input_scale` speaks of quantized activations, which nothing here rounds that way.
        let factors: Vec<_> = beside
            .filter(|info| !info.name().ends_with(".input_scale"))
            .collect();
        match factors[..] {
            [] => Ok(tensor),
            [info] => {
                let at = |e: &dyn std::fmt::Display| format!("tensor \"{}\": {e}", info.name());
                let ty = info.usable_type().map_err(|e| at(&e))?;
                let values = dequantize(ty, info.data()).map_err(|e| at(&e))?;
                tensor.with_scales(&values).map_err(|e| at(&e))
            }
            [first, second, ..] => Err(format!(
                "tensors \"{}\" and \"{}\" both scale \"{name}\"; keep one",
                first.name(),
                second.name()
            )),
        }
    }
}

/// The name of the factors beside the weight `name`: `X.scale` for `X.weight`.
pub(super) fn scale_name(name: &str) -> String {
    format!("{}.scale", name.strip_suffix(".weight").unwrap_or(name))
}

/// For each weight that `packed` says is one, the tensors beside it that scale it: `X.scale` or `X.weight.scale`, and
/// `X.input_scale`. A tensor that `names` gives a place in the module is no factor, whatever it is called.
fn scales_of<'a>(
    gguf: &'a Gguf,
    names: &NameMap,
    packed: impl Fn(&str) -> bool,
) -> HashMap<&'a str, Vec<&'a TensorInfo>> {
    let mut scales: HashMap<&'a str, Vec<&'a TensorInfo>> = HashMap::new();
    for weight in gguf.tensors().map(TensorInfo::name) {
        let stem = weight.strip_suffix(".weight").unwrap_or(weight);
        let beside = [
            format!("{stem}.scale"),
            format!("{weight}.scale"),
            format!("{stem}.input_scale"),
        ];
        for name in beside {
            if names.to_module(&name) != name {
                continue;
            }
            if let Some(info) = gguf.tensor(&name).filter(|_| packed(weight)) {
                let beside = scales.entry(weight).or_default();
                if beside.iter().all(|b| b.name() != info.name()) {
                    beside.push(info);
                }
            }
        }
    }
    scales
}

/// For each stack of experts that the file has not, its matrices as older converters wrote them, a tensor each:
/// `X.0.weight`, `X.1.weight` and so on for `X_exps.weight`.
fn pieces_of<'a>(
    gguf: &'a Gguf,
    packed: &HashSet<String>,
    names: &NameMap,
) -> HashMap<String, Vec<&'a TensorInfo>> {
    let pieces = |path: &String| {
        let name = names.to_file(path);
        let stem = name.strip_suffix("_exps.weight")?;
        if gguf.tensor(&name).is_some() {
            return None;
        }
        let pieces: Vec<_> = (0..)
            .map_while(|i| gguf.tensor(&format!("{stem}.{i}.weight")))
            .collect();
        (!pieces.is_empty()).then(|| (path.clone(), pieces))
    };
    packed.iter().filter_map(pieces).collect()
}

/// The matrices as one stack; in the file they lie apart, so their bytes are copied.
fn stack(
    pieces: &[&TensorInfo],
    profile: LoadProfile,
    device: &Device,
) -> Result<GgmlTensor, String> {
    let first = pieces[0];
    let at = |info: &TensorInfo, e: &dyn std::fmt::Display| {
        format!("tensor \"{}\": {e} ({})", info.name(), info.file())
    };
    let mut all = Vec::new();
    let mut layout = None;
    for &info in pieces {
        if (info.type_id(), info.shape()) != (first.type_id(), first.shape()) {
            let message = format!("it has another type or shape than \"{}\"", first.name());
            return Err(at(info, &message));
        }
        let ty = info.usable_type().map_err(|e| at(info, &e))?;
        let (piece, blocks) = match profile {
            LoadProfile::Packed => (
                layout_of(ty, info.shape()).map_err(|e| at(info, &e))?,
                info.bytes(),
            ),
            LoadProfile::Dense(dtype) => dense_blocks(info, ty, dtype).map_err(|e| at(info, &e))?,
        };
        layout = Some(piece);
        all.extend_from_slice(&blocks);
    }
    let layout = layout.expect("there is a first piece");
    GgmlLayout::stack(
        layout.ggml_type(),
        pieces.len(),
        layout.rows(),
        layout.cols(),
    )
    .and_then(|layout| GgmlTensor::from_bytes(layout, all.into(), device))
    .map_err(|e| at(first, &e))
}
