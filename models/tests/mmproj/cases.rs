//! The vision files of the shared cases.

use std::collections::BTreeSet;

use burn_gguf::gguf::Gguf;
use burn_gguf_models::tokenizer::Tokenizer;
use burn_gguf_models::vision::discover::{How, VisionSource, find};
use burn_gguf_models::vision::mmproj::{Activation, Mmproj, TextFacts, image_width};
use burn_gguf_models::vision::processor::{ImageProcessor, ProcessorKind, ProcessorStyle};

use super::common::case;

use ProcessorKind::{DeepSeek4V, Gemma4Uv, Gemma4V, Glm5V, MiniMaxM3, MuseGlimmer, Qwen3Vl};

/// Folder, projector, output width, heads' width, DeepStack layers.
const CASES: [(&str, ProcessorKind, usize, usize, &[usize]); 10] = [
    ("qwen3vl", Qwen3Vl, 384, 32, &[0, 2]),
    ("qwen3vlmoe", Qwen3Vl, 384, 32, &[0, 1]),
    ("qwen35", Qwen3Vl, 256, 32, &[]),
    ("qwen35moe", Qwen3Vl, 128, 32, &[]),
    ("gemma4", Gemma4V, 128, 32, &[]),
    ("gemma4uv", Gemma4Uv, 128, 0, &[]),
    ("glm5-next", Glm5V, 128, 32, &[]),
    ("deepseek4", DeepSeek4V, 128, 32, &[]),
    ("minimax-m3", MiniMaxM3, 128, 80, &[]),
    ("muse-glimmer", MuseGlimmer, 128, 32, &[]),
];

#[test]
fn the_files_of_every_family_are_read_and_fit_their_models() {
    for (name, kind, width, head_dim, deepstack) in CASES {
        let Some(file) = case(&format!("{name}/mmproj-bf16.gguf")) else {
            continue;
        };
        let mmproj = Mmproj::open(&file).unwrap();
        assert_eq!(mmproj.kind(), kind, "{name}");
        assert_eq!(mmproj.output_width(), width, "{name}");
        assert_eq!(mmproj.config().head_dim, head_dim, "{name}");
        assert_eq!(mmproj.config().deepstack_layers, deepstack, "{name}");
        assert_eq!(mmproj.file_type(), "BF16", "{name}");
        assert!(!mmproj.is_quantized(), "{name}");
        assert_eq!(mmproj.has_audio(), kind == Gemma4Uv, "{name}");
        let activation = match kind {
            Qwen3Vl | MiniMaxM3 => Activation::GeluTanh,
            Glm5V | DeepSeek4V => Activation::Silu,
            _ => Activation::GeluQuick,
        };
        assert_eq!(mmproj.config().activation, activation, "{name}");
        assert_eq!(
            mmproj.config().swiglu_clamp,
            (kind == Glm5V).then_some(10.0)
        );

        let text = Gguf::open(file.with_file_name("model-bf16.gguf")).unwrap();
        let tokenizer = Tokenizer::from_metadata(text.metadata());
        let has_token = |token: &str| {
            let tokenizer = tokenizer.as_ref();
            tokenizer.is_ok_and(|tokenizer| tokenizer.token_id(token).is_some())
        };
        let facts = TextFacts {
            architecture: text.metadata().architecture().unwrap(),
            image_width: image_width(&text).unwrap(),
            has_token: &has_token,
        };
        mmproj
            .fits(&facts)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let found = find(&text, &facts, &VisionSource::Auto).unwrap();
        assert!(matches!(found.how, How::Beside(_)), "{name}: {found:?}");
        assert!(Mmproj::embedded(&text).unwrap().is_none(), "{name}");
    }
}

#[test]
fn image_processors_have_what_the_files_say() {
    for (name, kind, ..) in CASES {
        let Some(file) = case(&format!("{name}/mmproj-bf16.gguf")) else {
            continue;
        };
        let mmproj = Mmproj::open(file).unwrap();
        for style in [ProcessorStyle::Transformers, ProcessorStyle::LlamaCpp] {
            let config = mmproj.processor_config(style).unwrap();
            ImageProcessor::new(config.clone()).unwrap();
            let token = config.token_pixels();
            let tokens = (config.min_pixels / token, config.max_pixels / token);
            let expected = match (kind, style) {
                (Qwen3Vl, ProcessorStyle::Transformers) => (64, 16384),
                (Qwen3Vl, ProcessorStyle::LlamaCpp) => (8, 4096),
                (Gemma4V | Gemma4Uv, ProcessorStyle::Transformers) => (1, 280),
                (Gemma4V | Gemma4Uv, ProcessorStyle::LlamaCpp) => (70, 1120),
                (Glm5V, _) => (16, 8000),
                (DeepSeek4V, _) => (16, 384),
                (MiniMaxM3, ProcessorStyle::Transformers) => (4, 576),
                (MiniMaxM3, ProcessorStyle::LlamaCpp) => (8, 576),
                _ => (1, 4096),
            };
            assert_eq!(tokens, expected, "{name}, {style}");
        }
    }
}

/// Every projector of the table is met, but for the one that no case has.
#[test]
fn the_cases_cover_the_projectors() {
    let covered: BTreeSet<_> = CASES.iter().map(|case| case.1.projector()).collect();
    let all = ProcessorKind::ALL.map(ProcessorKind::projector);
    let missing: Vec<_> = all
        .into_iter()
        .filter(|kind| !covered.contains(kind))
        .collect();
    assert_eq!(missing, ["glm4v"]);
}
