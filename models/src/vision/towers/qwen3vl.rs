//! The tower of Qwen3-VL and, without DeepStack, of Qwen3.5 (`qwen3vl_merger`).

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::nn::GgmlLinear;

use super::patch_merger::PatchMerger;
use super::position_table::PositionTable;
use super::vit::{PatchRope, VitBlock, VitConfig};
use super::{TowerError, VisionTower};
use crate::load::{LoadOptions, LoadReport};
use crate::vision::VisionError;
use crate::vision::load::load_tower;
use crate::vision::mmproj::Mmproj;
use crate::vision::processor::ProcessedImage;

/// GGUF tensor names and module paths; `{}` is the block. The DeepStack mergers' are made as they are found.
const BINDINGS: &[(&str, &str)] = &[
    ("v.patch_embd.weight", "patch.weight"),
    ("v.patch_embd.weight.1", "second_patch.weight"),
    ("v.patch_embd.bias", "patch_bias"),
    ("v.position_embd.weight", "positions.weight"),
    ("v.blk.{}.ln1.weight", "blocks.{}.attention_norm.weight"),
    ("v.blk.{}.ln1.bias", "blocks.{}.attention_norm.bias"),
    (
        "v.blk.{}.attn_qkv.weight",
        "blocks.{}.attention.qkv.0.weight",
    ),
    ("v.blk.{}.attn_qkv.bias", "blocks.{}.attention.qkv.0.bias"),
    ("v.blk.{}.attn_q.weight", "blocks.{}.attention.qkv.0.weight"),
    ("v.blk.{}.attn_q.bias", "blocks.{}.attention.qkv.0.bias"),
    ("v.blk.{}.attn_k.weight", "blocks.{}.attention.qkv.1.weight"),
    ("v.blk.{}.attn_k.bias", "blocks.{}.attention.qkv.1.bias"),
    ("v.blk.{}.attn_v.weight", "blocks.{}.attention.qkv.2.weight"),
    ("v.blk.{}.attn_v.bias", "blocks.{}.attention.qkv.2.bias"),
    (
        "v.blk.{}.attn_out.weight",
        "blocks.{}.attention.output.weight",
    ),
    ("v.blk.{}.attn_out.bias", "blocks.{}.attention.output.bias"),
    ("v.blk.{}.ln2.weight", "blocks.{}.mlp_norm.weight"),
    ("v.blk.{}.ln2.bias", "blocks.{}.mlp_norm.bias"),
    ("v.blk.{}.ffn_up.weight", "blocks.{}.up.weight"),
    ("v.blk.{}.ffn_up.bias", "blocks.{}.up.bias"),
    ("v.blk.{}.ffn_down.weight", "blocks.{}.down.weight"),
    ("v.blk.{}.ffn_down.bias", "blocks.{}.down.bias"),
    ("v.post_ln.weight", "merger.norm.weight"),
    ("v.post_ln.bias", "merger.norm.bias"),
    ("mm.0.weight", "merger.fc1.weight"),
    ("mm.0.bias", "merger.fc1.bias"),
    ("mm.2.weight", "merger.fc2.weight"),
    ("mm.2.bias", "merger.fc2.bias"),
];

/// The module path and tensor name of each part of a DeepStack merger.
const DEEPSTACK_PARTS: [&str; 6] = [
    "norm.weight",
    "norm.bias",
    "fc1.weight",
    "fc1.bias",
    "fc2.weight",
    "fc2.bias",
];

/// Shape of a [`Qwen3VlTower`].
#[derive(Clone, Debug, PartialEq)]
pub struct Qwen3VlTowerConfig {
    /// The blocks.
    pub vit: VitConfig,
    /// Their number.
    pub layers: usize,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Patches per side of a token.
    pub merge_size: usize,
    /// Side of the position table.
    pub table_side: usize,
    /// Width of the text model.
    pub output: usize,
    /// Blocks behind which DeepStack takes features, in order.
    pub deepstack: Vec<usize>,
    /// How the file has the weights of a temporal patch's two frames.
    pub patches: PatchWeights,
}

/// How a file has the weights of a temporal patch's two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchWeights {
    /// One tensor, their sum: still pictures only.
    Summed,
    /// A tensor each.
    Apart,
    /// One tensor of both frames with rows `[hidden, channel]`, as Ollama wrote it.
    Joined,
}

/// A vision transformer with two-axis rotary positions beside a learned table, merging 2 x 2 patches into a token.
#[derive(Module, Debug)]
pub struct Qwen3VlTower {
    /// Patches of the first frame: `[3 * patch^2] -> [hidden]`; of both, where the file has them joined:
    /// `[2 * patch^2] -> [hidden * 3]`.
    pub patch: GgmlLinear,
    /// Patches of the second frame; a still picture is its own second frame.
    pub second_patch: Option<GgmlLinear>,
    /// `[hidden]`.
    pub patch_bias: Param<Tensor<1>>,
    /// The learned positions.
    pub positions: PositionTable,
    /// The blocks.
    pub blocks: Vec<VitBlock>,
    /// The last features to tokens.
    pub merger: PatchMerger,
    /// Earlier features to what DeepStack adds in the text model's first layers.
    pub deepstack: Vec<PatchMerger>,
    #[module(skip)]
    config: Qwen3VlTowerConfig,
}

impl Qwen3VlTower {
    /// A tower to be loaded from a file.
    pub fn uninitialized(config: &Qwen3VlTowerConfig, device: &Device) -> Self {
        let vit = &config.vit;
        let group = config.merge_size * config.merge_size;
        let pixels = config.patch_size * config.patch_size;
        let patch = |input, output| {
            GgmlLinear::uninitialized(input, output, false, device).with_arithmetic(vit.arithmetic)
        };
        Self {
            patch: match config.patches {
                PatchWeights::Joined => patch(2 * pixels, 3 * vit.hidden),
                _ => patch(3 * pixels, vit.hidden),
            },
            second_patch: (config.patches == PatchWeights::Apart)
                .then(|| patch(3 * pixels, vit.hidden)),
            patch_bias: Param::from_tensor(Tensor::zeros([vit.hidden], device)),
            positions: PositionTable::new(config.table_side, vit.hidden, device),
            blocks: (0..config.layers)
                .map(|_| VitBlock::uninitialized(vit, device))
                .collect(),
            merger: PatchMerger::uninitialized(vit, group, false, config.output, device),
            deepstack: config
                .deepstack
                .iter()
                .map(|_| PatchMerger::uninitialized(vit, group, true, config.output, device))
                .collect(),
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
        let config = Qwen3VlTowerConfig::from_mmproj(mmproj, options.arithmetic)?;
        let deepstack = Self::deepstack_bindings(&config);
        let deepstack: Vec<(&str, &str)> = deepstack
            .iter()
            .map(|(file, module)| (file.as_str(), module.as_str()))
            .collect();
        let tower = Self::uninitialized(&config, device);
        load_tower(mmproj, tower, &[BINDINGS, &deepstack], &[], options)
    }

    /// GGUF tensor names and module paths of the DeepStack mergers: a file names them by their block.
    pub fn deepstack_bindings(config: &Qwen3VlTowerConfig) -> Vec<(String, String)> {
        let blocks = config.deepstack.iter().enumerate();
        blocks
            .flat_map(|(i, block)| {
                DEEPSTACK_PARTS.map(|part| {
                    (
                        format!("v.deepstack.{block}.{part}"),
                        format!("deepstack.{i}.{part}"),
                    )
                })
            })
            .collect()
    }

    /// GGUF tensor names and module paths of everything else; `{}` is the block.
    pub fn bindings() -> &'static [(&'static str, &'static str)] {
        BINDINGS
    }

    /// The configuration.
    pub fn tower_config(&self) -> &Qwen3VlTowerConfig {
        &self.config
    }

    /// Pictures of one size, patch by patch in the order of merged tokens. `frames` holds the two frames of a temporal
    /// patch, or one of a still picture, each `[batch, patches, 3 * patch^2]`; `positions` are the patches' rows and
    /// columns. Returns `[batch, tokens, output * (1 + deepstack)]`.
    ///
    /// # Panics
    /// If there are two frames and no weights for the second, or the shapes do not fit.
    pub fn forward(&self, frames: &[Tensor<3>], positions: &[[u32; 2]]) -> Tensor<3> {
        let device = frames[0].device();
        let x = self.embed_patches(frames);
        let extent = |axis: usize| positions.iter().map(|p| p[axis] as usize + 1).max();
        let (rows, columns) = (extent(0).unwrap_or(0), extent(1).unwrap_or(0));
        let table = self.positions.resample(rows, columns, positions);
        let mut x = x + self.patch_bias.val().unsqueeze() + table.unsqueeze();
        let vit = &self.config.vit;
        let rope = PatchRope::two_axes(positions, vit.hidden / vit.heads, 10_000.0, &device);
        let mut features = Vec::with_capacity(self.deepstack.len());
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, &rope);
            if let Some(slot) = self.config.deepstack.iter().position(|&b| b == i) {
                features.push(self.deepstack[slot].forward(x.clone()));
            }
        }
        let tokens = self.merger.forward(x);
        match features.is_empty() {
            true => tokens,
            false => {
                features.insert(0, tokens);
                Tensor::cat(features, 2)
            }
        }
    }
}

impl Qwen3VlTower {
    /// The convolution over patches, `[batch, patches, 3 * patch^2] -> [batch, patches, hidden]`.
    fn embed_patches(&self, frames: &[Tensor<3>]) -> Tensor<3> {
        let first = frames[0].clone();
        // A still picture is its own second frame.
        let second = frames.last().unwrap_or(&first).clone();
        match (self.config.patches, &self.second_patch) {
            (PatchWeights::Joined, _) => self.embed_joined(first, second),
            (_, Some(second_patch)) if frames.len() == 1 => {
                let [a, b] = GgmlLinear::forward_pair([&self.patch, second_patch], first);
                a + b
            }
            (_, Some(second_patch)) => self.patch.forward(first) + second_patch.forward(second),
            (_, None) => {
                assert!(
                    frames.len() == 1,
                    "the tower has no weights for a second frame"
                );
                self.patch.forward(first)
            }
        }
    }

    /// Each channel goes through the weights of all channels; its own are kept.
    fn embed_joined(&self, first: Tensor<3>, second: Tensor<3>) -> Tensor<3> {
        let [batch, patches, values] = first.dims();
        let (pixels, hidden) = (values / 3, self.config.vit.hidden);
        let channels = |frame: Tensor<3>| frame.reshape([batch, patches * 3, pixels]);
        let x = Tensor::cat(vec![channels(first), channels(second)], 2);
        let y = self
            .patch
            .forward(x)
            .reshape([batch * patches, 3, hidden, 3]);
        let own = |c: usize| {
            y.clone()
                .slice([0..batch * patches, c..c + 1, 0..hidden, c..c + 1])
                .reshape([batch, patches, hidden])
        };
        own(0) + own(1) + own(2)
    }
}

impl VisionTower for Qwen3VlTower {
    fn output_width(&self) -> usize {
        self.config.output * (1 + self.config.deepstack.len())
    }

    fn parameters(&self) -> usize {
        self.num_params()
    }

    fn encode(&self, image: &ProcessedImage) -> Result<Vec<Tensor<2>>, TowerError> {
        let values = image.pixel_values();
        let device = self.patch_bias.lazy_device();
        let patch = self.config.patch_size * self.config.patch_size;
        let [times, rows, columns] = values.grid_thw;
        let patches = rows * columns;
        let positions = &values.positions[..patches];
        let moving = image.frames().len() > 1;
        if moving && self.config.patches == PatchWeights::Summed {
            return Err(TowerError::NoTemporalWeights);
        }
        // A row holds channels, of each the frames, of each the pixels; here a frame is a tensor.
        let per_frame = values.row_len / (3 * patch);
        let frame = |time: usize, frame: usize| {
            let mut pixels: Vec<f32> = Vec::with_capacity(patches * 3 * patch);
            let rows = values.values.chunks_exact(values.row_len);
            for row in rows.skip(time * patches).take(patches) {
                for channel in 0..3 {
                    pixels.extend(&row[(channel * per_frame + frame) * patch..][..patch]);
                }
            }
            let data = TensorData::new(pixels, [1, patches, 3 * patch]);
            Tensor::<3>::from_data(data, &device)
        };
        let tokens = patches / (self.config.merge_size * self.config.merge_size);
        // Frames far apart do not see each other.
        let encoded = (0..times).map(|time| {
            let frames: Vec<_> = match moving {
                true => (0..per_frame).map(|i| frame(time, i)).collect(),
                false => vec![frame(time, 0)],
            };
            self.forward(&frames, positions)
                .reshape([tokens, self.output_width()])
        });
        Ok(encoded.collect())
    }
}
