//! What a file says about its tower.

use burn_gguf::GgmlType;
use burn_gguf_models::vision::mmproj::{Activation, MmprojError};
use burn_gguf_models::vision::processor::{ProcessorKind, ProcessorStyle};

use super::files::{Tower, WIDTH};

pub fn says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "`{error}` lacks `{part}`");
    }
}

#[test]
fn the_keys_become_a_configuration() {
    let mmproj = Tower::bf16().read().unwrap();
    let config = mmproj.config();
    assert_eq!(mmproj.kind(), ProcessorKind::Qwen3Vl);
    assert_eq!(mmproj.projector(), "qwen3vl_merger");
    assert_eq!(config.embedding_length, WIDTH as usize);
    assert_eq!((config.head_count, config.head_dim), (2, 32));
    assert_eq!((config.feed_forward_length, config.block_count), (128, 1));
    assert_eq!(
        (config.patch_size, config.merge_size, config.image_size),
        (16, 2, 64)
    );
    assert_eq!(config.activation, Activation::GeluTanh);
    assert_eq!((config.image_mean, config.image_std), ([0.5; 3], [0.5; 3]));
    assert_eq!(
        (config.min_pixels, config.max_pixels, config.swiglu_clamp),
        (None, None, None)
    );
    assert_eq!((config.projection_dim, mmproj.output_width()), (32, 32));
    assert!(config.deepstack_layers.is_empty() && !mmproj.has_audio() && !mmproj.is_embedded());
    let bytes: usize = mmproj.tensors().map(|(_, t)| t.byte_len()).sum();
    assert_eq!(mmproj.byte_len(), bytes as u64);
    assert_eq!(mmproj.tensor("mm.2.weight").unwrap().shape(), [256, 32]);
}

/// Bug case 54.
#[test]
fn the_projector_is_read_from_both_places() {
    let (general, vision) = ("clip.projector_type", "clip.vision.projector_type");
    let tower = Tower::bf16()
        .without_key(general)
        .key(vision, "qwen3vl_merger");
    assert_eq!(tower.read().unwrap().projector(), "qwen3vl_merger");
    let both = Tower::bf16().key(vision, "qwen3vl_merger");
    assert_eq!(both.read().unwrap().projector(), "qwen3vl_merger");

    let two = Tower::bf16().key(vision, "gemma4v").error();
    says(
        &two,
        &[
            "`clip.projector_type` is \"qwen3vl_merger\"",
            "\"gemma4v\"",
            "must agree",
        ],
    );
    let none = Tower::bf16().without_key(general).error();
    let supported = "supported are qwen3vl_merger, gemma4v, gemma4uv, glm4v, glm5v, deepseek4v, minimax_m3, muse-glimmer";
    says(
        &none,
        &[
            "neither `clip.projector_type` nor `clip.vision.projector_type`",
            supported,
        ],
    );
    for key in [general, vision] {
        let tower = Tower::bf16().without_key(general).key(key, "ldpv2");
        says(
            &tower.error(),
            &[
                &format!("`{key}` is \"ldpv2\", which is not supported"),
                supported,
            ],
        );
    }
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let text = Tower::bf16().key("general.architecture", "qwen3vl").error();
    says(&text, &["a text model, not an mmproj file", "\"qwen3vl\""]);
    let adapter = Tower::bf16().key("general.type", "adapter").error();
    says(&adapter, &["`general.type` is \"adapter\", not \"mmproj\""]);
    assert!(Tower::bf16().without_key("general.type").read().is_ok());
    let old = Tower::bf16().key("general.type", "clip-vision");
    assert!(old.read().is_ok());
    let missing = Tower::bf16().without_key("general.architecture").error();
    says(&missing, &["`general.architecture` is missing"]);
}

#[test]
fn audio_alone_is_refused_and_beside_vision_it_is_listed() {
    let audio = |tower: Tower| {
        tower
            .key("clip.has_audio_encoder", true)
            .tensor("a.blk.0.ln1.weight", &[4])
            .tensor("mm.a.mlp.1.weight", &[4, 4])
    };
    let off = audio(Tower::bf16().key("clip.has_vision_encoder", false));
    says(&off.error(), &["audio only"]);
    let off = Tower::bf16().key("clip.has_vision_encoder", false).error();
    says(
        &off,
        &["no vision encoder: `clip.has_vision_encoder` is false"],
    );

    let both = audio(Tower::bf16()).read().unwrap();
    assert!(both.has_audio());
    assert_eq!(
        both.audio_tensors(),
        ["a.blk.0.ln1.weight", "mm.a.mlp.1.weight"]
    );
    assert!(
        both.tensors()
            .all(|(name, _)| !both.audio_tensors().contains(&name.to_owned()))
    );
    // The flag alone may be missing.
    let unsaid = Tower::bf16()
        .without_key("clip.has_vision_encoder")
        .tensor("a.x", &[1]);
    assert!(unsaid.read().unwrap().has_audio());

    let mut nothing = audio(Tower::bf16());
    nothing.without = vec![
        "v.patch_embd.weight",
        "v.patch_embd.weight.1",
        "v.position_embd.weight",
        "v.blk.0.ln1.weight",
        "v.blk.0.attn_qkv.weight",
        "v.blk.0.ffn_up.weight",
        "v.blk.0.ffn_down.weight",
    ];
    says(&nothing.error(), &["audio only"]);
    nothing
        .keys
        .push(("clip.has_audio_encoder".to_owned(), None));
    nothing.tensors.clear();
    says(
        &nothing.error(),
        &["no vision encoder: it has no `v.*` tensors"],
    );
}

#[test]
fn activations_are_read_as_llama_cpp_reads_them() {
    let without = Tower::bf16().without_key("clip.use_gelu");
    assert_eq!(
        without.read().unwrap().config().activation,
        Activation::GeluQuick
    );
    let silu = without.clone().key("clip.use_silu", true);
    assert_eq!(silu.read().unwrap().config().activation, Activation::Silu);
}

#[test]
fn deepstack_is_where_its_tensors_are() {
    let key = "clip.vision.is_deepstack_layers";
    let with = Tower::bf16().deepstack(0);
    let mmproj = with.read().unwrap();
    assert_eq!(
        (mmproj.output_width(), &mmproj.config().deepstack_layers[..]),
        (64, &[0][..])
    );
    assert!(with.clone().key(key, vec![true]).read().is_ok());

    let error = with.clone().key(key, vec![false]).read().unwrap_err();
    assert!(
        matches!(
            error,
            MmprojError::DeepStack {
                layer: 0,
                flag: false,
                ..
            }
        ),
        "{error}"
    );
    says(
        &error.to_string(),
        &[
            "is false for layer 0",
            "`v.deepstack.0.fc1.weight` is there",
        ],
    );
    let error = Tower::bf16().key(key, vec![true]).error();
    says(
        &error,
        &[
            "is true for layer 0",
            "`v.deepstack.0.fc1.weight` is missing",
        ],
    );
    let error = with.key(key, vec![true, false]).error();
    says(&error, &[key, "2 entries for 1 layers"]);
    let beyond = Tower::bf16().deepstack(3).error();
    says(
        &beyond,
        &[
            "`clip.vision.block_count` is 1",
            "`v.deepstack.3.fc1.weight` belongs to none",
        ],
    );

    let narrow = Tower::bf16()
        .tensor("v.deepstack.0.fc1.weight", &[256, 256])
        .tensor("v.deepstack.0.fc2.weight", &[256, 16]);
    says(
        &narrow.error(),
        &[
            "`v.deepstack.0.fc2.weight` has shape [256, 16]",
            "32 outputs",
        ],
    );
}

/// Bug case 60: what the file is called after, and whether it is quantized.
#[test]
fn files_of_every_type_are_read() {
    for (ty, name, quantized) in [
        (GgmlType::F32, "F32", false),
        (GgmlType::F16, "F16", false),
        (GgmlType::BF16, "BF16", false),
        (GgmlType::Q8_0, "Q8_0", true),
        (GgmlType::Q4K, "Q4_K", true),
    ] {
        let mmproj = Tower::new(ty).read().unwrap();
        assert_eq!(
            (mmproj.file_type().as_str(), mmproj.is_quantized()),
            (name, quantized)
        );
    }
    let mut table = Tower::bf16();
    table.table = GgmlType::Q8_0;
    let mmproj = table.read().unwrap();
    assert_eq!(
        (mmproj.file_type().as_str(), mmproj.is_quantized()),
        ("BF16", true)
    );
    let removed = Tower::new(GgmlType::Q4_2).error();
    says(
        &removed,
        &["`v.blk.0.attn_qkv.weight`", "Q4_2", "ggml removed"],
    );
}

#[test]
fn the_image_processor_takes_what_the_file_says() {
    let tower = Tower::bf16()
        .key("clip.vision.image_mean", vec![0.1_f32, 0.2, 0.3])
        .key("clip.vision.image_max_pixels", 1_000_000_u32);
    for style in [ProcessorStyle::Transformers, ProcessorStyle::LlamaCpp] {
        let config = tower.read().unwrap().processor_config(style).unwrap();
        assert_eq!(config.kind, ProcessorKind::Qwen3Vl);
        assert_eq!(
            (config.patch_size, config.merge_size, config.max_pixels),
            (16, 2, 1_000_000)
        );
        assert_eq!(config.image_mean, [0.1, 0.2, 0.3]);
        let min = if style == ProcessorStyle::LlamaCpp {
            8 * 1024
        } else {
            1 << 16
        };
        assert_eq!(config.min_pixels, min);
    }
    // A budget of tokens is one of other pixels where a token has another size.
    let gemma = Tower::bf16()
        .key("clip.projector_type", "gemma4v")
        .key("clip.vision.projector.scale_factor", 2_u32)
        .tensor("mm.input_projection.weight", &[64, 32]);
    let config = gemma.read().unwrap();
    let config = config
        .processor_config(ProcessorStyle::Transformers)
        .unwrap();
    assert_eq!(
        (
            config.token_size(),
            config.min_tokens(),
            config.max_tokens()
        ),
        (32, 1, 280)
    );

    let crossed = Tower::bf16().key("clip.vision.image_max_pixels", 1024_u32);
    let error = crossed
        .read()
        .unwrap()
        .processor_config(ProcessorStyle::Transformers);
    says(
        &error.unwrap_err().to_string(),
        &["the image minimum", "1024"],
    );
}

/// Bug case 70.
#[test]
fn videos_need_the_weights_of_both_frames() {
    assert!(Tower::bf16().read().unwrap().takes_videos().is_ok());
    let still = Tower::bf16()
        .without("v.patch_embd.weight.1")
        .read()
        .unwrap();
    let error = still.takes_videos().unwrap_err().to_string();
    says(
        &error,
        &["no videos: the patch weights of its frames were summed"],
    );
}
