//! Image processors: the size a picture is given, and the values a vision tower reads from it.
//!
//! One file per family decides the size; resampling, normalisation and the order of values are shared. The defaults
//! are transformers' (`AutoImageProcessor` on torchvision); [`ProcessorStyle::LlamaCpp`] gives llama.cpp's sizes,
//! letterboxes and resampling for comparison.
//!
//! ```
//! # use burn_gguf_models::vision::image::Image;
//! # use burn_gguf_models::vision::processor::{ImageProcessor, ProcessorConfig, ProcessorKind, ProcessorStyle};
//! let mut config = ProcessorConfig::new(ProcessorKind::Qwen3Vl, ProcessorStyle::Transformers);
//! config.set("max_tokens", "1024")?;
//! let processor = ImageProcessor::new(config)?;
//! let picture = Image::from_rgb(image::RgbImage::new(640, 480))?;
//! let processed = processor.process(&picture)?;
//! assert_eq!(processed.token_count(), 300);
//! assert_eq!(processed.pixel_values().rows, 1200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
pub mod deepseek;
mod gemma;
mod glm;
mod layout;
mod minimax;
mod muse;
mod qwen;
mod size;

use image::RgbImage;
use image::imageops;

pub use config::{ConfigError, ProcessorConfig, ProcessorKind, ProcessorStyle};
pub use layout::PixelValues;
pub use size::{Grid, Placement};

use super::image::resample::{Arithmetic, resize};
use super::image::{ContentHash, DecodeOptions, Image, ImageError};
use layout::{Layout, Normalize};

/// Turns pictures into the input of a vision tower.
#[derive(Debug, Clone)]
pub struct ImageProcessor {
    config: ProcessorConfig,
}

impl ImageProcessor {
    /// A processor of a valid configuration.
    pub fn new(config: ProcessorConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }

    /// The configuration.
    pub fn config(&self) -> &ProcessorConfig {
        &self.config
    }

    /// How pictures are to be decoded for this processor.
    pub fn decode_options(&self) -> DecodeOptions {
        match self.config.style {
            ProcessorStyle::Transformers => DecodeOptions::default(),
            ProcessorStyle::LlamaCpp => DecodeOptions::llama_cpp(),
        }
    }

    /// Where a picture of this size is put, without touching pixels.
    pub fn placement(&self, image: &Image) -> Result<Placement, ImageError> {
        let (config, width, height) = (&self.config, image.width(), image.height());
        let limit = config.max_ratio;
        if limit.is_some_and(|limit| {
            u64::from(width.max(height)) > u64::from(limit) * u64::from(width.min(height))
        }) {
            let (origin, limit) = (image.origin().clone(), limit.unwrap_or_default());
            return Err(ImageError::Ratio {
                origin,
                width,
                height,
                limit,
            });
        }
        let placement = match config.kind {
            ProcessorKind::Qwen3Vl => qwen::place(config, width, height),
            ProcessorKind::Gemma4V | ProcessorKind::Gemma4Uv => gemma::place(config, width, height),
            ProcessorKind::Glm4V => glm::place_4v(config, width, height),
            ProcessorKind::Glm5V => glm::place_5v(config, width, height),
            ProcessorKind::DeepSeek4V => deepseek::place(config, width, height),
            ProcessorKind::MiniMaxM3 => minimax::place(config, width, height),
            ProcessorKind::MuseGlimmer => muse::place(config, width, height),
        };
        // Rounding up to whole tokens may step over the limit a little; an extreme shape may be far beyond it.
        let tokens =
            u64::from(placement.canvas.0) * u64::from(placement.canvas.1) / config.token_pixels();
        let limit = config.max_tokens();
        if tokens > limit.saturating_mul(2) {
            return Err(ImageError::TooManyTokens {
                origin: image.origin().clone(),
                width,
                height,
                tokens,
                limit,
            });
        }
        Ok(placement)
    }

    /// Resizes, and pads where the family does.
    pub fn process(&self, image: &Image) -> Result<ProcessedImage, ImageError> {
        let placement = self.placement(image)?;
        Ok(self.processed(vec![self.draw(image.pixels(), &placement)], placement))
    }

    /// Takes a picture that is resized already.
    pub fn process_resized(&self, image: &Image) -> Result<ProcessedImage, ImageError> {
        let multiple = match self.config.kind {
            ProcessorKind::DeepSeek4V => self.config.patch_size,
            _ => self.config.token_size(),
        };
        let (width, height) = (image.width(), image.height());
        if width % multiple != 0 || height % multiple != 0 {
            return Err(ImageError::NotAligned {
                origin: image.origin().clone(),
                width,
                height,
                multiple,
            });
        }
        Ok(self.processed(
            vec![image.pixels().clone()],
            Placement::stretched(width, height),
        ))
    }

    /// Resizes the frames of a video, which share one size and one pixel budget. An incomplete last temporal patch
    /// repeats the last frame.
    pub fn process_video(&self, frames: &[Image]) -> Result<ProcessedImage, ImageError> {
        let config = &self.config;
        let projector = config.kind.projector();
        let Some(first) = frames
            .first()
            .filter(|_| config.kind == ProcessorKind::Qwen3Vl)
        else {
            return Err(ImageError::NoVideo { projector });
        };
        let (width, height) = (first.width(), first.height());
        if let Some(other) = frames
            .iter()
            .find(|frame| (frame.width(), frame.height()) != (width, height))
        {
            return Err(ImageError::FrameSize {
                origin: other.origin().clone(),
                width: other.width(),
                height: other.height(),
                first_width: width,
                first_height: height,
            });
        }
        self.placement(first)?;
        let placement = qwen::place_video(config, frames.len(), width, height);
        let mut pictures: Vec<_> = frames
            .iter()
            .map(|frame| self.draw(frame.pixels(), &placement))
            .collect();
        while !pictures
            .len()
            .is_multiple_of(config.temporal_patch_size as usize)
        {
            pictures.extend(pictures.last().cloned());
        }
        Ok(self.processed(pictures, placement))
    }

    fn draw(&self, picture: &RgbImage, placement: &Placement) -> RgbImage {
        let arithmetic = match (self.config.style, self.config.kind) {
            // The family's own processor, which transformers lacks, resizes with Pillow.
            (ProcessorStyle::LlamaCpp, _) | (_, ProcessorKind::DeepSeek4V) => Arithmetic::Pillow,
            _ => Arithmetic::Torch,
        };
        let (width, height) = placement.content;
        let content = resize(picture, width, height, self.config.filter, arithmetic);
        if placement.content == placement.canvas {
            return content;
        }
        let (width, height) = placement.canvas;
        let mut canvas = RgbImage::from_pixel(width, height, image::Rgb(placement.fill));
        let (left, top) = placement.offset;
        imageops::replace(&mut canvas, &content, left.into(), top.into());
        canvas
    }

    fn processed(&self, frames: Vec<RgbImage>, placement: Placement) -> ProcessedImage {
        ProcessedImage {
            frames,
            placement,
            config: self.config.clone(),
        }
    }
}

/// What a vision tower sees of a picture, or of a video.
#[derive(Debug, Clone)]
pub struct ProcessedImage {
    frames: Vec<RgbImage>,
    placement: Placement,
    config: ProcessorConfig,
}

impl ProcessedImage {
    /// The resized picture; the first frame of a video.
    pub fn pixels(&self) -> &RgbImage {
        &self.frames[0]
    }

    /// All resized frames; one of a still picture.
    pub fn frames(&self) -> &[RgbImage] {
        &self.frames
    }

    /// Where on the canvas the picture is.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Temporal patches: 1 for a still picture.
    pub fn temporal_patches(&self) -> usize {
        self.frames
            .len()
            .div_ceil(self.config.temporal_patch_size as usize)
    }

    /// Patches of one frame.
    pub fn patch_grid(&self) -> Grid {
        let patch = match self.config.kind {
            // Reads whole tokens, as it has no transformer that would mix patches.
            ProcessorKind::Gemma4Uv => self.config.token_size(),
            _ => self.config.patch_size,
        };
        let (width, height) = self.placement.canvas;
        Grid {
            rows: (height / patch) as usize,
            columns: (width / patch) as usize,
        }
    }

    /// Tokens of one temporal patch, without separators.
    pub fn token_grid(&self) -> Grid {
        let token = self.config.token_size();
        let (width, height) = self.placement.canvas;
        Grid {
            rows: height.div_ceil(token) as usize,
            columns: width.div_ceil(token) as usize,
        }
    }

    /// Rows that enter the text model, separators of the family included, for an image at the start of a prompt.
    pub fn token_count(&self) -> usize {
        self.token_count_after(0)
    }

    /// Rows that enter the text model behind `past` tokens of the prompt; only `deepseek4v` depends on it.
    pub fn token_count_after(&self, past: usize) -> usize {
        match self.config.kind {
            ProcessorKind::DeepSeek4V => {
                deepseek::Block::new(self.token_grid(), deepseek::lead_pad(past)).len()
            }
            _ => self.token_grid().len() * self.temporal_patches(),
        }
    }

    /// Normalised values, a row per patch, in the order of the original processor.
    pub fn pixel_values(&self) -> PixelValues {
        let layout = Layout::of(&self.config);
        layout.apply(
            &self.frames,
            &Normalize::new(self.config.image_mean, self.config.image_std),
        )
    }

    /// Normalised values of one frame as planes: red, green, blue, each row by row.
    pub fn planes(&self, frame: usize) -> Vec<f32> {
        Normalize::new(self.config.image_mean, self.config.image_std).planes(&self.frames[frame])
    }

    /// Key of the embedding: equal where the tower reads equal pixels.
    pub fn hash(&self) -> ContentHash {
        ContentHash::of(&self.frames)
    }
}
