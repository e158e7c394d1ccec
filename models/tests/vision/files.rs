//! Towers in files of every kind.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, FloatDType};
use burn_gguf::gguf::{Array, Gguf, GgufWriter, Value};
use burn_gguf::{GgmlTensor, GgmlType};
use burn_gguf_models::vision::discover::VisionSource;
use burn_gguf_models::vision::image::ImageInput;
use burn_gguf_models::vision::mmproj::Mmproj;
use burn_gguf_models::vision::{MmprojDtype, VideoInput, VisionError, VisionOptions};
use burn_gguf_models::{AutoModel, LoadOptions};

use super::common::{Npy, case, devices, nmse};
use super::{EMBEDDINGS, MODEL, floats, gradient, load, see};

#[test]
fn precisions_of_the_tower_agree() {
    let Some(path) = case(MODEL) else { return };
    let dir = case("qwen3vl/vl2").unwrap();
    let want = Npy::read(&dir.join("hf_image_embd.npy")).floats();
    let (_, device) = devices().remove(0);
    // BF16 values pass through F32 and Packed unchanged; F16 has more digits and less range.
    for (dtype, limit) in [
        (MmprojDtype::F32, EMBEDDINGS),
        (MmprojDtype::Packed, EMBEDDINGS),
        (MmprojDtype::F16, EMBEDDINGS),
    ] {
        let model = load(&path, &device, dtype);
        let e = nmse(&floats(&see(&model, &dir.join("image_pre.png"))), &want);
        assert!(e <= limit, "{dtype:?}: {e}");
    }
}

#[test]
fn without_a_tower_images_are_refused_with_the_reason() {
    let Some(path) = case("qwen3/model-f32.gguf") else {
        return;
    };
    let (_, device) = devices().remove(0);
    let model = AutoModel::open(&path, &device).unwrap();
    match model.vision() {
        Err(VisionError::NoVision { reason }) => assert!(!reason.is_empty()),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a text family has eyes"),
    }
}

#[test]
fn the_files_fit_each_other() {
    let Some(path) = case("qwen3vl/mmproj-bf16.gguf") else {
        return;
    };
    let mmproj = Mmproj::open(path).unwrap();
    assert_eq!(mmproj.output_width(), 384);
    assert_eq!(mmproj.projector(), "qwen3vl_merger");
}

/// Text and tower in one file, as Ollama wrote them: the checkpoint's names, split projections, both frames' patch weights
/// in one tensor.
fn ollama_file(folder: &Path) -> Option<PathBuf> {
    let text = Gguf::open(case(MODEL)?).unwrap();
    let tower = Gguf::open(case("qwen3vl/mmproj-bf16.gguf")?).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_from(&text);
    writer.remove_metadata("qwen3vl.n_deepstack_layers");
    for (key, value) in tower.metadata().iter() {
        let kept = match key.strip_prefix("clip.vision.") {
            Some(rest) if rest != "is_deepstack_layers" => format!("qwen3vl.vision.{rest}"),
            _ => continue,
        };
        writer.set_metadata(&kept, value.clone());
    }
    let layers = Value::Array(Array::I32(vec![0, 2]));
    writer.set_metadata("qwen3vl.vision.deepstack_visual_indexes", layers);
    let floats = |name: &str| -> Vec<f32> {
        let info = tower.tensor(name).unwrap();
        let mut out = vec![0f32; info.n_elements() as usize];
        let device = devices().remove(0).1;
        let tensor = GgmlTensor::from_gguf(info, &device).unwrap();
        let values = tensor.dequantize(FloatDType::F32).into_data();
        out.copy_from_slice(&values.try_into_vec::<f32>().unwrap());
        out
    };
    let bytes =
        |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    for info in tower.tensors() {
        let name = info.name();
        if name.starts_with("v.patch_embd.weight") {
            continue;
        }
        if let Some((block, part)) = name.split_once("attn_qkv.") {
            let values = floats(name);
            let rows = values.len() / 3;
            let mut shape = info.shape().to_vec();
            *shape.last_mut().unwrap() /= 3;
            for (i, letter) in ["q", "k", "v"].into_iter().enumerate() {
                let name = format!("{block}attn_{letter}.{part}");
                writer.tensor(
                    name,
                    &shape,
                    GgmlType::F32,
                    bytes(&values[i * rows..][..rows]),
                );
            }
            continue;
        }
        let mut name = name.to_string();
        for (ours, theirs) in [
            ("v.patch_embd.", "v.patch_embed."),
            ("v.position_embd.", "v.pos_embed."),
            ("v.post_ln.", "v.merger.norm."),
            ("mm.0.", "v.merger.linear_fc1."),
            ("mm.2.", "v.merger.linear_fc2."),
            ("v.deepstack.0.fc", "v.deepstack_merger.0.linear_fc"),
            ("v.deepstack.2.fc", "v.deepstack_merger.1.linear_fc"),
            ("v.deepstack.0.", "v.deepstack_merger.0."),
            ("v.deepstack.2.", "v.deepstack_merger.1."),
            (".ln1.", ".norm1."),
            (".ln2.", ".norm2."),
            (".ffn_up.", ".mlp.linear_fc1."),
            (".ffn_down.", ".mlp.linear_fc2."),
        ] {
            name = name.replace(ours, theirs);
        }
        writer.tensor(name, info.shape(), info.ggml_type().unwrap(), info.bytes());
    }
    let shape = tower
        .tensor("v.patch_embd.weight")
        .unwrap()
        .shape()
        .to_vec();
    let pixels = (shape[0] * shape[1]) as usize;
    let frames = [
        floats("v.patch_embd.weight"),
        floats("v.patch_embd.weight.1"),
    ];
    let mut joined = Vec::new();
    for row in 0..(shape[2] * shape[3]) as usize {
        for frame in &frames {
            joined.extend(&frame[row * pixels..][..pixels]);
        }
    }
    let joined_shape = [shape[0], shape[1], 2, shape[2] * shape[3]];
    writer.tensor(
        "v.patch_embed.weight",
        &joined_shape,
        GgmlType::F32,
        bytes(&joined),
    );
    let path = folder.join("ollama.gguf");
    writer.write_file(&path).unwrap();
    Some(path)
}

#[test]
fn a_tower_inside_the_text_file_sees_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = ollama_file(folder.path()) else {
        return;
    };
    let (_, device) = devices().remove(0);
    let model = load(&path, &device, MmprojDtype::F32);
    assert!(
        model.report().unused.is_empty(),
        "{:?}",
        model.report().unused
    );
    let log: Vec<_> = model
        .vision_log()
        .iter()
        .map(|line| line.text.as_str())
        .collect();
    assert!(
        log.iter()
            .any(|line| line.contains("inside the model file")),
        "{log:?}"
    );
    let dir = case("qwen3vl/vl").unwrap();
    let e = nmse(
        &floats(&see(&model, &dir.join("image_pre.png"))),
        &Npy::read(&dir.join("hf_image_embd.npy")).floats(),
    );
    assert!(e <= EMBEDDINGS, "{e}");
}

#[test]
fn summed_patch_weights_see_pictures_and_refuse_videos() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(text), Some(mmproj)) = (case(MODEL), case("qwen3vl/mmproj-bf16.gguf")) else {
        return;
    };
    std::fs::copy(text, folder.path().join("model.gguf")).unwrap();
    let tower = Gguf::open(mmproj).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_metadata(tower.metadata());
    for info in tower
        .tensors()
        .filter(|t| t.name() != "v.patch_embd.weight.1")
    {
        writer.copy_tensor(info);
    }
    writer
        .write_file(folder.path().join("mmproj.gguf"))
        .unwrap();
    let (_, device) = devices().remove(0);
    let model = load(
        &folder.path().join("model.gguf"),
        &device,
        MmprojDtype::Bf16,
    );
    let vision = model.vision().unwrap();
    let image = ImageInput::from(gradient(256, 256, 0));
    let image = image.decode(&vision.processor().decode_options()).unwrap();
    vision.encode(&image).unwrap();
    let video = VideoInput::Frames {
        frames: vec![gradient(256, 256, 0).into(), gradient(256, 256, 9).into()],
        fps: 2.0,
    };
    let error = vision.encode_video(&video).unwrap_err().to_string();
    assert!(error.contains("v.patch_embd.weight.1"), "{error}");
}

#[test]
fn a_tensor_without_a_home_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(text), Some(mmproj)) = (case(MODEL), case("qwen3vl/mmproj-bf16.gguf")) else {
        return;
    };
    std::fs::copy(text, folder.path().join("model.gguf")).unwrap();
    let tower = Gguf::open(mmproj).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_from(&tower);
    writer.tensor("v.blk.0.ls1.weight", &[64], GgmlType::F32, vec![0u8; 256]);
    writer
        .write_file(folder.path().join("mmproj.gguf"))
        .unwrap();
    let (_, device) = devices().remove(0);
    let gguf = Gguf::open(folder.path().join("model.gguf")).unwrap();
    let options = LoadOptions {
        vision: VisionOptions {
            source: VisionSource::File(folder.path().join("mmproj.gguf")),
            ..VisionOptions::default()
        },
        ..LoadOptions::default()
    };
    let error = match AutoModel::load(gguf, &device, options) {
        Ok(_) => panic!("it loaded"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("v.blk.0.ls1.weight"), "{error}");
}

#[test]
fn quantized_towers_see_almost_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(text), Some(mmproj)) = (case(MODEL), case("qwen3vl/mmproj-bf16.gguf")) else {
        return;
    };
    std::fs::copy(text, folder.path().join("model.gguf")).unwrap();
    let tower = Gguf::open(mmproj).unwrap();
    // Every matrix, the position table too.
    let mut writer = GgufWriter::new();
    writer.copy_metadata(tower.metadata());
    let device = Device::flex();
    for info in tower.tensors() {
        if info.shape().len() != 2 {
            writer.copy_tensor(info);
            continue;
        }
        let values = GgmlTensor::from_gguf(info, &device).unwrap();
        let values = values.dequantize(FloatDType::F32).into_data();
        let values = values.try_into_vec::<f32>().unwrap();
        let cols = info.shape()[0] as usize;
        let blocks = q8_0(&values, cols);
        writer.tensor(info.name(), info.shape(), GgmlType::Q8_0, blocks);
    }
    writer
        .write_file(folder.path().join("mmproj.gguf"))
        .unwrap();
    let dir = case("qwen3vl/vl2").unwrap();
    let want = Npy::read(&dir.join("hf_image_embd.npy")).floats();
    for (name, device) in devices() {
        for dtype in [MmprojDtype::Bf16, MmprojDtype::F32, MmprojDtype::Packed] {
            let model = load(&folder.path().join("model.gguf"), &device, dtype);
            let log = model.vision_log();
            assert!(
                log.iter()
                    .any(|line| line.text.contains("quantized (Q8_0)")),
                "{log:?}"
            );
            let e = nmse(&floats(&see(&model, &dir.join("image_pre.png"))), &want);
            // A weight's error is 1/254 of its block's largest, uniform: about 1e-5 a product.
            assert!(e > 1e-8 && e < 5e-4, "{dtype:?} on {name}: {e}");
        }
    }
}

/// Blocks of 32 codes and a 16-bit scale.
fn q8_0(values: &[f32], cols: usize) -> Vec<u8> {
    assert!(cols.is_multiple_of(32));
    let mut blocks = Vec::new();
    for block in values.chunks_exact(32) {
        let scale = block.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
        blocks.extend(half_bits(scale).to_le_bytes());
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        blocks.extend(block.iter().map(|v| (v * inverse).round() as i8 as u8));
    }
    blocks
}

/// A positive normal number as a 16-bit float, cut.
fn half_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent), "{value}");
    ((exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16
}
