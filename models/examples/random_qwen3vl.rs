//! Writes a Qwen3-VL with random weights whose vision tower has the size of Qwen3-VL-2B's, to time it; the text model has
//! its width and few layers.
//!
//! usage: `cargo run --release -p burn-gguf-models --example random_qwen3vl -- TEXT.gguf FOLDER`
//!
//! TEXT is any `qwen3vl` file; its vocabulary is taken over. Writes FOLDER/model.gguf and FOLDER/mmproj-model.gguf.

use std::io::{self, Write};
use std::path::Path;

use burn_gguf::GgmlType;
use burn_gguf::gguf::{Array, Gguf, GgufWriter, Value};

const HIDDEN: u64 = 1024;
const HEADS: u32 = 16;
const INTERMEDIATE: u64 = 4096;
const BLOCKS: u32 = 24;
const PATCH: u64 = 16;
const TABLE_SIDE: u64 = 48;
const DEEPSTACK: [u32; 3] = [5, 11, 17];

const TEXT_HIDDEN: u64 = 2048;
const TEXT_HEADS: u32 = 16;
const TEXT_KV_HEADS: u32 = 8;
const TEXT_HEAD_DIM: u64 = 128;
const TEXT_INTERMEDIATE: u64 = 1024;
const TEXT_LAYERS: u32 = 4;

/// Weights uniform in `-a..a`, `a` such that a product keeps the size of its input; of what llama.cpp wants in F32, F32.
fn weight(writer: &mut GgufWriter<'_>, name: String, shape: &[u64]) {
    let seed = name
        .bytes()
        .fold(1u64, |h, b| h.wrapping_mul(31) ^ u64::from(b));
    let inputs: u64 = match shape {
        [input, _] => *input,
        _ => shape[..shape.len() - 1].iter().product(),
    };
    let count: u64 = shape.iter().product();
    let scale = (3.0 / inputs as f32).sqrt();
    let wide = name.contains("patch_embd") || name.contains("position_embd");
    let ggml_type = if wide { GgmlType::F32 } else { GgmlType::BF16 };
    writer.tensor_with(name, shape, ggml_type, move |out| {
        let mut state = seed | 1;
        let mut next = || {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as f32 / (1 << 24) as f32
        };
        let mut chunk = Vec::with_capacity(1 << 16);
        for _ in 0..count {
            let value = (2.0 * next() - 1.0) * scale;
            match wide {
                true => chunk.extend(value.to_le_bytes()),
                false => chunk.extend(((value.to_bits() >> 16) as u16).to_le_bytes()),
            }
            if chunk.len() >= 1 << 16 {
                out.write_all(&chunk)?;
                chunk.clear();
            }
        }
        out.write_all(&chunk)
    });
}

fn constant(writer: &mut GgufWriter<'_>, name: String, len: u64, value: f32) {
    writer.tensor_with(
        name,
        &[len],
        GgmlType::F32,
        move |out: &mut dyn Write| -> io::Result<()> {
            (0..len).try_for_each(|_| out.write_all(&value.to_le_bytes()))
        },
    );
}

/// A linear layer with a bias.
fn linear(writer: &mut GgufWriter<'_>, name: &str, input: u64, output: u64) {
    weight(writer, format!("{name}.weight"), &[input, output]);
    constant(writer, format!("{name}.bias"), output, 0.01);
}

fn norm(writer: &mut GgufWriter<'_>, name: &str, width: u64) {
    constant(writer, format!("{name}.weight"), width, 1.0);
    constant(writer, format!("{name}.bias"), width, 0.0);
}

fn tower(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut file = GgufWriter::new();
    file.set_metadata("general.architecture", "clip")
        .set_metadata("general.type", "mmproj")
        .set_metadata("general.name", "random")
        .set_metadata("clip.has_vision_encoder", true)
        .set_metadata("clip.projector_type", "qwen3vl_merger")
        .set_metadata("clip.use_gelu", true)
        .set_metadata("clip.vision.projection_dim", TEXT_HIDDEN as u32)
        .set_metadata("clip.vision.image_size", (TABLE_SIDE * PATCH) as u32)
        .set_metadata("clip.vision.patch_size", PATCH as u32)
        .set_metadata("clip.vision.embedding_length", HIDDEN as u32)
        .set_metadata("clip.vision.feed_forward_length", INTERMEDIATE as u32)
        .set_metadata("clip.vision.block_count", BLOCKS)
        .set_metadata("clip.vision.attention.head_count", HEADS)
        .set_metadata("clip.vision.attention.layer_norm_epsilon", 1e-6f32)
        .set_metadata("clip.vision.spatial_merge_size", 2u32)
        .set_metadata(
            "clip.vision.image_mean",
            Value::Array(Array::F32(vec![0.5; 3])),
        )
        .set_metadata(
            "clip.vision.image_std",
            Value::Array(Array::F32(vec![0.5; 3])),
        )
        .set_metadata(
            "clip.vision.is_deepstack_layers",
            Value::Array(Array::Bool(
                (0..BLOCKS).map(|i| DEEPSTACK.contains(&i)).collect(),
            )),
        );
    for name in ["v.patch_embd.weight", "v.patch_embd.weight.1"] {
        weight(&mut file, name.into(), &[PATCH, PATCH, 3, HIDDEN]);
    }
    constant(&mut file, "v.patch_embd.bias".into(), HIDDEN, 0.0);
    weight(
        &mut file,
        "v.position_embd.weight".into(),
        &[HIDDEN, TABLE_SIDE * TABLE_SIDE],
    );
    for i in 0..BLOCKS {
        let name = |part: &str| format!("v.blk.{i}.{part}");
        norm(&mut file, &name("ln1"), HIDDEN);
        linear(&mut file, &name("attn_qkv"), HIDDEN, 3 * HIDDEN);
        linear(&mut file, &name("attn_out"), HIDDEN, HIDDEN);
        norm(&mut file, &name("ln2"), HIDDEN);
        linear(&mut file, &name("ffn_up"), HIDDEN, INTERMEDIATE);
        linear(&mut file, &name("ffn_down"), INTERMEDIATE, HIDDEN);
    }
    let merged = 4 * HIDDEN;
    for i in DEEPSTACK {
        norm(&mut file, &format!("v.deepstack.{i}.norm"), merged);
        linear(&mut file, &format!("v.deepstack.{i}.fc1"), merged, merged);
        linear(
            &mut file,
            &format!("v.deepstack.{i}.fc2"),
            merged,
            TEXT_HIDDEN,
        );
    }
    norm(&mut file, "v.post_ln", HIDDEN);
    linear(&mut file, "mm.0", merged, merged);
    linear(&mut file, "mm.2", merged, TEXT_HIDDEN);
    file.write_file(path)?;
    Ok(())
}

fn text(template: &Gguf, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let vocabulary = template.require("token_embd.weight")?.shape()[1];
    let mut file = GgufWriter::new();
    file.copy_metadata(template.metadata());
    let half = (TEXT_HEAD_DIM / 2) as i32;
    let (rows, columns) = (half / 3 - 1, half / 3 - 1);
    file.set_metadata("general.name", "random")
        .set_metadata("qwen3vl.block_count", TEXT_LAYERS)
        .set_metadata("qwen3vl.context_length", 32768u32)
        .set_metadata("qwen3vl.embedding_length", TEXT_HIDDEN as u32)
        .set_metadata("qwen3vl.feed_forward_length", TEXT_INTERMEDIATE as u32)
        .set_metadata("qwen3vl.attention.head_count", TEXT_HEADS)
        .set_metadata("qwen3vl.attention.head_count_kv", TEXT_KV_HEADS)
        .set_metadata("qwen3vl.attention.key_length", TEXT_HEAD_DIM as u32)
        .set_metadata("qwen3vl.attention.value_length", TEXT_HEAD_DIM as u32)
        .set_metadata("qwen3vl.n_deepstack_layers", DEEPSTACK.len() as u32)
        .set_metadata(
            "qwen3vl.rope.dimension_sections",
            Value::Array(Array::I32(vec![half - rows - columns, rows, columns, 0])),
        );
    weight(
        &mut file,
        "token_embd.weight".into(),
        &[TEXT_HIDDEN, vocabulary],
    );
    constant(&mut file, "output_norm.weight".into(), TEXT_HIDDEN, 1.0);
    for i in 0..TEXT_LAYERS {
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        let (q, kv) = (
            TEXT_HEAD_DIM * u64::from(TEXT_HEADS),
            TEXT_HEAD_DIM * u64::from(TEXT_KV_HEADS),
        );
        for (part, width) in [
            ("attn_norm", TEXT_HIDDEN),
            ("ffn_norm", TEXT_HIDDEN),
            ("attn_q_norm", TEXT_HEAD_DIM),
            ("attn_k_norm", TEXT_HEAD_DIM),
        ] {
            constant(&mut file, name(part), width, 1.0);
        }
        for (part, input, output) in [
            ("attn_q", TEXT_HIDDEN, q),
            ("attn_k", TEXT_HIDDEN, kv),
            ("attn_v", TEXT_HIDDEN, kv),
            ("attn_output", q, TEXT_HIDDEN),
            ("ffn_gate", TEXT_HIDDEN, TEXT_INTERMEDIATE),
            ("ffn_up", TEXT_HIDDEN, TEXT_INTERMEDIATE),
            ("ffn_down", TEXT_INTERMEDIATE, TEXT_HIDDEN),
        ] {
            weight(&mut file, name(part), &[input, output]);
        }
    }
    file.write_file(path)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(template), Some(folder)) = (args.next(), args.next()) else {
        return Err("usage: random_qwen3vl TEXT.gguf FOLDER".into());
    };
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    text(&Gguf::open(template)?, &folder.join("model.gguf"))?;
    tower(&folder.join("mmproj-model.gguf"))
}
