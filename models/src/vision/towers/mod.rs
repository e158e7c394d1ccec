//! Vision towers: from a processed picture to rows the text model reads.

pub mod axis_tables;
mod gemma4uv;
pub mod gemma4v;
mod minimax_m3;
pub mod patch_merger;
mod planar;
pub mod position_table;
mod qwen3vl;
pub mod vit;

pub use gemma4uv::{Gemma4UvTower, Gemma4UvTowerConfig};
pub use gemma4v::{Gemma4VTower, Gemma4VTowerConfig};
pub use minimax_m3::{MiniMaxM3Tower, MiniMaxM3TowerConfig};
pub use qwen3vl::{PatchWeights, Qwen3VlTower, Qwen3VlTowerConfig};

use burn::tensor::Tensor;

use super::processor::ProcessedImage;

/// A vision tower of any family.
pub trait VisionTower: Send + Sync {
    /// Width of a row: the text model's [`image_width`](crate::TextModel::image_width).
    fn output_width(&self) -> usize;

    /// Number of weights.
    fn parameters(&self) -> usize;

    /// The rows of a picture, `[tokens, output_width]`; of a video, those of each temporal patch.
    ///
    /// # Errors
    /// What the tower cannot read.
    fn encode(&self, image: &ProcessedImage) -> Result<Vec<Tensor<2>>, TowerError>;
}

/// What a tower cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TowerError {
    /// The converter summed up the weights of a temporal patch's frames.
    #[error(
        "the mmproj file has one patch embedding for both frames of a temporal patch (no `v.patch_embd.weight.1`), so it \
         reads still pictures only; convert the model again to read videos"
    )]
    NoTemporalWeights,
    /// Videos of this family are not read here.
    #[error(
        "the {projector} tower reads still pictures only; give the frames of the video as pictures"
    )]
    StillPicturesOnly {
        /// The projector.
        projector: &'static str,
    },
    /// The picture has more patches to a side than the tower has positions.
    #[error(
        "a picture of {rows} rows and {columns} columns of patches has no positions beyond {entries} in this tower; make it \
         smaller or allow fewer tokens"
    )]
    GridTooLarge {
        /// Rows of patches.
        rows: usize,
        /// Columns of patches.
        columns: usize,
        /// Positions of an axis.
        entries: usize,
    },
}
