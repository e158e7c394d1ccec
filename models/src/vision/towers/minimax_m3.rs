//! The tower of MiniMax-M3 (`minimax_m3`).

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::Arithmetic;
use burn_gguf::nn::{GgmlLinear, functional};
use burn_gguf::ops::GeluKind;

use super::qwen3vl::Qwen3VlTower;
use super::vit::{PatchRope, VitBlock, VitConfig};
use super::{TowerError, VisionTower};
use crate::error::ModelError;
use crate::layers::LayerNorm;
use crate::load::{LoadOptions, LoadReport};
use crate::vision::VisionError;
use crate::vision::load::load_tower;
use crate::vision::mmproj::Mmproj;
use crate::vision::processor::ProcessedImage;

/// GGUF tensor names and module paths beside those of the blocks.
const BINDINGS: &[(&str, &str)] = &[
    ("v.patch_embd.weight", "patch.weight"),
    ("v.patch_embd.weight.1", "second_patch.weight"),
    ("v.pre_ln.weight", "pre_norm.weight"),
    ("v.pre_ln.bias", "pre_norm.bias"),
    ("v.post_ln.weight", "post_norm.weight"),
    ("v.post_ln.bias", "post_norm.bias"),
    ("mm.1.weight", "project.0.weight"),
    ("mm.1.bias", "project.0.bias"),
    ("mm.2.weight", "project.1.weight"),
    ("mm.2.bias", "project.1.bias"),
    ("mm.merger.fc1.weight", "merge.0.weight"),
    ("mm.merger.fc1.bias", "merge.0.bias"),
    ("mm.merger.fc2.weight", "merge.1.weight"),
    ("mm.merger.fc2.bias", "merge.1.bias"),
];

/// Base of the rotary frequencies.
const ROPE_BASE: f64 = 10_000.0;

/// Shape of a [`MiniMaxM3Tower`].
#[derive(Clone, Debug, PartialEq)]
pub struct MiniMaxM3TowerConfig {
    /// The blocks.
    pub vit: VitConfig,
    /// Their number.
    pub layers: usize,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Patches per side of a token.
    pub merge_size: usize,
    /// Whether the file has the weights of a temporal patch's two frames apart, or their sum.
    pub two_frames: bool,
    /// Whether there is a norm behind the blocks.
    pub post_norm: bool,
    /// Inner and outer width of the network that each patch goes through behind the blocks.
    pub project: [usize; 2],
    /// Inner and outer width of the network that makes a token of neighbouring patches; the outer is the text model's.
    pub merge: [usize; 2],
}

impl MiniMaxM3TowerConfig {
    /// Reads the shape from an mmproj file.
    ///
    /// # Errors
    /// Heads that do not fill the width, or a projector's tensor that is missing.
    pub fn from_mmproj(mmproj: &Mmproj, arithmetic: Arithmetic) -> Result<Self, VisionError> {
        let clip = mmproj.config();
        let fill = clip.head_dim.checked_mul(clip.head_count) == Some(clip.embedding_length);
        // Less, and a third of a head is no pair.
        if !fill || clip.head_dim < 6 {
            let error = ModelError::InvalidValue {
                key: "clip.vision.attention.head_count".to_owned(),
                value: format!("{} heads of {} values", clip.head_count, clip.head_dim),
                reason: format!(
                    "they must fill the width of {} and be at least 6 wide",
                    clip.embedding_length
                ),
            };
            return Err(VisionError::load(mmproj, error));
        }
        // A key for these widths does not exist.
        let rows = |name: &str| -> Result<usize, VisionError> {
            let shape = mmproj.tensor(name).map(|tensor| tensor.shape());
            match shape {
                Some([_, rows]) => Ok(*rows as usize),
                _ => {
                    let missing = mmproj.gguf().require(name).err().map(ModelError::Gguf);
                    let error = missing.unwrap_or_else(|| ModelError::InvalidValue {
                        key: name.to_owned(),
                        value: format!("a tensor of shape {shape:?}"),
                        reason: "it must be a matrix".to_owned(),
                    });
                    Err(VisionError::load(mmproj, error))
                }
            }
        };
        Ok(Self {
            vit: VitConfig {
                hidden: clip.embedding_length,
                heads: clip.head_count,
                intermediate: clip.feed_forward_length,
                // Whatever the file's flag says.
                activation: GeluKind::Erf,
                eps: clip.layer_norm_epsilon,
                fused_qkv: mmproj.tensor("v.blk.0.attn_q.weight").is_none(),
                arithmetic,
            },
            layers: clip.block_count,
            patch_size: clip.patch_size,
            merge_size: clip.merge_size,
            two_frames: mmproj.tensor("v.patch_embd.weight.1").is_some(),
            post_norm: mmproj.tensor("v.post_ln.weight").is_some(),
            project: [rows("mm.1.weight")?, rows("mm.2.weight")?],
            merge: [rows("mm.merger.fc1.weight")?, clip.projection_dim],
        })
    }
}

/// A vision transformer whose heads turn by row and column in two of their thirds, with a network over patches and one that
/// merges 2 x 2 of them into a token.
#[derive(Module, Debug)]
pub struct MiniMaxM3Tower {
    /// Patches of the first frame: `[3 * patch^2] -> [hidden]`.
    pub patch: GgmlLinear,
    /// Patches of the second frame; a still picture is its own second frame.
    pub second_patch: Option<GgmlLinear>,
    /// Norm before the blocks.
    pub pre_norm: LayerNorm,
    /// The blocks.
    pub blocks: Vec<VitBlock>,
    /// Norm behind the blocks.
    pub post_norm: Option<LayerNorm>,
    /// The network over patches, `[hidden] -> [inner]` and `[inner] -> [outer]`.
    pub project: Vec<GgmlLinear>,
    /// The network over groups of patches, `[group * outer] -> [inner]` and `[inner] -> [output]`.
    pub merge: Vec<GgmlLinear>,
    #[module(skip)]
    config: MiniMaxM3TowerConfig,
}

impl MiniMaxM3Tower {
    /// A tower to be loaded from a file.
    pub fn uninitialized(config: &MiniMaxM3TowerConfig, device: &Device) -> Self {
        let vit = &config.vit;
        let patch = || {
            let pixels = 3 * config.patch_size * config.patch_size;
            GgmlLinear::uninitialized(pixels, vit.hidden, false, device)
                .with_arithmetic(vit.arithmetic)
        };
        let norm = || LayerNorm::new(vit.hidden, vit.eps, device);
        let network = |input: usize, [inner, outer]: [usize; 2]| {
            vec![
                vit.linear(input, inner, device),
                vit.linear(inner, outer, device),
            ]
        };
        let group = config.merge_size * config.merge_size;
        Self {
            patch: patch(),
            second_patch: config.two_frames.then(patch),
            pre_norm: norm(),
            blocks: (0..config.layers)
                .map(|_| VitBlock::uninitialized(vit, device))
                .collect(),
            post_norm: config.post_norm.then(norm),
            project: network(vit.hidden, config.project),
            merge: network(group * config.project[1], config.merge),
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
        let config = MiniMaxM3TowerConfig::from_mmproj(mmproj, options.arithmetic)?;
        let tower = Self::uninitialized(&config, device);
        // The blocks are named as there.
        let blocks: Vec<_> = Qwen3VlTower::bindings()
            .iter()
            .copied()
            .filter(|(file, _)| file.starts_with("v.blk."))
            .collect();
        load_tower(mmproj, tower, &[BINDINGS, &blocks], &[], options)
    }

    /// Pictures of one size, `[batch, patches, 3 * patch^2]`, patch by patch in the order of merged tokens; `positions` are
    /// the patches' rows and columns. Returns `[batch, tokens, output]`.
    pub fn forward(&self, pixels: Tensor<3>, positions: &[[u32; 2]]) -> Tensor<3> {
        let device = pixels.device();
        let vit = &self.config.vit;
        let x = match &self.second_patch {
            Some(second) => {
                let [a, b] = GgmlLinear::forward_pair([&self.patch, second], pixels);
                a + b
            }
            None => self.patch.forward(pixels),
        };
        let mut x = self.pre_norm.forward(x);
        let rope = PatchRope::three_axes(positions, vit.hidden / vit.heads, ROPE_BASE, &device);
        for block in &self.blocks {
            x = block.forward(x, &rope);
        }
        if let Some(norm) = &self.post_norm {
            x = norm.forward(x);
        }
        let network = |layers: &[GgmlLinear], x: Tensor<3>| {
            layers[1].forward(functional::gelu(layers[0].forward(x), GeluKind::Erf))
        };
        let x = network(&self.project, x);
        let [batch, patches, width] = x.dims();
        let group = self.config.merge_size * self.config.merge_size;
        network(
            &self.merge,
            x.reshape([batch, patches / group, group * width]),
        )
    }
}

impl VisionTower for MiniMaxM3Tower {
    fn output_width(&self) -> usize {
        self.config.merge[1]
    }

    fn parameters(&self) -> usize {
        self.num_params()
    }

    fn encode(&self, image: &ProcessedImage) -> Result<Vec<Tensor<2>>, TowerError> {
        if image.frames().len() > 1 {
            return Err(TowerError::StillPicturesOnly {
                projector: "minimax_m3",
            });
        }
        let values = image.pixel_values();
        let device = self.pre_norm.weight.lazy_device();
        let patch = self.config.patch_size * self.config.patch_size;
        // A row holds channels, of each the frames, which are the same picture, of each the pixels.
        let per_frame = values.row_len / (3 * patch);
        let first = values.values.chunks_exact(per_frame * patch);
        let pixels: Vec<f32> = first
            .flat_map(|channel| &channel[..patch])
            .copied()
            .collect();
        let data = TensorData::new(pixels, [1, values.rows, 3 * patch]);
        let tokens = values.rows / (self.config.merge_size * self.config.merge_size);
        let rows = self.forward(Tensor::from_data(data, &device), &values.positions);
        Ok(vec![rows.reshape([tokens, self.output_width()])])
    }
}
