//! Burn modules from and to GGUF files: [`GgufStore`] is burn-store's `ModuleStore` over a GGUF file.

mod applier;
mod apply;
mod collect;
mod dense;
mod error;
mod name_map;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use burn::module::ParamId;
use burn::tensor::FloatDType;
use burn_store::burn_pack::Tensor as PackTensor;
use burn_store::{
    ApplyResult, BurnToPyTorchAdapter, ModuleAdapter, ModuleSnapshot, ModuleStore, PathFilter,
    PyTorchToBurnAdapter,
};

pub(crate) use applier::{PackedApplier, PackedSource};
pub(crate) use apply::ggml_paths;
pub use error::GgufStoreError;
pub use name_map::NameMap;

use crate::gguf::{Gguf, Value};

/// What becomes of block-quantized weights at load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadProfile {
    /// Layers keep the file's blocks.
    #[default]
    Packed,
    /// Layers hold dequantized values of this type (F32, F16 or BF16): more memory, and no block arithmetic.
    Dense(FloatDType),
}

/// How far a load has come; handed to the function of [`GgufStore::on_progress`] after every tensor.
#[derive(Clone, Debug)]
pub struct LoadProgress<'a> {
    /// The tensor just loaded, by its name in the file.
    pub tensor: &'a str,
    /// Bytes loaded so far.
    pub bytes: u64,
    /// Bytes of all tensors in the file.
    pub total: u64,
}

type ProgressFn = Box<dyn FnMut(LoadProgress<'_>) + Send>;

/// Loads burn modules from GGUF files and saves them.
///
/// Loading: [`GgmlLinear`](crate::nn::GgmlLinear) and [`GgmlEmbedding`](crate::nn::GgmlEmbedding) take the file's
/// blocks as they are (on CPU devices without a copy); every other parameter takes the tensor's values, dequantized
/// to `f32`. GGUF matrices have PyTorch's layout (`[out, in]`), so burn's own layers (`Linear`, norms) are adapted by
/// [`PyTorchToBurnAdapter`] unless [`with_from_adapter`](Self::with_from_adapter) says otherwise.
///
/// ```no_run
/// use burn_gguf::store::{GgufStore, NameMap};
/// use burn_store::ModuleSnapshot;
/// # use burn::{module::Module, tensor::Device};
/// # use burn_gguf::nn::GgmlLinear;
/// # #[derive(Module, Debug)] struct Mlp { up: GgmlLinear, down: GgmlLinear }
/// # let device = Device::default();
/// # let mut model = Mlp { up: GgmlLinear::uninitialized(8, 8, false, &device),
/// #                       down: GgmlLinear::uninitialized(8, 8, false, &device) };
/// let names = NameMap::new(&[("blk.0.ffn_up.weight", "up.weight"), ("blk.0.ffn_down.weight", "down.weight")]);
/// let result = model.load_from(&mut GgufStore::open("model.gguf")?.with_name_map(names))?;
/// println!("not used: {:?}", result.unused);
/// # Ok::<(), burn_gguf::store::GgufStoreError>(())
/// ```
pub struct GgufStore {
    source: Option<Gguf>,
    target: Option<PathBuf>,
    names: NameMap,
    filter: PathFilter,
    from_adapter: Box<dyn ModuleAdapter>,
    to_adapter: Box<dyn ModuleAdapter>,
    profile: LoadProfile,
    metadata: Vec<(String, Value)>,
    allow_partial: bool,
    validate: bool,
    overwrite: bool,
    progress: Option<ProgressFn>,
    cache: Option<BTreeMap<String, PackTensor>>,
    loaded: HashMap<ParamId, String>,
}

impl GgufStore {
    fn new(source: Option<Gguf>, target: Option<PathBuf>) -> Self {
        Self {
            source,
            target,
            names: NameMap::default(),
            filter: PathFilter::new(),
            from_adapter: Box::new(PyTorchToBurnAdapter),
            to_adapter: Box::new(BurnToPyTorchAdapter),
            profile: LoadProfile::default(),
            metadata: Vec::new(),
            allow_partial: false,
            validate: true,
            overwrite: false,
            progress: None,
            cache: None,
            loaded: HashMap::new(),
        }
    }

    /// Opens a file to load from.
    ///
    /// # Errors
    /// If it is not a valid GGUF file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufStoreError> {
        Ok(Self::from_gguf(Gguf::open(path)?))
    }

    /// Loads from an opened file.
    pub fn from_gguf(gguf: Gguf) -> Self {
        Self::new(Some(gguf), None)
    }

    /// Saves to `path`.
    pub fn create(path: impl Into<PathBuf>) -> Self {
        Self::new(None, Some(path.into()))
    }

    /// Maps tensor names in the file to parameter paths in the module, and back on saving.
    pub fn with_name_map(mut self, names: NameMap) -> Self {
        self.names = names;
        self.cache = None;
        self
    }

    /// Restricts loading and saving to the parameters (by module path) the filter matches.
    pub fn filter(mut self, filter: PathFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Replaces the adapter applied to dense parameters on loading.
    pub fn with_from_adapter(mut self, adapter: impl ModuleAdapter + 'static) -> Self {
        self.from_adapter = Box::new(adapter);
        self
    }

    /// Replaces the adapter applied to dense parameters on saving.
    pub fn with_to_adapter(mut self, adapter: impl ModuleAdapter + 'static) -> Self {
        self.to_adapter = Box::new(adapter);
        self
    }

    /// What becomes of block-quantized weights (default: they stay packed).
    pub fn with_profile(mut self, profile: LoadProfile) -> Self {
        self.profile = profile;
        self
    }

    /// Adds a metadata key to the file to be saved.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds every metadata key of another file, for example of the one the module was loaded from.
    pub fn metadata_of(mut self, gguf: &Gguf) -> Self {
        let keys = gguf.metadata().iter();
        self.metadata
            .extend(keys.map(|(key, value)| (key.to_string(), value.clone())));
        self
    }

    /// Whether parameters without a tensor in the file are left as they are instead of failing the load.
    pub fn allow_partial(mut self, allow: bool) -> Self {
        self.allow_partial = allow;
        self
    }

    /// Whether a tensor that does not fit its parameter fails the load (default) or is only reported.
    pub fn validate(mut self, validate: bool) -> Self {
        self.validate = validate;
        self
    }

    /// Whether saving may replace an existing file.
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Calls `f` after every tensor loaded.
    pub fn on_progress(mut self, f: impl FnMut(LoadProgress<'_>) + Send + 'static) -> Self {
        self.progress = Some(Box::new(f));
        self
    }

    /// After a load, the names in the file of the packed weights, by [`GgmlParam::id`](crate::nn::GgmlParam::id).
    pub fn loaded_weights(&self) -> &HashMap<ParamId, String> {
        &self.loaded
    }

    /// The file loaded from.
    pub fn gguf(&self) -> Option<&Gguf> {
        self.source.as_ref()
    }

    fn source(&self) -> Result<&Gguf, GgufStoreError> {
        self.source.as_ref().ok_or(GgufStoreError::NoSource)
    }

    fn ensure_cache(&mut self) -> Result<&BTreeMap<String, PackTensor>, GgufStoreError> {
        if self.cache.is_none() {
            let gguf = self.source()?;
            let mut tensors = BTreeMap::new();
            for info in gguf.tensors() {
                let path = self.names.to_module(info.name());
                let tensor = dense::lazy_tensor(info, path.clone());
                if tensors.insert(path.clone(), tensor).is_some() {
                    return Err(GgufStoreError::NameCollision {
                        path,
                        tensor: info.name().to_string(),
                    });
                }
            }
            self.cache = Some(tensors);
        }
        Ok(self.cache.get_or_insert_default())
    }
}

impl ModuleStore for GgufStore {
    type Error = GgufStoreError;

    fn collect_from<M: ModuleSnapshot>(&mut self, module: &M) -> Result<(), Self::Error> {
        collect::save(self, module)
    }

    fn apply_to<M: ModuleSnapshot>(&mut self, module: &mut M) -> Result<ApplyResult, Self::Error> {
        apply::load(self, module)
    }

    fn get_tensor(&mut self, name: &str) -> Result<Option<&PackTensor>, Self::Error> {
        Ok(self.ensure_cache()?.get(name))
    }

    fn get_all_tensors(&mut self) -> Result<&BTreeMap<String, PackTensor>, Self::Error> {
        self.ensure_cache()
    }

    fn keys(&mut self) -> Result<Vec<String>, Self::Error> {
        Ok(self.ensure_cache()?.keys().cloned().collect())
    }
}
