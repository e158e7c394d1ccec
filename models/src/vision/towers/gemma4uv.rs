//! The tower of the unified Gemma 4 (`gemma4uv`): large patches, projected, and no transformer.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::nn::GgmlLinear;

use super::axis_tables::AxisTables;
use super::planar::planar_patches;
use super::{TowerError, VisionTower};
use crate::layers::{LayerNorm, weightless_rms_norm};
use crate::load::{LoadOptions, LoadReport};
use crate::vision::VisionError;
use crate::vision::load::load_tower;
use crate::vision::mmproj::Mmproj;
use crate::vision::processor::ProcessedImage;

/// GGUF tensor names and module paths.
const BINDINGS: &[(&str, &str)] = &[
    ("v.patch_norm.1.weight", "pixel_norm.weight"),
    ("v.patch_norm.1.bias", "pixel_norm.bias"),
    ("v.patch_embd.weight", "patch.weight"),
    ("v.patch_embd.bias", "patch.bias"),
    ("v.patch_norm.2.weight", "patch_norm.weight"),
    ("v.patch_norm.2.bias", "patch_norm.bias"),
    ("v.position_embd.weight", "positions.weight"),
    ("v.patch_norm.3.weight", "position_norm.weight"),
    ("v.patch_norm.3.bias", "position_norm.bias"),
    ("mm.input_projection.weight", "projection.weight"),
];

/// Epsilon of the layer norms, which the files do not say.
const NORM_EPS: f32 = 1e-5;

/// Shape of a [`Gemma4UvTower`].
#[derive(Clone, Debug, PartialEq)]
pub struct Gemma4UvTowerConfig {
    /// Width of the patches' embeddings.
    pub hidden: usize,
    /// Side of a patch, which is a token, in pixels.
    pub patch_size: usize,
    /// Entries of the position tables.
    pub table: usize,
    /// Width of the text model.
    pub output: usize,
    /// Epsilon of the norm before the projection.
    pub eps: f32,
    /// How products are computed.
    pub arithmetic: Arithmetic,
}

impl Gemma4UvTowerConfig {
    /// Reads the shape from an mmproj file.
    ///
    /// # Errors
    /// Position tables of another shape.
    pub fn from_mmproj(mmproj: &Mmproj, arithmetic: Arithmetic) -> Result<Self, VisionError> {
        let clip = mmproj.config();
        Ok(Self {
            hidden: clip.embedding_length,
            patch_size: clip.patch_size * clip.merge_size,
            table: AxisTables::entries_of(mmproj)?,
            output: clip.projection_dim,
            eps: clip.layer_norm_epsilon,
            arithmetic,
        })
    }
}

/// Normalized pixels of a patch through a linear layer, learned positions added, and a projection.
#[derive(Module, Debug)]
pub struct Gemma4UvTower {
    /// Norm over the values of a patch.
    pub pixel_norm: LayerNorm,
    /// `[3 * patch^2] -> [hidden]`, channels apart.
    pub patch: GgmlLinear,
    /// Norm of the embedded patches.
    pub patch_norm: LayerNorm,
    /// The learned positions.
    pub positions: AxisTables,
    /// Norm behind them.
    pub position_norm: LayerNorm,
    /// `[hidden] -> [output]`.
    pub projection: GgmlLinear,
    #[module(skip)]
    config: Gemma4UvTowerConfig,
}

impl Gemma4UvTower {
    /// A tower to be loaded from a file.
    pub fn uninitialized(config: &Gemma4UvTowerConfig, device: &Device) -> Self {
        let pixels = 3 * config.patch_size * config.patch_size;
        let norm = |width| LayerNorm::new(width, NORM_EPS, device);
        let linear = |input, output, bias| {
            GgmlLinear::uninitialized(input, output, bias, device)
                .with_arithmetic(config.arithmetic)
        };
        Self {
            pixel_norm: norm(pixels),
            patch: linear(pixels, config.hidden, true),
            patch_norm: norm(config.hidden),
            positions: AxisTables::new(config.table, config.hidden, device),
            position_norm: norm(config.hidden),
            projection: linear(config.hidden, config.output, false),
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
        let config = Gemma4UvTowerConfig::from_mmproj(mmproj, options.arithmetic)?;
        let tower = Self::uninitialized(&config, device);
        load_tower(mmproj, tower, &[BINDINGS], &[], options)
    }

    /// The configuration.
    pub fn tower_config(&self) -> &Gemma4UvTowerConfig {
        &self.config
    }

    /// Patches `[batch, patches, 3 * patch^2]` with values in 0..=1; `positions` are their rows and columns. Returns
    /// `[batch, patches, output]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or on CPU devices if a position is not in the tables.
    pub fn forward(&self, patches: Tensor<3>, positions: &[[u32; 2]]) -> Tensor<3> {
        let x = self.patch.forward(self.pixel_norm.forward(patches));
        let x = self.patch_norm.forward(x) + self.positions.forward(positions).unsqueeze();
        let x = self.position_norm.forward(x);
        self.projection
            .forward(weightless_rms_norm(x, self.config.eps))
    }
}

impl VisionTower for Gemma4UvTower {
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
        let order: Vec<usize> = (0..rows * columns).collect();
        let patches = planar_patches(&values, &order, |v| v, &device);
        let tokens = self.forward(patches, &values.positions);
        let [_, count, width] = tokens.dims();
        Ok(vec![tokens.reshape([count, width])])
    }
}
