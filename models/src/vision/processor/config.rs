//! What an image processor is configured with.

use std::fmt;
use std::str::FromStr;

use super::super::image::resample::Filter;
use super::gemma;
use super::size::Bounds;

/// The family, by its projector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessorKind {
    /// `qwen3vl_merger`: Qwen3-VL, Qwen3.5.
    Qwen3Vl,
    /// `gemma4v`.
    Gemma4V,
    /// `gemma4uv`, without a transformer.
    Gemma4Uv,
    /// `glm4v`.
    Glm4V,
    /// `glm5v`.
    Glm5V,
    /// `deepseek4v`.
    DeepSeek4V,
    /// `minimax_m3`.
    MiniMaxM3,
    /// `muse-glimmer`.
    MuseGlimmer,
}

impl ProcessorKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Qwen3Vl,
        Self::Gemma4V,
        Self::Gemma4Uv,
        Self::Glm4V,
        Self::Glm5V,
        Self::DeepSeek4V,
        Self::MiniMaxM3,
        Self::MuseGlimmer,
    ];

    /// The value of `clip.projector_type`.
    pub fn projector(self) -> &'static str {
        match self {
            Self::Qwen3Vl => "qwen3vl_merger",
            Self::Gemma4V => "gemma4v",
            Self::Gemma4Uv => "gemma4uv",
            Self::Glm4V => "glm4v",
            Self::Glm5V => "glm5v",
            Self::DeepSeek4V => "deepseek4v",
            Self::MiniMaxM3 => "minimax_m3",
            Self::MuseGlimmer => "muse-glimmer",
        }
    }

    /// The kind of a projector, where it is known.
    pub fn from_projector(projector: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.projector() == projector)
    }
}

/// Whose sizes, padding and resampling are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProcessorStyle {
    /// The original processor's.
    #[default]
    Transformers,
    /// llama.cpp's, for comparison.
    LlamaCpp,
}

impl fmt::Display for ProcessorStyle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Transformers => "transformers",
            Self::LlamaCpp => "llama.cpp",
        })
    }
}

/// Configuration of an [`ImageProcessor`](super::ImageProcessor). [`ProcessorConfig::new`] gives what the family's
/// projector implies; a caller replaces what its file says.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessorConfig {
    /// The family.
    pub kind: ProcessorKind,
    /// Whose rules.
    pub style: ProcessorStyle,
    /// Side of a patch in pixels (`clip.vision.patch_size`).
    pub patch_size: u32,
    /// Patches per side of a token (`clip.vision.spatial_merge_size`, `clip.vision.projector.scale_factor`).
    pub merge_size: u32,
    /// Frames of a patch.
    pub temporal_patch_size: u32,
    /// Mean of each channel in 0..=1 (`clip.vision.image_mean`).
    pub image_mean: [f32; 3],
    /// Deviation of each channel (`clip.vision.image_std`).
    pub image_std: [f32; 3],
    /// Fewest pixels of a resized picture.
    pub min_pixels: u64,
    /// Most pixels of a resized picture; of Gemma 4, the pixels of the token budget.
    pub max_pixels: u64,
    /// Fewest pixels of all frames of a resized video.
    pub video_min_pixels: u64,
    /// Most pixels of all frames of a resized video.
    pub video_max_pixels: u64,
    /// Most rows of a token block, separators included (`deepseek4v`).
    pub max_block_tokens: u32,
    /// Wider pictures are squeezed to this ratio of width to height (`deepseek4v`).
    pub max_width_ratio: u32,
    /// Interpolation.
    pub filter: Filter,
    /// Largest ratio of the longer to the shorter side that is accepted.
    pub max_ratio: Option<u32>,
}

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An override is no `key=value`.
    #[error("processor override `{0}` is not of the form key=value")]
    NoValue(String),
    /// No such key.
    #[error("there is no processor setting `{key}` (there are: {})", ProcessorConfig::KEYS.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A value of the wrong form.
    #[error("processor setting `{key}` is `{value}`, expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What fits.
        expected: &'static str,
    },
    /// A number that has to be at least 1 is 0, or is too large.
    #[error("processor setting `{key}` is {value}, expected 1 to {limit}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The value.
        value: u64,
        /// Largest value.
        limit: u64,
    },
    /// The minimum is above the maximum.
    #[error(
        "the image minimum of {min} pixels ({min_tokens} tokens) is above the maximum of {max} ({max_tokens} tokens)"
    )]
    Crossed {
        /// Fewest pixels.
        min: u64,
        /// Most pixels.
        max: u64,
        /// Fewest tokens.
        min_tokens: u64,
        /// Most tokens.
        max_tokens: u64,
    },
    /// Gemma 4 knows five budgets only.
    #[error("{tokens} soft tokens per image, expected one of 70, 140, 280, 560 and 1120")]
    Budget {
        /// The budget asked for.
        tokens: u64,
    },
    /// A mean that is not finite, or a deviation that is not positive.
    #[error("processor setting `{key}` is {value:?}, expected finite numbers{}", if *key == "image_std" { " above 0" } else { "" })]
    Normalization {
        /// The key.
        key: &'static str,
        /// The values.
        value: [f32; 3],
    },
}

const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

impl ProcessorConfig {
    /// Keys of [`ProcessorConfig::set`].
    pub const KEYS: [&'static str; 18] = [
        "style",
        "patch_size",
        "merge_size",
        "temporal_patch_size",
        "image_mean",
        "image_std",
        "min_pixels",
        "max_pixels",
        "shortest_edge",
        "longest_edge",
        "min_tokens",
        "max_tokens",
        "max_soft_tokens",
        "video_min_pixels",
        "video_max_pixels",
        "max_block_tokens",
        "resample",
        "max_ratio",
    ];

    /// Defaults of a family. No GGUF file holds the pixel bounds of Qwen3-VL's processor; those here, of images and
    /// videos, are what its `preprocessor_config.json` is known for.
    pub fn new(kind: ProcessorKind, style: ProcessorStyle) -> Self {
        use ProcessorKind::*;
        let llama = style == ProcessorStyle::LlamaCpp;
        let (patch_size, merge_size, temporal_patch_size) = match kind {
            Qwen3Vl => (16, 2, 2),
            Gemma4V | Gemma4Uv => (16, 3, 1),
            Glm4V | Glm5V | MiniMaxM3 | MuseGlimmer => (14, 2, 2),
            DeepSeek4V => (14, 3, 1),
        };
        let (image_mean, image_std) = match kind {
            Qwen3Vl | MuseGlimmer | DeepSeek4V => ([0.5; 3], [0.5; 3]),
            Gemma4V | Gemma4Uv => ([0.0; 3], [1.0; 3]),
            Glm4V | Glm5V | MiniMaxM3 => (CLIP_MEAN, CLIP_STD),
        };
        let token = u64::from(patch_size * merge_size).pow(2);
        let (min_pixels, max_pixels) = match kind {
            Qwen3Vl if llama => (8 * token, 4096 * token),
            Qwen3Vl => (1 << 16, 1 << 24),
            Gemma4V | Gemma4Uv if llama => (70 * token, 1120 * token),
            Gemma4V | Gemma4Uv => (token, 280 * token),
            Glm4V if llama => (8 * token, 4096 * token),
            // Half of what is configured, as a still image counts as two frames.
            Glm4V => (112 * 112 / 2, 7500 * token),
            Glm5V => (16 * token, 8000 * token),
            DeepSeek4V => (16 * token, 384 * token),
            MiniMaxM3 if llama => (8 * token, 576 * token),
            MiniMaxM3 => (4 * token, 576 * token),
            MuseGlimmer => (token, 4096 * token),
        };
        let limited = matches!(kind, Qwen3Vl | Glm4V | MiniMaxM3) && !llama;
        Self {
            kind,
            style,
            patch_size,
            merge_size,
            temporal_patch_size,
            image_mean,
            image_std,
            min_pixels,
            max_pixels,
            video_min_pixels: 4096,
            video_max_pixels: 25_165_824,
            max_block_tokens: 384,
            max_width_ratio: 8,
            filter: if kind == MuseGlimmer {
                Filter::Lanczos
            } else {
                Filter::Bicubic
            },
            max_ratio: limited.then_some(200),
        }
    }

    /// Side of a token in pixels.
    pub fn token_size(&self) -> u32 {
        self.patch_size * self.merge_size
    }

    /// Pixels of a token.
    pub fn token_pixels(&self) -> u64 {
        u64::from(self.token_size()).pow(2)
    }

    /// Fewest tokens of an image.
    pub fn min_tokens(&self) -> u64 {
        self.min_pixels / self.token_pixels()
    }

    /// Most tokens of an image; of Gemma 4 the budget.
    pub fn max_tokens(&self) -> u64 {
        self.max_pixels / self.token_pixels()
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            factor: self.token_size(),
            min: self.min_pixels,
            max: self.max_pixels,
        }
    }

    /// `--image-min-tokens` and `--image-max-tokens`. Gemma 4 takes the largest of its budgets that is not above the
    /// maximum, or the smallest that is not below the minimum; `deepseek4v` counts separators in the maximum.
    pub fn set_token_limits(
        &mut self,
        min: Option<u32>,
        max: Option<u32>,
    ) -> Result<(), ConfigError> {
        let token = self.token_pixels();
        let gemma = matches!(self.kind, ProcessorKind::Gemma4V | ProcessorKind::Gemma4Uv)
            && self.style == ProcessorStyle::Transformers;
        if gemma {
            let (min, max) = (min.map(u64::from), max.map(u64::from));
            let fits = |budget: u64| {
                max.is_none_or(|max| budget <= max) && min.is_none_or(|min| budget >= min)
            };
            let budget = match (fits(self.max_tokens()), max) {
                (true, _) => Some(self.max_tokens()),
                (false, Some(_)) => gemma::BUDGETS
                    .into_iter()
                    .rev()
                    .find(|&budget| fits(budget)),
                (false, None) => gemma::BUDGETS.into_iter().find(|&budget| fits(budget)),
            };
            let tokens = max.or(min).unwrap_or_default();
            self.max_pixels = budget.ok_or(ConfigError::Budget { tokens })? * token;
            return self.validate();
        }
        if let Some(max) = max {
            self.max_pixels = u64::from(max) * token;
            if self.kind == ProcessorKind::DeepSeek4V {
                self.max_block_tokens = max.max(16);
                self.max_pixels = u64::from(self.max_block_tokens) * token;
                self.min_pixels = self.min_pixels.min(self.max_pixels);
            }
        }
        if let Some(min) = min {
            self.min_pixels = u64::from(min) * token;
        }
        self.validate()
    }

    /// An override as written on a command line: `key=value`.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), ConfigError> {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| ConfigError::NoValue(pair.to_owned()))?;
        self.set(key.trim(), value.trim())
    }

    /// Sets one of [`ProcessorConfig::KEYS`]. Setting `style` brings back all defaults of that style except for
    /// patch sizes and normalisation, so it comes first.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let token = self.token_pixels();
        match key {
            "style" => self.set_style(match value {
                "transformers" => ProcessorStyle::Transformers,
                "llama.cpp" => ProcessorStyle::LlamaCpp,
                _ => return Err(bad(key, value, "transformers or llama.cpp")),
            }),
            "patch_size" => self.patch_size = number(key, value)?,
            "merge_size" => self.merge_size = number(key, value)?,
            "temporal_patch_size" => self.temporal_patch_size = number(key, value)?,
            "image_mean" => self.image_mean = three(key, value)?,
            "image_std" => self.image_std = three(key, value)?,
            "min_pixels" | "shortest_edge" => self.min_pixels = number(key, value)?,
            "max_pixels" | "longest_edge" => self.max_pixels = number(key, value)?,
            "min_tokens" => self.min_pixels = number::<u32>(key, value).map(u64::from)? * token,
            "max_tokens" => self.max_pixels = number::<u32>(key, value).map(u64::from)? * token,
            "max_soft_tokens" => {
                let tokens = number::<u32>(key, value)?.into();
                if !gemma::BUDGETS.contains(&tokens) {
                    return Err(ConfigError::Budget { tokens });
                }
                self.max_pixels = tokens * token;
            }
            "video_min_pixels" => self.video_min_pixels = number(key, value)?,
            "video_max_pixels" => self.video_max_pixels = number(key, value)?,
            "max_block_tokens" => self.max_block_tokens = number(key, value)?,
            "resample" => {
                self.filter = match value {
                    "bilinear" | "2" => Filter::Bilinear,
                    "bicubic" | "3" => Filter::Bicubic,
                    "lanczos" | "1" => Filter::Lanczos,
                    _ => return Err(bad(key, value, "bilinear, bicubic or lanczos")),
                }
            }
            "max_ratio" if value == "none" => self.max_ratio = None,
            "max_ratio" => self.max_ratio = Some(number(key, value)?),
            _ => {
                return Err(ConfigError::UnknownKey {
                    key: key.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn set_style(&mut self, style: ProcessorStyle) {
        *self = Self {
            patch_size: self.patch_size,
            merge_size: self.merge_size,
            temporal_patch_size: self.temporal_patch_size,
            image_mean: self.image_mean,
            image_std: self.image_std,
            ..Self::new(self.kind, style)
        };
    }

    /// Checks everything that a file or a user may have set.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("patch_size", self.patch_size.into(), 1024),
            ("merge_size", self.merge_size.into(), 64),
            ("temporal_patch_size", self.temporal_patch_size.into(), 16),
            ("max_pixels", self.max_pixels, 1 << 30),
            ("video_max_pixels", self.video_max_pixels, 1 << 32),
        ];
        for (key, value, limit) in ranges {
            if value == 0 || value > limit {
                return Err(ConfigError::OutOfRange { key, value, limit });
            }
        }
        if self.video_min_pixels > self.video_max_pixels {
            let tokens = |pixels: u64| pixels / self.token_pixels();
            return Err(ConfigError::Crossed {
                min: self.video_min_pixels,
                max: self.video_max_pixels,
                min_tokens: tokens(self.video_min_pixels),
                max_tokens: tokens(self.video_max_pixels),
            });
        }
        if !(16..=1 << 20).contains(&self.max_block_tokens) {
            let value = self.max_block_tokens.into();
            return Err(ConfigError::OutOfRange {
                key: "max_block_tokens",
                value,
                limit: 1 << 20,
            });
        }
        if self.min_pixels > self.max_pixels || self.max_tokens() == 0 {
            return Err(ConfigError::Crossed {
                min: self.min_pixels.max(self.token_pixels()),
                max: self.max_pixels,
                min_tokens: self.min_tokens().max(1),
                max_tokens: self.max_tokens(),
            });
        }
        if !self.image_mean.iter().all(|mean| mean.is_finite()) {
            return Err(ConfigError::Normalization {
                key: "image_mean",
                value: self.image_mean,
            });
        }
        if !self
            .image_std
            .iter()
            .all(|std| std.is_finite() && *std > 0.0)
        {
            return Err(ConfigError::Normalization {
                key: "image_std",
                value: self.image_std,
            });
        }
        Ok(())
    }
}

fn bad(key: &str, value: &str, expected: &'static str) -> ConfigError {
    ConfigError::BadValue {
        key: key.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, ConfigError> {
    value.parse().map_err(|_| bad(key, value, "a whole number"))
}

fn three(key: &str, value: &str) -> Result<[f32; 3], ConfigError> {
    let parsed: Option<Vec<f32>> = value
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect();
    let numbers = parsed.and_then(|numbers| <[f32; 3]>::try_from(numbers).ok());
    numbers.ok_or_else(|| bad(key, value, "three numbers separated by commas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qwen() -> ProcessorConfig {
        ProcessorConfig::new(ProcessorKind::Qwen3Vl, ProcessorStyle::Transformers)
    }

    #[test]
    fn defaults_are_valid_and_projectors_are_unique() {
        for kind in ProcessorKind::ALL {
            assert_eq!(ProcessorKind::from_projector(kind.projector()), Some(kind));
            for style in [ProcessorStyle::Transformers, ProcessorStyle::LlamaCpp] {
                ProcessorConfig::new(kind, style).validate().unwrap();
            }
        }
        assert_eq!(ProcessorKind::from_projector("mlp"), None);
    }

    #[test]
    fn every_key_can_be_set() {
        for key in ProcessorConfig::KEYS {
            let value = match key {
                "style" => "llama.cpp",
                "image_mean" | "image_std" => "0.1, 0.2,0.3",
                "max_soft_tokens" => "560",
                "resample" => "lanczos",
                _ => "17",
            };
            let mut config = qwen();
            config.set_pair(&format!("{key} = {value}")).unwrap();
            assert_ne!(config, qwen(), "{key}");
        }
    }

    #[test]
    fn bad_overrides_name_the_key() {
        let errors = [
            ("min_pixel=3", "no processor setting `min_pixel`"),
            ("min_pixels", "key=value"),
            ("min_pixels=many", "`min_pixels` is `many`"),
            ("image_std=1,2", "three numbers"),
            ("resample=nearest", "bilinear, bicubic or lanczos"),
            ("max_soft_tokens=100", "one of 70"),
        ];
        for (pair, message) in errors {
            let error = qwen().set_pair(pair).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let mut config = qwen();
        assert!(matches!(
            config.set_token_limits(Some(100), Some(10)),
            Err(ConfigError::Crossed { .. })
        ));
        for pair in [
            "patch_size=0",
            "max_pixels=0",
            "max_pixels=100",
            "image_std=0,1,1",
            "image_mean=nan,0,0",
        ] {
            let mut config = qwen();
            config.set_pair(pair).unwrap();
            assert!(config.validate().is_err(), "{pair}");
        }
    }

    #[test]
    fn gemma_takes_one_of_its_budgets() {
        let budget = |min, max| {
            let mut config =
                ProcessorConfig::new(ProcessorKind::Gemma4V, ProcessorStyle::Transformers);
            config
                .set_token_limits(min, max)
                .map(|()| config.max_tokens())
        };
        assert_eq!(budget(None, None), Ok(280));
        assert_eq!(budget(None, Some(500)), Ok(280));
        assert_eq!(budget(None, Some(200)), Ok(140));
        assert_eq!(budget(Some(300), None), Ok(560));
        assert_eq!(budget(Some(300), Some(2000)), Ok(1120));
        assert_eq!(
            budget(None, Some(69)),
            Err(ConfigError::Budget { tokens: 69 })
        );
    }
}
