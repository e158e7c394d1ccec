//! Towers inside text files (bug case 59).

use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf_models::vision::discover::{How, VisionSource};
use burn_gguf_models::vision::mmproj::{Activation, Mmproj, MmprojError, image_width};
use burn_gguf_models::vision::processor::{ProcessorKind, ProcessorStyle};

use super::files::{Folder, HIDDEN, Tower, WIDTH, find_in, qwen, text, zeros};

fn open(writer: &GgufWriter<'_>) -> Gguf {
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

/// A text file with the keys and tensors of an mmproj file.
fn merged() -> GgufWriter<'static> {
    let mut writer = qwen("");
    let tower = Tower::bf16().gguf();
    for (key, value) in tower
        .metadata()
        .iter()
        .filter(|(key, _)| key.starts_with("clip."))
    {
        writer.metadata(key, value.clone());
    }
    tower.tensors().for_each(|tensor| {
        writer.copy_tensor(tensor);
    });
    writer
}

/// Qwen's tower as Ollama's converter wrote it.
fn ollama_qwen(architecture: &str) -> GgufWriter<'static> {
    let vision = |key: &str| format!("{architecture}.vision.{key}");
    let mut writer = text(architecture, &[]);
    writer
        .metadata(vision("block_count"), 2_u32)
        .metadata(vision("embedding_length"), WIDTH as u32)
        .metadata(vision("attention.head_count"), 4_u32)
        .metadata(vision("num_channels"), 3_u32)
        .metadata(vision("patch_size"), 16_u32)
        .metadata(vision("spatial_merge_size"), 2_u32)
        .metadata(vision("attention.layer_norm_epsilon"), 1e-6_f32)
        .metadata(vision("shortest_edge"), 65536_u32)
        .metadata(vision("longest_edge"), 1 << 20)
        .metadata(vision("deepstack_visual_indexes"), vec![1_i32]);
    let (f16, merged) = (GgmlType::F16, 4 * WIDTH);
    let mut add = |name: &str, shape: &[u64], ty| zeros(&mut writer, name, shape, ty);
    add(
        "v.patch_embed.weight",
        &[16, 16, 2, 3 * WIDTH],
        GgmlType::F32,
    );
    add("v.pos_embed.weight", &[WIDTH, 2304], GgmlType::F32);
    for block in 0..2 {
        let name = |part: &str| format!("v.blk.{block}.{part}.weight");
        add(&name("norm1"), &[WIDTH], GgmlType::F32);
        add(&name("attn_q"), &[WIDTH, WIDTH], f16);
        add(&name("mlp.linear_fc1"), &[WIDTH, 3 * WIDTH], f16);
        add(&name("mlp.linear_fc2"), &[3 * WIDTH, WIDTH], f16);
    }
    add("v.merger.norm.weight", &[WIDTH], GgmlType::F32);
    add("v.merger.linear_fc1.weight", &[merged, merged], f16);
    add("v.merger.linear_fc2.weight", &[merged, HIDDEN], f16);
    add("v.deepstack_merger.0.norm.weight", &[merged], GgmlType::F32);
    add(
        "v.deepstack_merger.0.linear_fc1.weight",
        &[merged, merged],
        f16,
    );
    add(
        "v.deepstack_merger.0.linear_fc2.weight",
        &[merged, HIDDEN],
        f16,
    );
    writer
}

#[test]
fn keys_of_mmproj_files_in_a_text_file() {
    let mmproj = Mmproj::embedded(&open(&merged())).unwrap().unwrap();
    assert!(mmproj.is_embedded());
    assert_eq!(mmproj.output_width(), 32);
    assert_eq!(mmproj.file_type(), "BF16");
    assert_eq!(mmproj.byte_len(), Tower::bf16().read().unwrap().byte_len());
    assert!(mmproj.tensor("token_embd.weight").is_none());
}

#[test]
fn keys_and_names_as_ollama_writes_them() {
    let text = open(&ollama_qwen("qwen3vl"));
    let mmproj = Mmproj::embedded(&text).unwrap().unwrap();
    let config = mmproj.config();
    assert_eq!(mmproj.kind(), ProcessorKind::Qwen3Vl);
    assert_eq!(
        (config.block_count, config.feed_forward_length),
        (2, 3 * 64)
    );
    assert_eq!((config.head_count, config.head_dim), (4, 16));
    assert_eq!((config.projection_dim, config.image_size), (32, 48 * 16));
    assert_eq!((config.image_mean, config.image_std), ([0.5; 3], [0.5; 3]));
    assert_eq!(config.activation, Activation::GeluTanh);
    assert_eq!(config.deepstack_layers, [1]);
    assert_eq!(
        (mmproj.output_width(), image_width(&text).unwrap()),
        (64, 64)
    );
    assert!(mmproj.takes_videos().is_ok());
    let processor = mmproj
        .processor_config(ProcessorStyle::Transformers)
        .unwrap();
    assert_eq!(
        (processor.min_pixels, processor.max_pixels),
        (65536, 1 << 20)
    );
    for (name, file_name) in [
        ("v.patch_embd.weight", "v.patch_embed.weight"),
        ("v.position_embd.weight", "v.pos_embed.weight"),
        ("v.blk.1.ln1.weight", "v.blk.1.norm1.weight"),
        ("v.blk.0.ffn_up.weight", "v.blk.0.mlp.linear_fc1.weight"),
        ("v.blk.0.attn_q.weight", "v.blk.0.attn_q.weight"),
        ("v.post_ln.weight", "v.merger.norm.weight"),
        ("mm.2.weight", "v.merger.linear_fc2.weight"),
        (
            "v.deepstack.1.fc1.weight",
            "v.deepstack_merger.0.linear_fc1.weight",
        ),
        (
            "v.deepstack.1.norm.weight",
            "v.deepstack_merger.0.norm.weight",
        ),
    ] {
        assert_eq!(mmproj.tensor(name).unwrap().name(), file_name);
    }
    let found = find_in(&text, &VisionSource::Auto).unwrap();
    assert_eq!(found.how, How::Embedded);
}

/// Ollama writes what the checkpoint does not say as 0.
#[test]
fn bounds_of_zero_are_no_bounds() {
    let mut writer = ollama_qwen("qwen3vl");
    writer
        .set_metadata("qwen3vl.vision.shortest_edge", 0_u32)
        .set_metadata("qwen3vl.vision.longest_edge", 0_u32);
    let mmproj = Mmproj::embedded(&open(&writer)).unwrap().unwrap();
    let config = mmproj
        .processor_config(ProcessorStyle::Transformers)
        .unwrap();
    assert_eq!((config.min_pixels, config.max_pixels), (1 << 16, 1 << 24));
}

#[test]
fn mergers_without_their_layers_are_an_error() {
    let mut writer = ollama_qwen("qwen3vl");
    let key = "qwen3vl.vision.deepstack_visual_indexes";
    writer.set_metadata(key, Vec::<i32>::new());
    let error = Mmproj::embedded(&open(&writer)).unwrap_err().to_string();
    assert!(
        error.contains(&format!("`{key}` is []: it must list")),
        "{error}"
    );
    writer.set_metadata(key, vec![0_i32, 1]);
    let error = Mmproj::embedded(&open(&writer)).unwrap_err();
    assert!(
        matches!(
            error,
            MmprojError::DeepStack {
                layer: 1,
                flag: true,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn the_two_towers_of_gemma_are_told_apart() {
    let common = |writer: &mut GgufWriter<'_>, blocks: u32| {
        writer
            .metadata("gemma4.vision.block_count", blocks)
            .metadata("gemma4.vision.embedding_length", 64_u32)
            .metadata("gemma4.vision.attention.head_count", 4_u32)
            .metadata("gemma4.vision.feed_forward_length", 96_u32)
            .metadata("gemma4.vision.patch_size", 16_u32)
            .metadata("gemma4.vision.attention.layer_norm_epsilon", 1e-6_f32);
        zeros(
            writer,
            "mm.input_projection.weight",
            &[64, HIDDEN],
            GgmlType::F16,
        );
    };
    let mut blocks = text("gemma4", &[]);
    common(&mut blocks, 1);
    zeros(
        &mut blocks,
        "v.patch_embd.weight",
        &[16, 16, 3, 64],
        GgmlType::F16,
    );
    zeros(&mut blocks, "v.blk.0.ln1.weight", &[64], GgmlType::F32);
    zeros(
        &mut blocks,
        "v.blk.0.ffn_up.weight",
        &[64, 96],
        GgmlType::F16,
    );
    let mmproj = Mmproj::embedded(&open(&blocks)).unwrap().unwrap();
    assert_eq!(mmproj.kind(), ProcessorKind::Gemma4V);
    assert_eq!(
        (mmproj.config().merge_size, mmproj.config().head_dim),
        (3, 16)
    );

    let mut unified = text("gemma4", &[]);
    common(&mut unified, 0);
    zeros(
        &mut unified,
        "v.patch_embd.weight",
        &[6912, 64],
        GgmlType::F16,
    );
    zeros(
        &mut unified,
        "v.patch_norm.1.weight",
        &[6912],
        GgmlType::F32,
    );
    let mmproj = Mmproj::embedded(&open(&unified)).unwrap().unwrap();
    assert_eq!(mmproj.kind(), ProcessorKind::Gemma4Uv);
}

#[test]
fn text_files_without_a_tower_have_none() {
    assert!(Mmproj::embedded(&open(&qwen(""))).unwrap().is_none());
    // A projector without a tower is nothing.
    let mut writer = qwen("");
    zeros(&mut writer, "mm.0.weight", &[4, 4], GgmlType::F32);
    assert!(Mmproj::embedded(&open(&writer)).unwrap().is_none());
    // An mmproj file is no text file.
    assert!(Mmproj::embedded(&Tower::bf16().gguf()).unwrap().is_none());
    // Nor is there a tower for every architecture.
    let error = Mmproj::embedded(&open(&ollama_qwen("gemma3"))).unwrap_err();
    assert!(matches!(error, MmprojError::TextOnly { .. }), "{error}");
}

#[test]
fn a_tower_inside_needs_no_file_and_a_given_file_wins_over_it() {
    let folder = Folder::new()
        .text("m.gguf", &merged())
        .tower("mmproj-BF16.gguf", &Tower::bf16());
    let outcome = folder.find("m.gguf");
    outcome.is(Some("m.gguf"), &[], &[]);
    assert!(outcome.load_line.starts_with(
        "vision: m.gguf (inside the model file), projector qwen3vl_merger, BF16 -> F32, "
    ));

    let text = Gguf::open(folder.path("m.gguf")).unwrap();
    let given = VisionSource::File(folder.path("mmproj-BF16.gguf"));
    let found = find_in(&text, &given).unwrap();
    assert_eq!(found.how, How::Given);
    let line = "vision: not used: the tower inside the model file (another was given)";
    assert_eq!(found.log[0].text, line);
}

#[test]
fn a_broken_tower_inside_is_said_and_passed_over() {
    let mut writer = merged();
    writer.set_metadata("clip.vision.patch_size", 14_u32);
    let folder = Folder::new().text("m.gguf", &writer);
    let outcome = folder.find("m.gguf");
    let said = "vision: the tower inside the model file is not used: m.gguf: tensor `v.patch_embd.weight` has shape";
    assert!(outcome.warnings[0].starts_with(said), "{outcome:?}");
    assert!(outcome.file.is_none());
    let folder = folder.tower("mmproj.gguf", &Tower::bf16());
    assert_eq!(folder.find("m.gguf").file.as_deref(), Some("mmproj.gguf"));
}
