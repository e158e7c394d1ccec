//! Vision files of llama.cpp ("mmproj"): what they say about their tower, and which text model they belong to.
//!
//! [`Mmproj::open`] reads a file of its own, [`Mmproj::embedded`] a tower inside a text file (the layout Ollama used to
//! write). Nothing here touches a device: the tower is built from [`ClipConfig`] and [`Mmproj::tensors`].
//!
//! ```no_run
//! use burn_gguf_models::vision::mmproj::{Mmproj, MmprojError};
//! use burn_gguf_models::vision::processor::{ImageProcessor, ProcessorStyle};
//!
//! let mmproj = Mmproj::open("mmproj-BF16.gguf")?;
//! println!("{}, rows of {}, {}", mmproj.projector(), mmproj.output_width(), mmproj.file_type());
//! let processor = ImageProcessor::new(mmproj.processor_config(ProcessorStyle::Transformers)?);
//! # Ok::<(), MmprojError>(())
//! ```
//!
//! # Decisions
//! - Keys that llama.cpp requires are required; in a text file, what the tensors tell may be missing.
//! - A file with an audio encoder beside the vision encoder is taken; [`Mmproj::audio_tensors`] lists what is not used.
//! - DeepStack layers are those whose `v.deepstack.N.fc1.weight` exists; flags that say otherwise are an error.

mod config;
mod embedded;
mod error;
mod fit;
mod keys;
mod pixels;

use std::collections::HashMap;
use std::path::Path;

use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, TensorInfo};

use super::processor::{ProcessorConfig, ProcessorKind, ProcessorStyle};
use keys::Keys;

pub use config::{Activation, ClipConfig};
pub use error::MmprojError;
pub use fit::{MediaTokens, TextFacts, image_width, towers};

/// A vision tower in a file: checked metadata, and its tensors by name.
#[derive(Debug, Clone)]
pub struct Mmproj {
    gguf: Gguf,
    embedded: bool,
    kind: ProcessorKind,
    config: ClipConfig,
    tensors: Tensors,
    audio: Vec<String>,
    audio_encoder: bool,
}

impl Mmproj {
    /// Opens an mmproj file.
    ///
    /// # Errors
    /// What is wrong with it, by rule: see [`MmprojError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, MmprojError> {
        Self::from_gguf(Gguf::open(path)?)
    }

    /// Reads an opened mmproj file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_gguf(gguf: Gguf) -> Result<Self, MmprojError> {
        let (file, metadata) = (gguf.file().clone(), gguf.metadata());
        let architecture = metadata.architecture()?.to_owned();
        if architecture != CLIP {
            return Err(MmprojError::TextModel { file, architecture });
        }
        // Older converters wrote `clip-vision`, or nothing.
        let value: Option<String> = metadata.get_optional("general.type")?;
        if let Some(value) = value.filter(|v| v != "mmproj" && v != "clip-vision") {
            return Err(MmprojError::FileType { file, value });
        }
        let tensors = Tensors::of(&gguf);
        let audio = audio_tensors(&gguf);
        let audio_encoder = metadata.get_or("clip.has_audio_encoder", !audio.is_empty())?;
        let vision = metadata.get_or("clip.has_vision_encoder", tensors.has_tower())?;
        if !vision || !tensors.has_tower() {
            return Err(match (audio_encoder, vision) {
                (true, _) => MmprojError::AudioOnly { file },
                (false, false) if tensors.has_tower() => MmprojError::NoVision {
                    file,
                    reason: "`clip.has_vision_encoder` is false".to_owned(),
                },
                _ => MmprojError::NoVision {
                    file,
                    reason: "it has no `v.*` tensors".to_owned(),
                },
            });
        }
        let kind = projector(&gguf)?.ok_or(MmprojError::NoProjector { file })?;
        Self::read(gguf, kind, tensors, None)
    }

    /// The tower inside a text file, as Ollama used to write it: keys under `clip.vision.` or `ARCHITECTURE.vision.`.
    /// `None` where the file has no `v.*` tensor.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`TextOnly`](MmprojError::TextOnly) for an architecture that takes no images here.
    pub fn embedded(text: &Gguf) -> Result<Option<Self>, MmprojError> {
        let architecture = text.metadata().architecture()?.to_owned();
        let tensors = Tensors::of(text);
        if architecture == CLIP || !tensors.has_tower() {
            return Ok(None);
        }
        let kind = match projector(text)? {
            Some(kind) => kind,
            None => embedded::projector(text, &architecture)?,
        };
        let keys = Keys::embedded(text, &architecture);
        let tensors = embedded::tensors(&keys, tensors)?;
        Self::read(text.clone(), kind, tensors, Some(architecture)).map(Some)
    }

    fn read(
        gguf: Gguf,
        kind: ProcessorKind,
        tensors: Tensors,
        embedded_in: Option<String>,
    ) -> Result<Self, MmprojError> {
        let keys = match &embedded_in {
            Some(architecture) => Keys::embedded(&gguf, architecture),
            None => Keys::clip(&gguf),
        };
        for (_, tensor) in tensors.iter(&gguf) {
            tensor.usable_type()?;
        }
        let config = ClipConfig::read(&keys, &tensors, kind)?;
        let audio = audio_tensors(&gguf);
        Ok(Self {
            audio_encoder: gguf
                .metadata()
                .get_or("clip.has_audio_encoder", !audio.is_empty())?
                || !audio.is_empty(),
            embedded: embedded_in.is_some(),
            kind,
            config,
            tensors,
            audio,
            gguf,
        })
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// Whether the tower is inside a text file.
    pub fn is_embedded(&self) -> bool {
        self.embedded
    }

    /// The projector, as the files spell it.
    pub fn projector(&self) -> &'static str {
        self.kind.projector()
    }

    /// The projector.
    pub fn kind(&self) -> ProcessorKind {
        self.kind
    }

    /// The tower's shape and options.
    pub fn config(&self) -> &ClipConfig {
        &self.config
    }

    /// The tokens around an image.
    pub fn media_tokens(&self) -> MediaTokens {
        MediaTokens::of(self.kind)
    }

    /// Width of an output row: `projection_dim`, once for the tower and once for each DeepStack layer.
    pub fn output_width(&self) -> usize {
        self.config.projection_dim * (1 + self.config.deepstack_layers.len())
    }

    /// The tower's tensors, by the names of mmproj files. Inside a text file of Ollama they may have others:
    /// [`TensorInfo::name`] is the file's.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter(&self.gguf)
    }

    /// The tensor that mmproj files call `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(&self.gguf, name)
    }

    /// Whether the file has an audio encoder too.
    pub fn has_audio(&self) -> bool {
        self.audio_encoder
    }

    /// The tensors of the audio encoder, which no vision tower uses.
    pub fn audio_tensors(&self) -> &[String] {
        &self.audio
    }

    /// Bytes of the tower's tensors.
    pub fn byte_len(&self) -> u64 {
        self.tensors().map(|(_, t)| t.byte_len() as u64).sum()
    }

    /// The type that most values of the tower's matrices have, as ggml spells it.
    pub fn file_type(&self) -> String {
        self.main_type().name().to_owned()
    }

    /// Whether any of the tower's tensors is block-quantized.
    pub fn is_quantized(&self) -> bool {
        self.tensors()
            .filter_map(|(_, t)| t.ggml_type())
            .any(is_quantized)
    }

    /// The type to name in a warning: the main one where it is quantized, else the first that is.
    pub(crate) fn quantized_type(&self) -> GgmlType {
        let main = self.main_type();
        let types = self.tensors().filter_map(|(_, t)| t.ggml_type());
        std::iter::once(main)
            .chain(types)
            .find(|&ty| is_quantized(ty))
            .unwrap_or(main)
    }

    /// Position tables and patch embeddings stay in F32 in most files, whatever the file is called.
    pub(crate) fn main_type(&self) -> GgmlType {
        let mut values: HashMap<GgmlType, u64> = HashMap::new();
        let matrix = |name: &str, tensor: &TensorInfo| {
            tensor.shape().len() == 2
                && !name.starts_with("v.patch_embd.")
                && !name.starts_with("v.position_embd.")
        };
        for (_, tensor) in self.tensors().filter(|(name, t)| matrix(name, t)) {
            if let Some(ty) = tensor.ggml_type() {
                *values.entry(ty).or_default() += tensor.n_elements();
            }
        }
        let main = values.into_iter().max_by_key(|&(ty, n)| (n, ty));
        main.map_or(GgmlType::F32, |(ty, _)| ty)
    }

    /// How images are prepared for this tower.
    ///
    /// # Errors
    /// [`Processor`](MmprojError::Processor) where the file's values do not go together.
    pub fn processor_config(&self, style: ProcessorStyle) -> Result<ProcessorConfig, MmprojError> {
        self.config.processor(self.kind, style).map_err(|source| {
            let file = self.gguf.file().clone();
            MmprojError::Processor { file, source }
        })
    }

    /// Whether two frames can be given as one temporal patch.
    ///
    /// # Errors
    /// [`NoVideo`](MmprojError::NoVideo), with the reason.
    pub fn takes_videos(&self) -> Result<(), MmprojError> {
        let slices = self.tensor("v.patch_embd.weight.1").is_some()
            || self
                .tensor("v.patch_embd.weight")
                .is_some_and(|t| config::is_fused_patch(t.shape()));
        let reason = match self.kind {
            ProcessorKind::Qwen3Vl if slices => return Ok(()),
            ProcessorKind::Qwen3Vl | ProcessorKind::MuseGlimmer => {
                "the patch weights of its frames were summed when it was converted, so it reads still images only"
            }
            _ => "its projector reads still images only",
        };
        let file = self.gguf.file().clone();
        Err(MmprojError::NoVideo { file, reason })
    }
}

/// `general.architecture` of mmproj files.
const CLIP: &str = "clip";

/// That a file is a model and not an mmproj file, before it is loaded as one.
///
/// # Errors
/// [`MainModel`](MmprojError::MainModel).
pub fn check_main_model(text: &Gguf) -> Result<(), MmprojError> {
    match text
        .metadata()
        .get_optional::<&str>("general.architecture")?
    {
        Some(CLIP) => Err(MmprojError::MainModel {
            file: text.file().clone(),
        }),
        _ => Ok(()),
    }
}

fn is_quantized(ty: GgmlType) -> bool {
    ty.block_len() > 1
}

/// The projector the file names, if any.
fn projector(gguf: &Gguf) -> Result<Option<ProcessorKind>, MmprojError> {
    const GENERAL: &str = "clip.projector_type";
    const VISION: &str = "clip.vision.projector_type";
    let file = || gguf.file().clone();
    let general: Option<&str> = gguf.metadata().get_optional(GENERAL)?;
    let vision: Option<&str> = gguf.metadata().get_optional(VISION)?;
    let (key, value) = match (general, vision) {
        (Some(general), Some(vision)) if general != vision => {
            return Err(MmprojError::TwoProjectors {
                file: file(),
                general: general.to_owned(),
                vision: vision.to_owned(),
            });
        }
        (Some(value), _) => (GENERAL, value),
        (None, Some(value)) => (VISION, value),
        (None, None) => return Ok(None),
    };
    match ProcessorKind::from_projector(value) {
        Some(kind) => Ok(Some(kind)),
        None => Err(MmprojError::UnknownProjector {
            file: file(),
            key,
            value: value.to_owned(),
        }),
    }
}

fn is_audio(name: &str) -> bool {
    name.starts_with("a.") || name.starts_with("mm.a.")
}

fn audio_tensors(gguf: &Gguf) -> Vec<String> {
    let names = gguf.tensors().map(TensorInfo::name);
    names.filter(|n| is_audio(n)).map(str::to_owned).collect()
}

/// The tower's tensors: their names in mmproj files and those in this file, in file order.
#[derive(Debug, Clone)]
struct Tensors {
    names: Vec<(String, String)>,
    index: HashMap<String, usize>,
}

impl Tensors {
    fn of(gguf: &Gguf) -> Self {
        let names = gguf.tensors().map(TensorInfo::name);
        let tower =
            |name: &&str| (name.starts_with("v.") || name.starts_with("mm.")) && !is_audio(name);
        Self::new(
            names
                .filter(tower)
                .map(|n| (n.to_owned(), n.to_owned()))
                .collect(),
        )
    }

    fn new(names: Vec<(String, String)>) -> Self {
        let index = names
            .iter()
            .enumerate()
            .map(|(i, (name, _))| (name.clone(), i))
            .collect();
        Self { names, index }
    }

    /// A projector alone is no tower.
    fn has_tower(&self) -> bool {
        self.names.iter().any(|(_, name)| name.starts_with("v."))
    }

    fn get<'a>(&self, gguf: &'a Gguf, name: &str) -> Option<&'a TensorInfo> {
        let (_, file_name) = &self.names[*self.index.get(name)?];
        gguf.tensor(file_name)
    }

    fn iter<'a>(&'a self, gguf: &'a Gguf) -> impl Iterator<Item = (&'a str, &'a TensorInfo)> {
        self.names
            .iter()
            .filter_map(|(name, file_name)| Some((name.as_str(), gguf.tensor(file_name)?)))
    }
}
