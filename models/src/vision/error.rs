//! What can go wrong with images.

use super::image::ImageError;
use super::mmproj::{Mmproj, MmprojError};
use super::processor::ConfigError;
use super::towers::TowerError;
use crate::error::ModelError;

/// Why an image does not reach the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisionError {
    /// The model has no tower.
    #[error("the model reads no images: {reason}")]
    NoVision {
        /// Why it has none.
        reason: String,
    },
    /// The mmproj file.
    #[error(transparent)]
    Mmproj(#[from] MmprojError),
    /// Its tensors do not make up the tower.
    #[error("{file}: {source}")]
    Load {
        /// The mmproj file.
        file: String,
        /// What is wrong.
        #[source]
        source: Box<ModelError>,
    },
    /// A setting of the processor that the tower's weights do not allow.
    #[error("processor setting `{key}` is {value}; the tower of this file was made for {expected}")]
    Contradiction {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: u32,
        /// The file's.
        expected: u32,
    },
    /// The tower of this projector is not run here.
    #[error("the tower of projector \"{projector}\" is not supported; supported: {supported}")]
    UnsupportedTower {
        /// `clip.projector_type`.
        projector: String,
        /// What is run, comma separated.
        supported: String,
    },
    /// Tensors of the mmproj file that its tower does not use.
    #[error(
        "{file}: the {projector} tower has no place for {tensors}; it would compute wrong numbers without them"
    )]
    UnusedTensors {
        /// The file.
        file: String,
        /// Its projector.
        projector: String,
        /// The tensors, comma separated.
        tensors: String,
    },
    /// The processor's settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The picture.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The tower.
    #[error(transparent)]
    Tower(#[from] TowerError),
}

impl VisionError {
    pub(super) fn load(mmproj: &Mmproj, source: ModelError) -> Self {
        Self::Load {
            file: mmproj.gguf().file().to_string(),
            source: Box::new(source),
        }
    }
}
