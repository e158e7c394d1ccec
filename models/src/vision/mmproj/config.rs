//! What a tower's metadata say, checked against its tensors.

use super::super::processor::{ProcessorConfig, ProcessorKind, ProcessorStyle};
use super::embedded::INDEXES;
use super::keys::Keys;
use super::pixels::{normalization, pixels};
use super::{MmprojError, Tensors};

use ProcessorKind::{DeepSeek4V, Gemma4Uv, Gemma4V, Glm4V, Glm5V, MiniMaxM3, MuseGlimmer, Qwen3Vl};

/// The activation that a file gives for the blocks' feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `clip.use_gelu`: GELU by its tanh approximation.
    GeluTanh,
    /// Neither key: `x * sigmoid(1.702 x)`.
    GeluQuick,
    /// `clip.use_silu`.
    Silu,
}

/// Shape and options of a tower. All numbers are checked: widths fit the tensors of the file, so that a module may be
/// laid out by them.
#[derive(Debug, Clone, PartialEq)]
pub struct ClipConfig {
    /// Width of the tower.
    pub embedding_length: usize,
    /// Attention heads; 0 for a tower without blocks (`gemma4uv`).
    pub head_count: usize,
    /// Width of a head; 0 for a tower without blocks.
    pub head_dim: usize,
    /// Width of the blocks' feed-forward part; 0 for a tower without blocks.
    pub feed_forward_length: usize,
    /// Number of blocks.
    pub block_count: usize,
    /// Width of one part of the output: that of the text model.
    pub projection_dim: usize,
    /// Epsilon of the norms.
    pub layer_norm_epsilon: f32,
    /// Nominal side of an image in pixels.
    pub image_size: usize,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Mean of each channel in 0..=1.
    pub image_mean: [f32; 3],
    /// Deviation of each channel.
    pub image_std: [f32; 3],
    /// The activation, by the file's flags as llama.cpp reads them. `gemma4v` files have none and so say
    /// [`GeluQuick`](Activation::GeluQuick), where the original model has [`GeluTanh`](Activation::GeluTanh); in
    /// `minimax_m3` and `muse-glimmer` it is the exact GELU whatever the file says.
    pub activation: Activation,
    /// Patches per side of an output row (`spatial_merge_size`, `projector.scale_factor`).
    pub merge_size: usize,
    /// Fewest pixels of an image, where the file says.
    pub min_pixels: Option<u64>,
    /// Most pixels of an image, where the file says.
    pub max_pixels: Option<u64>,
    /// Limit of the feed-forward part's gate and values (`glm5v`).
    pub swiglu_clamp: Option<f32>,
    /// Layers after which DeepStack reads, ascending (`qwen3vl_merger`).
    pub deepstack_layers: Vec<usize>,
}

/// The tensor whose outputs are the tower's.
fn last_tensor(kind: ProcessorKind) -> &'static str {
    match kind {
        Qwen3Vl | DeepSeek4V | MuseGlimmer => "mm.2.weight",
        Gemma4V | Gemma4Uv => "mm.input_projection.weight",
        Glm4V | Glm5V => "mm.down.weight",
        MiniMaxM3 => "mm.merger.fc2.weight",
    }
}

const PATCH: &str = "v.patch_embd.weight";

/// Both frames of a patch in one tensor, `{p, p, 2, 3 * width}`, as Ollama writes it.
pub(super) fn is_fused_patch(shape: &[u64]) -> bool {
    matches!(shape, [_, _, 2, _])
}

impl ClipConfig {
    pub(super) fn read(
        keys: &Keys<'_>,
        tensors: &Tensors,
        kind: ProcessorKind,
    ) -> Result<Self, MmprojError> {
        let defaults = ProcessorConfig::new(kind, ProcessorStyle::Transformers);
        let shape = |name: &str| tensors.get(keys.gguf, name).map(|t| t.shape());
        let outputs = |name: &str| shape(name).and_then(|s| Some(*s.get(1)? as usize));
        let widest = tensors.iter(keys.gguf).map(|(_, t)| t.n_elements()).max();
        let widest = widest.unwrap_or(0);
        let too_wide = "no tensor of the tower is that large";

        let block_count: usize = keys.required("block_count", None)?;
        let blocks = kind != Gemma4Uv;
        if blocks == (block_count == 0) {
            let expected = if blocks { "blocks" } else { "no blocks" };
            let reason = format!("a {} tower has {expected}", kind.projector());
            return Err(keys.invalid("block_count", block_count, reason));
        }
        // Blocks are looked at one after the other: the first that is missing ends it, however large the number.
        let has_block = |n: usize| shape(&format!("v.blk.{n}.ln1.weight")).is_some();
        if let Some(missing) = (0..block_count).find(|&n| !has_block(n)) {
            let reason = format!("the file has no `v.blk.{missing}.ln1.weight`");
            return Err(keys.invalid("block_count", block_count, reason));
        }

        let embedding_length: usize = keys.required("embedding_length", None)?;
        keys.within("embedding_length", embedding_length, widest, too_wide)?;
        let (mut head_count, mut head_dim, mut feed_forward_length) = (0, 0, 0);
        if blocks {
            head_count = keys.required("attention.head_count", None)?;
            keys.within("attention.head_count", head_count, widest, too_wide)?;
            head_dim = match keys.get::<usize>("attention.head_dim")? {
                Some(dim) => dim,
                None if !embedding_length.is_multiple_of(head_count) => {
                    let reason = format!("it does not divide the width {embedding_length}");
                    return Err(keys.invalid("attention.head_count", head_count, reason));
                }
                None => embedding_length / head_count,
            };
            let limit = widest / head_count as u64;
            keys.within("attention.head_dim", head_dim, limit, too_wide)?;
            let derived = outputs("v.blk.0.ffn_up.weight");
            feed_forward_length = keys.required("feed_forward_length", derived)?;
            keys.within("feed_forward_length", feed_forward_length, widest, too_wide)?;
        }

        let patch = shape(PATCH).unwrap_or_default();
        let side = patch.first().filter(|_| patch.len() == 4);
        let patch_size = keys.required("patch_size", side.map(|&p| p as usize))?;
        keys.within(
            "patch_size",
            patch_size,
            1024,
            "no patch is larger than 1024",
        )?;
        let merge_size = merge_size(keys, kind, defaults.merge_size as usize)?;
        check_patch(keys, kind, patch, embedding_length, patch_size, merge_size)?;

        let derived = outputs(last_tensor(kind));
        let projection_dim = keys.required("projection_dim", derived)?;
        keys.within("projection_dim", projection_dim, widest, too_wide)?;
        let table = outputs("v.position_embd.weight").map(|n| n.isqrt().max(1));
        let derived = table.map_or(patch_size * merge_size, |side| {
            side.saturating_mul(patch_size)
        });
        let image_size = keys.required("image_size", Some(derived))?;
        keys.within(
            "image_size",
            image_size,
            1 << 16,
            "it must be 65536 at most",
        )?;

        let deepstack_layers = match kind {
            Qwen3Vl => deepstack_layers(keys, tensors, block_count)?,
            _ => Vec::new(),
        };
        let (image_mean, image_std) = normalization(keys, &defaults)?;
        let (min_pixels, max_pixels) = pixels(keys, kind)?;
        let config = Self {
            embedding_length,
            head_count,
            head_dim,
            feed_forward_length,
            block_count,
            projection_dim,
            layer_norm_epsilon: positive(keys, "attention.layer_norm_epsilon", Some(1e-6))?,
            image_size,
            patch_size,
            image_mean,
            image_std,
            activation: activation(keys, kind)?,
            merge_size,
            min_pixels,
            max_pixels,
            swiglu_clamp: match kind {
                Glm5V => Some(positive(keys, "swiglu_clamp", None)?),
                _ => None,
            },
            deepstack_layers,
        };
        config.check_deepstack(keys)?;
        config.check_outputs(keys, tensors, kind)?;
        Ok(config)
    }

    /// Flags and tensors of DeepStack agree.
    fn check_deepstack(&self, keys: &Keys<'_>) -> Result<(), MmprojError> {
        let key = "is_deepstack_layers";
        let mut wanted: Option<Vec<usize>> = None;
        if let Some(flags) = keys.get::<Vec<bool>>(key)? {
            if flags.len() != self.block_count {
                let reason = format!(
                    "it has {} entries for {} layers",
                    flags.len(),
                    self.block_count
                );
                return Err(keys.invalid(key, format!("{flags:?}"), reason));
            }
            wanted = Some((0..flags.len()).filter(|&l| flags[l]).collect());
        } else if let Some(mut layers) = keys.get::<Vec<usize>>(INDEXES)? {
            layers.sort_unstable();
            wanted = Some(layers);
        }
        let Some(wanted) = wanted else { return Ok(()) };
        let found = &self.deepstack_layers;
        let file = || keys.gguf.file().clone();
        if let Some(&layer) = wanted.iter().find(|l| !found.contains(l)) {
            let (file, flag) = (file(), true);
            return Err(MmprojError::DeepStack { file, layer, flag });
        }
        if let Some(&layer) = found.iter().find(|l| !wanted.contains(l)) {
            let (file, flag) = (file(), false);
            return Err(MmprojError::DeepStack { file, layer, flag });
        }
        Ok(())
    }

    /// Every tensor that makes a part of the output has the projection's width.
    fn check_outputs(
        &self,
        keys: &Keys<'_>,
        tensors: &Tensors,
        kind: ProcessorKind,
    ) -> Result<(), MmprojError> {
        let mergers = self.deepstack_layers.iter();
        let parts = mergers.map(|layer| format!("v.deepstack.{layer}.fc2.weight"));
        for name in std::iter::once(last_tensor(kind).to_owned()).chain(parts) {
            let Some(tensor) = tensors.get(keys.gguf, &name) else {
                return Err(keys.gguf.require(&name).map(|_| ()).unwrap_err().into());
            };
            let width = self.projection_dim as u64;
            if !matches!(tensor.shape(), [_, outputs] if *outputs == width) {
                return Err(MmprojError::Shape {
                    file: keys.gguf.file().clone(),
                    tensor: tensor.name().to_owned(),
                    shape: tensor.shape().to_vec(),
                    expected: format!("{width} outputs (`{}`)", keys.full("projection_dim")),
                });
            }
        }
        Ok(())
    }
}

/// The layers whose merger is there, ascending.
fn deepstack_layers(
    keys: &Keys<'_>,
    tensors: &Tensors,
    block_count: usize,
) -> Result<Vec<usize>, MmprojError> {
    let mut layers = Vec::new();
    for (name, _) in tensors.iter(keys.gguf) {
        let merger = name
            .strip_prefix("v.deepstack.")
            .and_then(|rest| rest.strip_suffix(".fc1.weight"));
        let Some(layer) = merger else { continue };
        match layer.parse() {
            Ok(layer) if layer < block_count => layers.push(layer),
            _ => {
                let reason = format!("tensor `{name}` belongs to none of these layers");
                return Err(keys.invalid("block_count", block_count, reason));
            }
        }
    }
    layers.sort_unstable();
    layers.dedup();
    Ok(layers)
}

fn check_patch(
    keys: &Keys<'_>,
    kind: ProcessorKind,
    shape: &[u64],
    width: usize,
    patch: usize,
    merge: usize,
) -> Result<(), MmprojError> {
    let (width, patch, merge) = (width as u64, patch as u64, merge as u64);
    let expected = match kind {
        Gemma4Uv => vec![3 * (patch * merge).pow(2), width],
        _ if keys.is_embedded() && is_fused_patch(shape) => {
            vec![patch, patch, 2, width.saturating_mul(3)]
        }
        _ => vec![patch, patch, 3, width],
    };
    if shape.is_empty() {
        keys.gguf.require(PATCH)?;
    }
    if shape != expected {
        return Err(MmprojError::Shape {
            file: keys.gguf.file().clone(),
            tensor: PATCH.to_owned(),
            shape: shape.to_vec(),
            expected: format!(
                "{expected:?} (`{}`, `{}`)",
                keys.full("patch_size"),
                keys.full("embedding_length")
            ),
        });
    }
    Ok(())
}

fn merge_size(keys: &Keys<'_>, kind: ProcessorKind, default: usize) -> Result<usize, MmprojError> {
    let key = match kind {
        Gemma4V | Gemma4Uv | DeepSeek4V => "projector.scale_factor",
        _ => "spatial_merge_size",
    };
    let size = keys.get(key)?.unwrap_or(default);
    keys.within(key, size, 64, "it must be 64 at most")?;
    Ok(size)
}

/// llama.cpp's rule; a text file says nothing, and has what its family has.
fn activation(keys: &Keys<'_>, kind: ProcessorKind) -> Result<Activation, MmprojError> {
    let (gelu, silu) = (keys.flag("use_gelu")?, keys.flag("use_silu")?);
    match (gelu.unwrap_or(false), silu.unwrap_or(false)) {
        (true, true) => Err(MmprojError::InvalidValue {
            file: keys.gguf.file().clone(),
            key: "clip.use_silu".to_owned(),
            value: "true".to_owned(),
            reason: "`clip.use_gelu` is true as well".to_owned(),
        }),
        (true, false) => Ok(Activation::GeluTanh),
        (false, true) => Ok(Activation::Silu),
        _ if !keys.is_embedded() => Ok(Activation::GeluQuick),
        _ => Ok(match kind {
            Glm4V | Glm5V | DeepSeek4V => Activation::Silu,
            Gemma4V | Gemma4Uv => Activation::GeluQuick,
            Qwen3Vl | MiniMaxM3 | MuseGlimmer => Activation::GeluTanh,
        }),
    }
}

fn positive(keys: &Keys<'_>, key: &str, derived: Option<f32>) -> Result<f32, MmprojError> {
    let value: f32 = keys.required(key, derived)?;
    match value.is_finite() && value >= f32::MIN_POSITIVE {
        true => Ok(value),
        false => Err(keys.invalid(key, value, "it must be a finite number above 0")),
    }
}
