//! Loading the tower that goes with a text model.

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;
use burn_gguf::ops::GeluKind;
use burn_gguf::store::{LoadProfile, NameMap};

use super::discover::{Found, How, LogLevel, LogLine, VisionSource, find};
use super::mmproj::{Activation, Mmproj, TextFacts};
use super::processor::{ImageProcessor, ProcessorKind, ProcessorStyle};
use super::towers::vit::VitConfig;
use super::towers::{
    Gemma4UvTower, Gemma4VTower, MiniMaxM3Tower, PatchWeights, Qwen3VlTower, Qwen3VlTowerConfig,
    VisionTower,
};
use super::{Vision, VisionError};
use crate::error::ModelError;
use crate::load::{LoadOptions, LoadReport, load_module};

/// What a tower's weights become in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MmprojDtype {
    /// BF16; quantized weights are dequantized.
    #[default]
    Bf16,
    /// F16.
    F16,
    /// F32.
    F32,
    /// As the file has them, block types included.
    Packed,
}

impl MmprojDtype {
    fn profile(self) -> LoadProfile {
        match self {
            Self::Bf16 => LoadProfile::Dense(FloatDType::BF16),
            Self::F16 => LoadProfile::Dense(FloatDType::F16),
            Self::F32 => LoadProfile::Dense(FloatDType::F32),
            Self::Packed => LoadProfile::Packed,
        }
    }

    /// As the load line and the command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Packed => "packed",
        }
    }
}

/// How a model's eyes are found and loaded.
#[derive(Clone, Debug, Default)]
pub struct VisionOptions {
    /// Where the mmproj file is.
    pub source: VisionSource,
    /// What its weights become.
    pub dtype: MmprojDtype,
    /// Whose image processing is followed.
    pub style: ProcessorStyle,
    /// Fewest tokens of an image, instead of the file's.
    pub min_tokens: Option<u32>,
    /// Most tokens of an image, instead of the file's.
    pub max_tokens: Option<u32>,
    /// Settings of the processor as `key=value`, instead of the file's.
    pub processor: Vec<String>,
}

/// A text model's eyes, or why it has none.
pub(crate) struct LoadedVision {
    pub vision: Result<Vision, String>,
    pub log: Vec<LogLine>,
    /// Names of the tower's tensors that are in the text model's own file.
    pub embedded: Vec<String>,
}

/// Finds and loads the tower of a text model.
pub(crate) fn load_vision(
    text: &Gguf,
    facts: &TextFacts<'_>,
    device: &Device,
    options: &VisionOptions,
    arithmetic: Arithmetic,
) -> Result<LoadedVision, VisionError> {
    let found: Found = find(text, facts, &options.source)?;
    let mut log = found.log.clone();
    let Some(mmproj) = &found.mmproj else {
        let reason = found
            .reason
            .unwrap_or_else(|| "there is no mmproj file".into());
        return Ok(LoadedVision {
            vision: Err(reason),
            log,
            embedded: Vec::new(),
        });
    };
    let loaded = Vision::load(mmproj, device, options, arithmetic);
    let vision = match loaded {
        Ok(vision) => vision,
        // Whoever gave a file, or settings, wants to know; a file that merely lies there must not stop the text model.
        Err(
            error @ (VisionError::Load { .. }
            | VisionError::UnusedTensors { .. }
            | VisionError::UnsupportedTower { .. }),
        ) if found.how != How::Given => {
            let reason = format!("{} cannot be used: {error}", mmproj.gguf().file());
            log.push(LogLine {
                level: LogLevel::Warning,
                text: format!("vision: {reason}; text only"),
            });
            return Ok(LoadedVision {
                vision: Err(reason),
                log,
                embedded: Vec::new(),
            });
        }
        Err(error) => return Err(error),
    };
    log.push(found.load_line(options.dtype.name()));
    let embedded = match mmproj.is_embedded() {
        true => {
            let tower = mmproj.tensors().map(|(_, t)| t.name().to_owned());
            tower
                .chain(mmproj.audio_tensors().iter().cloned())
                .collect()
        }
        false => Vec::new(),
    };
    Ok(LoadedVision {
        vision: Ok(vision),
        log,
        embedded,
    })
}

impl VisionOptions {
    /// The processor of an mmproj file with these settings.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn processor(&self, mmproj: &Mmproj) -> Result<ImageProcessor, VisionError> {
        let mut config = mmproj.processor_config(self.style)?;
        for pair in &self.processor {
            config.set_pair(pair)?;
        }
        config.set_token_limits(self.min_tokens, self.max_tokens)?;
        let file = mmproj.processor_config(self.style)?;
        // The tower's weights are made for these.
        for (key, value, expected) in [
            ("patch_size", config.patch_size, file.patch_size),
            ("merge_size", config.merge_size, file.merge_size),
            (
                "temporal_patch_size",
                config.temporal_patch_size,
                file.temporal_patch_size,
            ),
        ] {
            if value != expected {
                return Err(VisionError::Contradiction {
                    key,
                    value,
                    expected,
                });
            }
        }
        Ok(ImageProcessor::new(config)?)
    }
}

impl Vision {
    /// Loads the tower of an mmproj file on a device, whatever its text model.
    ///
    /// # Errors
    /// A projector that is not run here, or tensors that do not make up its tower.
    pub fn load(
        mmproj: &Mmproj,
        device: &Device,
        options: &VisionOptions,
        arithmetic: Arithmetic,
    ) -> Result<Self, VisionError> {
        let tower = open_tower(mmproj, device, options.dtype, arithmetic)?;
        let vision = Self::new(tower, options.processor(mmproj)?);
        Ok(vision.loaded_from(mmproj.gguf().clone(), options.dtype.name()))
    }
}

/// The projectors whose towers are run.
const SUPPORTED: [ProcessorKind; 4] = [
    ProcessorKind::MiniMaxM3,
    ProcessorKind::Qwen3Vl,
    ProcessorKind::Gemma4V,
    ProcessorKind::Gemma4Uv,
];

fn open_tower(
    mmproj: &Mmproj,
    device: &Device,
    dtype: MmprojDtype,
    arithmetic: Arithmetic,
) -> Result<Box<dyn VisionTower>, VisionError> {
    let options = LoadOptions {
        arithmetic,
        profile: dtype.profile(),
        ..LoadOptions::default()
    };
    match mmproj.kind() {
        ProcessorKind::Qwen3Vl => Ok(Box::new(Qwen3VlTower::load(mmproj, device, options)?.0)),
        ProcessorKind::MiniMaxM3 => Ok(Box::new(MiniMaxM3Tower::load(mmproj, device, options)?.0)),
        ProcessorKind::Gemma4V => Ok(Box::new(Gemma4VTower::load(mmproj, device, options)?.0)),
        ProcessorKind::Gemma4Uv => Ok(Box::new(Gemma4UvTower::load(mmproj, device, options)?.0)),
        other => Err(VisionError::UnsupportedTower {
            projector: other.projector().to_owned(),
            supported: SUPPORTED.map(ProcessorKind::projector).join(", "),
        }),
    }
}

/// Fills a tower by its binding tables, which speak of tensors as mmproj files name them. The tensors `read` came with the
/// tower's configuration.
pub(super) fn load_tower<M: Module>(
    mmproj: &Mmproj,
    tower: M,
    bindings: &[&[(&str, &str)]],
    read: &[String],
    options: LoadOptions,
) -> Result<(M, LoadReport), VisionError> {
    let names = bindings
        .iter()
        .fold(NameMap::default(), |names, table| names.with(table));
    // Inside a text file of Ollama some tensors have other names.
    let aliases: Vec<(&str, String)> = mmproj
        .tensors()
        .filter(|(name, tensor)| tensor.name() != *name)
        .map(|(name, tensor)| (tensor.name(), names.to_module(name)))
        .collect();
    let aliases: Vec<(&str, &str)> = aliases
        .iter()
        .map(|(file, module)| (*file, module.as_str()))
        .collect();
    let tables: Vec<&[(&str, &str)]> = std::iter::once(&aliases[..])
        .chain(bindings.iter().copied())
        .collect();
    let (tower, mut report) = load_module(mmproj.gguf(), tower, &tables, options)
        .map_err(|error| VisionError::load(mmproj, error))?;
    report.unused.retain(|name| !read.contains(name));
    every_tensor_has_a_home(mmproj, &report)?;
    Ok((tower, report))
}

/// A tensor the tower does not use means something it would get wrong.
fn every_tensor_has_a_home(mmproj: &Mmproj, report: &LoadReport) -> Result<(), VisionError> {
    let mut left: Vec<_> = mmproj
        .tensors()
        .map(|(_, tensor)| tensor.name())
        .filter(|name| report.unused.iter().any(|unused| unused == name))
        .filter(|name| !mmproj.audio_tensors().iter().any(|audio| audio == name))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    left.sort_unstable();
    Err(VisionError::UnusedTensors {
        file: mmproj.gguf().file().to_string(),
        projector: mmproj.projector().to_owned(),
        tensors: left.join(", "),
    })
}

impl Qwen3VlTowerConfig {
    /// Reads the shape from an mmproj file.
    ///
    /// # Errors
    /// A position table that is not square, or an activation the tower has not.
    pub fn from_mmproj(mmproj: &Mmproj, arithmetic: Arithmetic) -> Result<Self, VisionError> {
        let clip = mmproj.config();
        let table = "v.position_embd.weight";
        let entries = mmproj
            .tensor(table)
            .and_then(|tensor| tensor.shape().get(1).copied())
            .unwrap_or(0);
        let table_side = entries.isqrt();
        if table_side == 0 || table_side * table_side != entries {
            let error = ModelError::InvalidValue {
                key: table.to_owned(),
                value: format!("{entries} positions"),
                reason: "the table must be square".to_owned(),
            };
            return Err(VisionError::load(mmproj, error));
        }
        // Heads turn in quarters, and fill the width.
        if !clip.head_dim.is_multiple_of(4)
            || clip.head_dim * clip.head_count != clip.embedding_length
        {
            let error = ModelError::InvalidValue {
                key: "clip.vision.attention.head_count".to_owned(),
                value: format!("{} heads of {} values", clip.head_count, clip.head_dim),
                reason: format!(
                    "they must fill the width of {} and be a multiple of 4 wide",
                    clip.embedding_length
                ),
            };
            return Err(VisionError::load(mmproj, error));
        }
        let activation = match clip.activation {
            Activation::GeluTanh => GeluKind::Tanh,
            Activation::GeluQuick => GeluKind::Quick,
            Activation::Silu => {
                let error = ModelError::InvalidValue {
                    key: "clip.use_silu".to_owned(),
                    value: "true".to_owned(),
                    reason: "the blocks of qwen3vl_merger have a GELU".to_owned(),
                };
                return Err(VisionError::load(mmproj, error));
            }
        };
        Ok(Self {
            vit: VitConfig {
                hidden: clip.embedding_length,
                heads: clip.head_count,
                intermediate: clip.feed_forward_length,
                activation,
                eps: clip.layer_norm_epsilon,
                fused_qkv: mmproj.tensor("v.blk.0.attn_q.weight").is_none(),
                arithmetic,
            },
            layers: clip.block_count,
            patch_size: clip.patch_size,
            merge_size: clip.merge_size,
            table_side: table_side as usize,
            output: clip.projection_dim,
            deepstack: clip.deepstack_layers.clone(),
            patches: match mmproj.tensor("v.patch_embd.weight").map(|t| t.shape()) {
                Some([_, _, 2, rows]) if *rows == 3 * clip.embedding_length as u64 => {
                    PatchWeights::Joined
                }
                _ if mmproj.tensor("v.patch_embd.weight.1").is_some() => PatchWeights::Apart,
                _ => PatchWeights::Summed,
            },
        })
    }
}
