//! Quantized files of every family: `Exact` on the blocks against `Exact` on the same values in 32 bits.

mod common;

use burn::tensor::{Device, FloatDType};
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::quantize::{QuantizeOptions, Recipe, quantize_file};
use burn_gguf::{Arithmetic, GgmlTensor, GgmlType};
use burn_gguf_models::vision::discover::VisionSource;
use burn_gguf_models::{AutoModel, LoadOptions, SessionOptions};
use common::{Npy, case, devices, nmse, say};

/// Rounding of f32 sums in another order is at 1e-12; a block read wrongly is at 1e-3 and more.
const NMSE: f64 = 1e-9;

const FAMILIES: &[&str] = &[
    "qwen2",
    "qwen3",
    "qwen3moe",
    "qwen3vl",
    "qwen3vlmoe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "gemma3",
    "gemma4",
    "gemma4-e",
    "gemma4uv",
    "minimax-m2",
    "minimax-m3",
    "muse-glimmer",
];

/// The file with every tensor as 32-bit floats.
fn dense(gguf: &Gguf) -> Gguf {
    let mut writer = GgufWriter::new();
    writer.copy_metadata(gguf.metadata());
    for tensor in gguf.tensors() {
        if tensor.ggml_type() == Some(GgmlType::F32) {
            writer.copy_tensor(tensor);
            continue;
        }
        let packed = GgmlTensor::from_gguf(tensor, &Device::flex()).unwrap();
        let values = packed.dequantize(FloatDType::F32).into_data();
        let bytes: Vec<u8> = values.iter::<f32>().flat_map(f32::to_le_bytes).collect();
        writer.tensor(tensor.name(), tensor.shape(), GgmlType::F32, bytes);
    }
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

fn logits(gguf: Gguf, device: &Device, tokens: &[u32]) -> Vec<f32> {
    let mut options = LoadOptions {
        arithmetic: Arithmetic::Exact,
        ..LoadOptions::default()
    };
    options.vision.source = VisionSource::Off;
    let model = AutoModel::load(gguf, device, options).unwrap();
    let mut session = model.session(&SessionOptions::default());
    session.feed_all(tokens).unwrap()
}

#[test]
fn blocks_are_read_as_the_values_they_stand_for() {
    let folder = tempfile::tempdir().unwrap();
    for name in FAMILIES {
        let model = ["bf16", "f32"]
            .iter()
            .map(|ty| format!("{name}/model-{ty}.gguf"))
            .find_map(|file| case(&file));
        let (Some(model), Some(dir)) = (model, case(&format!("{name}/text"))) else {
            continue;
        };
        let gguf = Gguf::open(model).unwrap();
        let tokens = Npy::read(&dir.join("tokens.npy")).ids();
        for recipe in ["Q4_K_M", "Q8_0"] {
            let path = folder.path().join(format!("{name}-{recipe}.gguf"));
            let options = QuantizeOptions::new(recipe.parse::<Recipe>().unwrap());
            quantize_file(&gguf, &path, &options, &mut |_| ()).unwrap();
            let quantized = Gguf::open(&path).unwrap();
            let blocks = quantized
                .tensors()
                .filter(|t| t.ggml_type().is_some_and(|ty| ty.block_len() > 1));
            assert!(
                blocks.count() > 4,
                "{name} in {recipe} has hardly any blocks"
            );
            let expected = logits(dense(&quantized), &Device::flex(), &tokens);
            for (device_name, device) in devices() {
                let found = logits(quantized.clone(), &device, &tokens);
                let e = nmse(&found, &expected);
                say(&format!(
                    "{name} in {recipe} on {device_name}: NMSE {e:.1e}"
                ));
                assert!(
                    e <= NMSE,
                    "{name} in {recipe} on {device_name}: NMSE {e:.1e}"
                );
            }
        }
    }
}
