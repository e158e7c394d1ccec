//! The two files of a model that has learned nothing yet.

use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, GgufError, GgufWriter};
use burn_gguf_models::demo::SIDE;

use super::random::Normal;
use super::vocabulary::Vocabulary;

/// Sizes of the text model and of the vision tower. Every row length is a multiple of 32, so that all fits Q8_0.
pub struct Sizes {
    /// Width of the text model.
    pub hidden: u32,
    /// Its layers.
    pub layers: u32,
    /// Its query heads.
    pub heads: u32,
    /// Its key and value heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Width of its MLP.
    pub intermediate: u32,
    /// Width of the tower.
    pub tower: u32,
    /// Its blocks.
    pub blocks: u32,
    /// Its heads.
    pub tower_heads: u32,
    /// Width of its MLP.
    pub tower_intermediate: u32,
    /// Its blocks whose output goes to the text layers too.
    pub deepstack: &'static [u32],
}

/// 0.7 million parameters of text and 1.0 million of vision.
pub const SIZES: Sizes = Sizes {
    hidden: 128,
    layers: 4,
    heads: 4,
    kv_heads: 2,
    head_dim: 32,
    intermediate: 256,
    tower: 96,
    blocks: 3,
    tower_heads: 3,
    tower_intermediate: 256,
    deepstack: &[0, 1],
};

const PATCH: u32 = 16;
const MERGE: u32 = 2;
const EPS: f32 = 1e-6;
const CONTEXT: u32 = 512;

/// Pixels of a picture; the processor leaves pictures of this size alone and shrinks larger ones to it.
const PIXELS: u32 = (SIDE * SIDE) as u32;

/// Collects tensors in `f32`.
struct Tensors<'w, 'a> {
    file: &'w mut GgufWriter<'a>,
    random: Normal,
}

impl Tensors<'_, '_> {
    fn add(&mut self, name: &str, shape: &[u32], values: impl Iterator<Item = f32>) {
        let shape: Vec<u64> = shape.iter().map(|&n| n.into()).collect();
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        self.file.tensor(name, &shape, GgmlType::F32, bytes);
    }

    fn constant(&mut self, name: &str, len: u32, value: f32) {
        self.add(name, &[len], (0..len).map(|_| value));
    }

    /// Normal values of deviation `scale`.
    fn normal(&mut self, name: &str, shape: &[u32], scale: f32) {
        let len: u32 = shape.iter().product();
        let values: Vec<f32> = (0..len).map(|_| self.random.next() * scale).collect();
        self.add(name, shape, values.into_iter());
    }

    /// A product that keeps the size of its input, times `gain`.
    fn linear(&mut self, stem: &str, input: u32, output: u32, gain: f32) {
        let scale = gain / (input as f32).sqrt();
        self.normal(&format!("{stem}.weight"), &[input, output], scale);
    }

    fn biased(&mut self, stem: &str, input: u32, output: u32, gain: f32) {
        self.linear(stem, input, output, gain);
        self.constant(&format!("{stem}.bias"), output, 0.0);
    }

    fn layer_norm(&mut self, stem: &str, width: u32) {
        self.constant(&format!("{stem}.weight"), width, 1.0);
        self.constant(&format!("{stem}.bias"), width, 0.0);
    }

    /// Filters of 4 x 4 pixel blocks without a mean: an even grey gives nothing, and noise between pixels little, so
    /// that colours and edges are seen from the start.
    fn patches(&mut self, name: &str, width: u32, gain: f32) {
        const BLOCK: usize = 4;
        let side = PATCH as usize;
        let per_row = side / BLOCK;
        let mut values = Vec::new();
        for _ in 0..width {
            let mut blocks: Vec<f32> = (0..3 * per_row * per_row)
                .map(|_| self.random.next())
                .collect();
            let mean = blocks.iter().sum::<f32>() / blocks.len() as f32;
            blocks.iter_mut().for_each(|value| *value -= mean);
            let scale = gain / ((3 * side * side) as f32).sqrt();
            for channel in 0..3 {
                for y in 0..side {
                    let row = (channel * per_row + y / BLOCK) * per_row;
                    values.extend((0..side).map(|x| blocks[row + x / BLOCK] * scale));
                }
            }
        }
        self.add(name, &[PATCH, PATCH, 3, width], values.into_iter());
    }
}

/// The text model, with the vocabulary.
///
/// # Errors
/// If the file cannot be written.
pub fn text(sizes: &Sizes, vocabulary: &Vocabulary, seed: u64) -> Result<Gguf, GgufError> {
    let mut file = GgufWriter::new();
    file.metadata("general.architecture", "qwen3vl")
        .metadata("general.type", "model")
        .metadata("general.name", "Coloured shapes")
        .metadata("general.file_type", 0u32)
        .metadata("qwen3vl.block_count", sizes.layers)
        .metadata("qwen3vl.context_length", CONTEXT)
        .metadata("qwen3vl.embedding_length", sizes.hidden)
        .metadata("qwen3vl.feed_forward_length", sizes.intermediate)
        .metadata("qwen3vl.attention.head_count", sizes.heads)
        .metadata("qwen3vl.attention.head_count_kv", sizes.kv_heads)
        .metadata("qwen3vl.attention.key_length", sizes.head_dim)
        .metadata("qwen3vl.attention.value_length", sizes.head_dim)
        .metadata("qwen3vl.attention.layer_norm_rms_epsilon", EPS)
        .metadata("qwen3vl.rope.freq_base", 10_000f32)
        // Pairs of a head by the axis of their position: time, rows, columns.
        .metadata("qwen3vl.rope.dimension_sections", vec![6i32, 5, 5, 0])
        .metadata("qwen3vl.n_deepstack_layers", sizes.deepstack.len() as u32)
        .metadata("general.quantization_version", 2u32);
    vocabulary.write(&mut file);

    let mut tensors = Tensors {
        file: &mut file,
        random: Normal::new(seed),
    };
    let (hidden, vocab) = (sizes.hidden, vocabulary.len() as u32);
    // A sum of many layers is to stay as large as one.
    let residual = 1.0 / (2.0 * sizes.layers as f32).sqrt();
    tensors.normal("token_embd.weight", &[hidden, vocab], 0.5);
    tensors.linear("output", hidden, vocab, 0.5);
    tensors.constant("output_norm.weight", hidden, 1.0);
    for layer in 0..sizes.layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (queries, keys) = (
            sizes.heads * sizes.head_dim,
            sizes.kv_heads * sizes.head_dim,
        );
        tensors.constant(&name("attn_norm.weight"), hidden, 1.0);
        tensors.linear(&name("attn_q"), hidden, queries, 1.0);
        tensors.linear(&name("attn_k"), hidden, keys, 1.0);
        tensors.linear(&name("attn_v"), hidden, keys, 1.0);
        tensors.linear(&name("attn_output"), queries, hidden, residual);
        tensors.constant(&name("attn_q_norm.weight"), sizes.head_dim, 1.0);
        tensors.constant(&name("attn_k_norm.weight"), sizes.head_dim, 1.0);
        tensors.constant(&name("ffn_norm.weight"), hidden, 1.0);
        tensors.linear(&name("ffn_gate"), hidden, sizes.intermediate, 1.0);
        tensors.linear(&name("ffn_up"), hidden, sizes.intermediate, 1.0);
        tensors.linear(&name("ffn_down"), sizes.intermediate, hidden, residual);
    }
    Gguf::from_bytes(file.to_bytes()?)
}

/// The vision tower.
///
/// # Errors
/// If the file cannot be written.
pub fn mmproj(sizes: &Sizes, seed: u64) -> Result<Gguf, GgufError> {
    let mut file = GgufWriter::new();
    let deepstack: Vec<bool> = (0..sizes.blocks)
        .map(|block| sizes.deepstack.contains(&block))
        .collect();
    file.metadata("general.architecture", "clip")
        .metadata("general.type", "mmproj")
        .metadata("general.name", "Coloured shapes")
        .metadata("general.file_type", 0u32)
        .metadata("clip.has_vision_encoder", true)
        .metadata("clip.projector_type", "qwen3vl_merger")
        .metadata("clip.use_gelu", true)
        .metadata("clip.vision.image_size", SIDE as u32)
        .metadata("clip.vision.image_min_pixels", PIXELS)
        .metadata("clip.vision.image_max_pixels", PIXELS)
        .metadata("clip.vision.patch_size", PATCH)
        .metadata("clip.vision.spatial_merge_size", MERGE)
        .metadata("clip.vision.embedding_length", sizes.tower)
        .metadata("clip.vision.feed_forward_length", sizes.tower_intermediate)
        .metadata("clip.vision.block_count", sizes.blocks)
        .metadata("clip.vision.attention.head_count", sizes.tower_heads)
        .metadata("clip.vision.attention.layer_norm_epsilon", EPS)
        .metadata("clip.vision.projection_dim", sizes.hidden)
        .metadata("clip.vision.image_mean", vec![0.5f32; 3])
        .metadata("clip.vision.image_std", vec![0.5f32; 3])
        .metadata("clip.vision.is_deepstack_layers", deepstack)
        .metadata("general.quantization_version", 2u32);

    let mut tensors = Tensors {
        file: &mut file,
        random: Normal::new(seed ^ 0x5EED),
    };
    let (width, inner, hidden) = (sizes.tower, sizes.tower_intermediate, sizes.hidden);
    let side = SIDE as u32 / PATCH;
    let merged = width * MERGE * MERGE;
    let residual = 1.0 / (2.0 * sizes.blocks as f32).sqrt();
    // The two frames of a temporal patch; a still picture counts as both.
    tensors.patches("v.patch_embd.weight", width, 0.7);
    tensors.patches("v.patch_embd.weight.1", width, 0.7);
    tensors.constant("v.patch_embd.bias", width, 0.0);
    tensors.normal("v.position_embd.weight", &[width, side * side], 0.3);
    for block in 0..sizes.blocks {
        let name = |part: &str| format!("v.blk.{block}.{part}");
        tensors.layer_norm(&name("ln1"), width);
        tensors.biased(&name("attn_qkv"), width, 3 * width, 1.0);
        tensors.biased(&name("attn_out"), width, width, residual);
        tensors.layer_norm(&name("ln2"), width);
        tensors.biased(&name("ffn_up"), width, inner, 1.0);
        tensors.biased(&name("ffn_down"), inner, width, residual);
    }
    for block in sizes.deepstack {
        let name = |part: &str| format!("v.deepstack.{block}.{part}");
        tensors.layer_norm(&name("norm"), merged);
        tensors.biased(&name("fc1"), merged, merged, 1.0);
        tensors.biased(&name("fc2"), merged, hidden, 0.3);
    }
    tensors.layer_norm("v.post_ln", width);
    tensors.biased("mm.0", merged, merged, 1.0);
    tensors.biased("mm.2", merged, hidden, 0.5);
    Gguf::from_bytes(file.to_bytes()?)
}
