//! The tower of Gemma 4 (`gemma4v`).

mod block;
mod clamped;
mod config;

pub use block::{Gemma4VBlock, HalfRopes};
pub use clamped::{Bounds, ClampedLinear};
pub use config::{BlockBounds, Gemma4VTowerConfig};

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn_gguf::nn::GgmlLinear;

use super::axis_tables::AxisTables;
use super::planar::planar_patches;
use super::{TowerError, VisionTower};
use crate::layers::weightless_rms_norm;
use crate::load::{LoadOptions, LoadReport};
use crate::vision::VisionError;
use crate::vision::load::load_tower;
use crate::vision::mmproj::Mmproj;
use crate::vision::processor::ProcessedImage;

/// GGUF tensor names and module paths; `{}` is the block.
const BINDINGS: &[(&str, &str)] = &[
    ("v.patch_embd.weight", "patch.weight"),
    ("v.position_embd.weight", "positions.weight"),
    ("v.blk.{}.ln1.weight", "blocks.{}.attention_norm.weight"),
    ("v.blk.{}.attn_q.weight", "blocks.{}.q.linear.weight"),
    ("v.blk.{}.attn_k.weight", "blocks.{}.k.linear.weight"),
    ("v.blk.{}.attn_v.weight", "blocks.{}.v.linear.weight"),
    ("v.blk.{}.attn_out.weight", "blocks.{}.output.linear.weight"),
    ("v.blk.{}.attn_q_norm.weight", "blocks.{}.q_norm.weight"),
    ("v.blk.{}.attn_k_norm.weight", "blocks.{}.k_norm.weight"),
    (
        "v.blk.{}.attn_post_norm.weight",
        "blocks.{}.post_attention_norm.weight",
    ),
    ("v.blk.{}.ln2.weight", "blocks.{}.mlp_norm.weight"),
    ("v.blk.{}.ffn_gate.weight", "blocks.{}.gate.linear.weight"),
    ("v.blk.{}.ffn_up.weight", "blocks.{}.up.linear.weight"),
    ("v.blk.{}.ffn_down.weight", "blocks.{}.down.linear.weight"),
    (
        "v.blk.{}.ffn_post_norm.weight",
        "blocks.{}.post_mlp_norm.weight",
    ),
    ("v.blk.{}.out_scale.weight", "blocks.{}.output_scale"),
    ("v.std_bias", "std_bias"),
    ("v.std_scale", "std_scale"),
    ("mm.input_projection.weight", "projection.linear.weight"),
];

/// A vision transformer with gated MLPs, two-axis rotary positions beside learned tables, and tokens that average squares
/// of patches.
#[derive(Module, Debug)]
pub struct Gemma4VTower {
    /// `[3 * patch^2] -> [hidden]`, channels apart.
    pub patch: GgmlLinear,
    /// The learned positions.
    pub positions: AxisTables,
    /// The blocks.
    pub blocks: Vec<Gemma4VBlock>,
    /// Subtracted from pooled features, `[hidden]`.
    pub std_bias: Option<Param<Tensor<1>>>,
    /// Multiplied with them then, `[hidden]`.
    pub std_scale: Option<Param<Tensor<1>>>,
    /// `[hidden] -> [output]`.
    pub projection: ClampedLinear,
    #[module(skip)]
    config: Gemma4VTowerConfig,
}

impl Gemma4VTower {
    /// A tower to be loaded from a file.
    pub fn uninitialized(config: &Gemma4VTowerConfig, device: &Device) -> Self {
        let (hidden, arithmetic) = (config.hidden, config.arithmetic);
        let pixels = 3 * config.patch_size * config.patch_size;
        let row = |ones: bool| {
            let row = match ones {
                true => Tensor::ones([hidden], device),
                false => Tensor::zeros([hidden], device),
            };
            config.standardized.then(|| Param::from_tensor(row))
        };
        Self {
            patch: GgmlLinear::uninitialized(pixels, hidden, false, device)
                .with_arithmetic(arithmetic),
            positions: AxisTables::new(config.table, hidden, device),
            blocks: config
                .blocks
                .iter()
                .map(|bounds| Gemma4VBlock::uninitialized(config, bounds, device))
                .collect(),
            std_bias: row(false),
            std_scale: row(true),
            projection: ClampedLinear::uninitialized(
                hidden,
                config.output,
                config.projection,
                arithmetic,
                device,
            ),
            config: config.clone(),
        }
    }

    /// Loads the tower of an mmproj file.
    ///
    /// # Errors
    /// A shape the tower cannot have, or tensors that do not make it up.
    pub fn load(
        mmproj: &Mmproj,
        device: &Device,
        options: LoadOptions,
    ) -> Result<(Self, LoadReport), VisionError> {
        let (config, read) = Gemma4VTowerConfig::from_mmproj(mmproj, options.arithmetic)?;
        let tower = Self::uninitialized(&config, device);
        load_tower(mmproj, tower, &[BINDINGS], &read, options)
    }

    /// The configuration.
    pub fn tower_config(&self) -> &Gemma4VTowerConfig {
        &self.config
    }

    /// Patches `[batch, patches, 3 * patch^2]` with values in -1..=1, those of a token next to each other; `positions` are
    /// their rows and columns. Returns `[batch, tokens, output]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or on CPU devices if a position is not in the tables.
    pub fn forward(&self, patches: Tensor<3>, positions: &[[u32; 2]]) -> Tensor<3> {
        let x = self.patch.forward(patches);
        let device = x.device();
        let mut x = x + self.positions.forward(positions).unsqueeze();
        let ropes = HalfRopes::new(positions, self.config.head_dim, &device);
        for block in &self.blocks {
            x = block.forward(x, &ropes);
        }
        let x = self.pooled(x);
        let x = match (&self.std_bias, &self.std_scale) {
            (Some(bias), Some(scale)) => {
                (x - bias.val().unsqueeze()) * scale.val().unsqueeze::<3>()
            }
            _ => x,
        };
        self.projection
            .forward(weightless_rms_norm(x, self.config.eps))
    }

    /// The mean of each token's patches times `sqrt(hidden)`, `[batch, tokens, hidden]`.
    fn pooled(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, patches, hidden] = x.dims();
        let group = self.config.pool * self.config.pool;
        let tokens = patches / group;
        let x = x.reshape([batch * tokens, group, hidden]);
        // A sum over few patches by slices: devices differ in the reductions they can do.
        let patch = |i: usize| x.clone().slice([0..batch * tokens, i..i + 1, 0..hidden]);
        let sum = (1..group).fold(patch(0), |sum, i| sum + patch(i));
        sum.reshape([batch, tokens, hidden]) * ((hidden as f32).sqrt() / group as f32)
    }
}

/// Indices of a grid's patches in raster order, reordered so that those of a token follow each other.
fn by_token(rows: usize, columns: usize, pool: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(rows * columns);
    for top in (0..rows).step_by(pool) {
        for left in (0..columns).step_by(pool) {
            for row in top..top + pool {
                order.extend((left..left + pool).map(|column| row * columns + column));
            }
        }
    }
    order
}

impl VisionTower for Gemma4VTower {
    fn output_width(&self) -> usize {
        self.config.output
    }

    fn parameters(&self) -> usize {
        self.num_params()
    }

    fn encode(&self, image: &ProcessedImage) -> Result<Vec<Tensor<2>>, TowerError> {
        let values = image.pixel_values();
        let [_, rows, columns] = values.grid_thw;
        self.positions.check(rows, columns)?;
        let device = self.positions.weight.lazy_device();
        let order = by_token(rows, columns, self.config.pool);
        let positions: Vec<[u32; 2]> = order.iter().map(|&i| values.positions[i]).collect();
        let patches = planar_patches(&values, &order, |v| 2.0 * v - 1.0, &device);
        let tokens = self.forward(patches, &positions);
        let [_, count, width] = tokens.dims();
        Ok(vec![tokens.reshape([count, width])])
    }
}

#[cfg(test)]
mod tests {
    use super::by_token;

    #[test]
    fn the_patches_of_a_token_are_neighbours() {
        assert_eq!(by_token(2, 6, 2), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
    }
}
