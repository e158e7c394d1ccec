//! Shape of the tower, from an mmproj file.

use burn_gguf::Arithmetic;

use super::Bounds;
use crate::error::ModelError;
use crate::vision::VisionError;
use crate::vision::mmproj::{Activation, Mmproj};
use crate::vision::towers::axis_tables::AxisTables;

/// Shape of a [`Gemma4VTower`](super::Gemma4VTower).
#[derive(Clone, Debug, PartialEq)]
pub struct Gemma4VTowerConfig {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Patches per side of a token.
    pub pool: usize,
    /// Entries of the position tables.
    pub table: usize,
    /// Width of the text model.
    pub output: usize,
    /// Whether blocks have a factor on their output.
    pub output_scales: bool,
    /// Whether pooled features are shifted and scaled.
    pub standardized: bool,
    /// Bounds of the linear layers of each block.
    pub blocks: Vec<BlockBounds>,
    /// Those of the last projection.
    pub projection: Bounds,
    /// How products are computed.
    pub arithmetic: Arithmetic,
}

/// Bounds of the linear layers of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockBounds {
    /// Query projection.
    pub q: Bounds,
    /// Key projection.
    pub k: Bounds,
    /// Value projection.
    pub v: Bounds,
    /// Output projection of attention.
    pub output: Bounds,
    /// The MLP's gate.
    pub gate: Bounds,
    /// The MLP's values.
    pub up: Bounds,
    /// The MLP's output.
    pub down: Bounds,
}

impl Gemma4VTowerConfig {
    /// Reads the shape, and the names of the tensors that were read with it.
    ///
    /// # Errors
    /// A shape or an activation the tower cannot have.
    pub fn from_mmproj(
        mmproj: &Mmproj,
        arithmetic: Arithmetic,
    ) -> Result<(Self, Vec<String>), VisionError> {
        let clip = mmproj.config();
        let invalid = |key: &str, value: String, reason: &str| {
            let (key, reason) = (key.to_owned(), reason.to_owned());
            VisionError::load(mmproj, ModelError::InvalidValue { key, value, reason })
        };
        if !clip.head_dim.is_multiple_of(4) {
            let value = format!("{} heads of {} values", clip.head_count, clip.head_dim);
            let key = "clip.vision.attention.head_count";
            return Err(invalid(key, value, "heads must be a multiple of 4 wide"));
        }
        if clip.activation == Activation::Silu {
            let reason = "the blocks of gemma4v have a GELU";
            return Err(invalid("clip.use_silu", "true".to_owned(), reason));
        }
        let mut read = Vec::new();
        let blocks = (0..clip.block_count).map(|i| {
            let mut of = |part| Bounds::of(mmproj, &format!("v.blk.{i}.{part}"), &mut read);
            Ok(BlockBounds {
                q: of("attn_q")?,
                k: of("attn_k")?,
                v: of("attn_v")?,
                output: of("attn_out")?,
                gate: of("ffn_gate")?,
                up: of("ffn_up")?,
                down: of("ffn_down")?,
            })
        });
        let blocks = blocks.collect::<Result<_, VisionError>>()?;
        let config = Self {
            hidden: clip.embedding_length,
            heads: clip.head_count,
            head_dim: clip.head_dim,
            intermediate: clip.feed_forward_length,
            eps: clip.layer_norm_epsilon,
            patch_size: clip.patch_size,
            pool: clip.merge_size,
            table: AxisTables::entries_of(mmproj)?,
            output: clip.projection_dim,
            output_scales: mmproj.tensor("v.blk.0.out_scale.weight").is_some(),
            standardized: mmproj.tensor("v.std_scale").is_some(),
            blocks,
            projection: Bounds::of(mmproj, "mm.input_projection", &mut read)?,
            arithmetic,
        };
        Ok((config, read))
    }
}
