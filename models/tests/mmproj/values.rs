//! Values that are refused.

use burn_gguf::gguf::Value;
use burn_gguf_models::vision::processor::{ProcessorKind, ProcessorStyle};

use super::config::says;
use super::files::Tower;

#[test]
fn values_that_make_no_sense_are_refused_by_name() {
    let huge = 1_u64 << 40;
    let cases: &[(&str, Value, &[&str])] = &[
        ("embedding_length", 0_u32.into(), &["is 0", "above 0"]),
        (
            "embedding_length",
            huge.into(),
            &["no tensor of the tower is that large"],
        ),
        (
            "embedding_length",
            32_u32.into(),
            &["`v.patch_embd.weight` has shape", "[16, 16, 3, 32]"],
        ),
        (
            "attention.head_count",
            3_u32.into(),
            &["does not divide the width 64"],
        ),
        ("attention.head_count", 0_u32.into(), &["above 0"]),
        ("attention.head_count", huge.into(), &["no tensor"]),
        ("attention.head_dim", huge.into(), &["no tensor"]),
        ("feed_forward_length", huge.into(), &["no tensor"]),
        (
            "block_count",
            0_u32.into(),
            &["a qwen3vl_merger tower has blocks"],
        ),
        (
            "block_count",
            huge.into(),
            &["the file has no `v.blk.1.ln1.weight`"],
        ),
        ("projection_dim", 0_u32.into(), &["above 0"]),
        (
            "projection_dim",
            48_u32.into(),
            &["`mm.2.weight` has shape [256, 32]", "48 outputs"],
        ),
        (
            "attention.layer_norm_epsilon",
            f32::NAN.into(),
            &["finite number above 0"],
        ),
        (
            "attention.layer_norm_epsilon",
            0_f32.into(),
            &["finite number above 0"],
        ),
        (
            "attention.layer_norm_epsilon",
            (-1_f32).into(),
            &["finite number above 0"],
        ),
        ("image_size", 0_u32.into(), &["above 0"]),
        ("image_size", huge.into(), &["65536 at most"]),
        ("patch_size", 0_u32.into(), &["above 0"]),
        ("patch_size", u32::MAX.into(), &["no patch is larger"]),
        (
            "patch_size",
            14_u32.into(),
            &["`v.patch_embd.weight` has shape", "[14, 14, 3, 64]"],
        ),
        ("spatial_merge_size", 0_u32.into(), &["above 0"]),
        ("spatial_merge_size", 65_u32.into(), &["64 at most"]),
        (
            "image_mean",
            vec![0.5_f32; 2].into(),
            &["three finite numbers"],
        ),
        (
            "image_mean",
            vec![0.5, f32::INFINITY, 0.5].into(),
            &["three finite numbers"],
        ),
        (
            "image_std",
            vec![0.5_f32, 0.0, 0.5].into(),
            &["three finite numbers above 0"],
        ),
        ("image_min_pixels", 0_u32.into(), &["1 to 2^30"]),
        ("image_max_pixels", huge.into(), &["1 to 2^30"]),
        ("embedding_length", "wide".into(), &["expected an integer"]),
    ];
    for (key, value, parts) in cases {
        let error = Tower::bf16()
            .key(&format!("clip.vision.{key}"), value.clone())
            .error();
        says(&error, parts);
        if !error.contains("tensor `") {
            says(&error, &[&format!("`clip.vision.{key}`")]);
        }
    }
    let crossed = Tower::bf16()
        .key("clip.vision.image_min_pixels", 4096_u32)
        .key("clip.vision.image_max_pixels", 1024_u32);
    says(
        &crossed.error(),
        &[
            "`clip.vision.image_min_pixels` is 4096",
            "it is above",
            "1024",
        ],
    );
    says(
        &Tower::bf16().key("clip.use_silu", true).error(),
        &["`clip.use_silu`", "`clip.use_gelu`"],
    );
}

#[test]
fn what_is_missing_is_named() {
    for key in [
        "embedding_length",
        "attention.head_count",
        "feed_forward_length",
        "block_count",
        "projection_dim",
        "attention.layer_norm_epsilon",
        "image_size",
        "patch_size",
        "image_mean",
        "image_std",
    ] {
        let key = format!("clip.vision.{key}");
        let error = Tower::bf16().without_key(&key).error();
        says(&error, &[&format!("`{key}` is missing")]);
    }
    for tensor in ["v.patch_embd.weight", "mm.2.weight"] {
        let error = Tower::bf16().without(tensor).error();
        says(&error, &[&format!("tensor `{tensor}` is missing")]);
    }
    let glm = Tower::bf16().key("clip.projector_type", "glm5v");
    says(&glm.error(), &["`clip.vision.image_min_pixels` is missing"]);
    let glm = glm
        .key("clip.vision.image_min_pixels", 12544_u32)
        .key("clip.vision.image_max_pixels", 6_272_000_u32);
    says(&glm.error(), &["`clip.vision.swiglu_clamp` is missing"]);
    let glm = glm.key("clip.vision.swiglu_clamp", 10_f32);
    says(&glm.error(), &["tensor `mm.down.weight` is missing"]);
}

/// Whatever a key holds, the file is read or refused; nothing is laid out by the number.
#[test]
fn no_value_of_a_key_is_a_panic() {
    let values: [Value; 14] = [
        0_u32.into(),
        1_u32.into(),
        3_u32.into(),
        64_u32.into(),
        u32::MAX.into(),
        u64::MAX.into(),
        i64::MIN.into(),
        f32::NAN.into(),
        f32::MAX.into(),
        true.into(),
        "".into(),
        vec![u64::MAX; 3].into(),
        vec![f32::MAX; 3].into(),
        Vec::<bool>::new().into(),
    ];
    let projectors = ProcessorKind::ALL.map(|kind| Value::from(kind.projector()));
    let keys: Vec<String> = Tower::bf16()
        .gguf()
        .metadata()
        .iter()
        .map(|(key, _)| key.to_owned())
        .chain([
            "clip.has_audio_encoder".to_owned(),
            "clip.use_silu".to_owned(),
            "clip.vision.attention.head_dim".to_owned(),
            "clip.vision.image_max_pixels".to_owned(),
            "clip.vision.image_min_pixels".to_owned(),
            "clip.vision.is_deepstack_layers".to_owned(),
            "clip.vision.projector.scale_factor".to_owned(),
            "clip.vision.projector_type".to_owned(),
            "clip.vision.swiglu_clamp".to_owned(),
        ])
        .collect();
    let (mut read, mut refused) = (0, 0);
    for projector in projectors {
        let tower = Tower::bf16()
            .key("clip.projector_type", projector)
            .key("clip.vision.swiglu_clamp", 1_f32)
            .key("clip.vision.image_min_pixels", 784_u32)
            .key("clip.vision.image_max_pixels", 1_u32 << 20)
            .tensor("mm.input_projection.weight", &[64, 32])
            .tensor("mm.down.weight", &[64, 32])
            .tensor("mm.merger.fc2.weight", &[64, 32]);
        for (key, value) in keys.iter().flat_map(|k| values.iter().map(move |v| (k, v))) {
            match tower.clone().key(key, value.clone()).read() {
                Ok(mmproj) => {
                    read += 1;
                    for style in [ProcessorStyle::Transformers, ProcessorStyle::LlamaCpp] {
                        // Refused or not, it returns.
                        let _ = mmproj.processor_config(style);
                    }
                    assert!(mmproj.output_width() <= 64, "{key} = {value:?}");
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(
        read > 100 && refused > 1000,
        "{read} read, {refused} refused"
    );
}
