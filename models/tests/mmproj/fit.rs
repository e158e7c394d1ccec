//! Which tower goes with which model (bug case 55).

use burn_gguf::GgmlType;
use burn_gguf_models::vision::mmproj::{MediaTokens, MmprojError, TextFacts, towers};
use burn_gguf_models::vision::processor::ProcessorKind;

use super::files::Tower;

fn facts<'a>(
    architecture: &'a str,
    image_width: usize,
    has_token: &'a dyn Fn(&str) -> bool,
) -> TextFacts<'a> {
    TextFacts {
        architecture,
        image_width,
        has_token,
    }
}

const ALL: &dyn Fn(&str) -> bool = &|_| true;

#[test]
fn every_family_takes_its_own_tower() {
    use ProcessorKind::*;
    for (architecture, kinds) in [
        ("qwen3vl", &[Qwen3Vl][..]),
        ("qwen3vlmoe", &[Qwen3Vl]),
        ("qwen35", &[Qwen3Vl]),
        ("qwen35moe", &[Qwen3Vl]),
        ("gemma4", &[Gemma4V, Gemma4Uv]),
        ("glm4", &[Glm4V]),
        ("glm4moe", &[Glm4V]),
        ("glm5-next", &[Glm5V]),
        ("deepseek4", &[DeepSeek4V]),
        ("minimax-m3", &[MiniMaxM3]),
        ("muse-glimmer", &[MuseGlimmer]),
        ("qwen3", &[]),
        ("gemma3", &[]),
        ("minimax-m2", &[]),
    ] {
        assert_eq!(towers(architecture), kinds, "{architecture}");
    }
}

#[test]
fn every_tower_has_its_tokens() {
    for (kind, begin, end) in [
        (ProcessorKind::Qwen3Vl, "<|vision_start|>", "<|vision_end|>"),
        (ProcessorKind::Gemma4V, "<|image>", "<image|>"),
        (ProcessorKind::Gemma4Uv, "<|image>", "<image|>"),
        (
            ProcessorKind::Glm4V,
            "<|begin_of_image|>",
            "<|end_of_image|>",
        ),
        (
            ProcessorKind::Glm5V,
            "<|begin_of_image|>",
            "<|end_of_image|>",
        ),
        (
            ProcessorKind::MiniMaxM3,
            "]<]start of image[>[",
            "]<]end of image[>[",
        ),
        (
            ProcessorKind::MuseGlimmer,
            "<|image_start|>",
            "<|image_end|>",
        ),
    ] {
        let tokens = MediaTokens {
            begin: Some(begin),
            end: Some(end),
        };
        assert_eq!(MediaTokens::of(kind), tokens);
    }
    let none = MediaTokens::of(ProcessorKind::DeepSeek4V);
    assert_eq!((none.begin, none.end), (None, None));
}

#[test]
fn what_does_not_fit_is_said() {
    let mmproj = Tower::new(GgmlType::BF16).read().unwrap();
    mmproj.fits(&facts("qwen35", 32, ALL)).unwrap();
    let error = |facts: &TextFacts<'_>| mmproj.fits(facts).unwrap_err().to_string();

    let family = error(&facts("gemma4", 32, ALL));
    let says = "projector \"qwen3vl_merger\" belongs to another family: architecture \"gemma4\" takes \"gemma4v\" or \"gemma4uv\"";
    assert!(family.contains(says), "{family}");
    let width = error(&facts("qwen35", 2560, ALL));
    assert!(
        width.contains("the output is 32 wide (1 of 32), the model takes 2560"),
        "{width}"
    );
    let text = error(&facts("qwen3", 32, ALL));
    assert!(
        text.contains("a model of architecture \"qwen3\" takes text only"),
        "{text}"
    );

    let start = |token: &str| token == "<|vision_start|>";
    let tokens = error(&facts("qwen35", 32, &start));
    assert!(
        tokens.contains("puts <|vision_end|> around images, which"),
        "{tokens}"
    );
    let tokens = error(&facts("qwen35", 32, &|_| false));
    assert!(
        tokens.contains("puts <|vision_start|> and <|vision_end|> around"),
        "{tokens}"
    );
}

/// The right family and the right parts, in another number.
#[test]
fn deepstack_counts_for_the_width() {
    let mmproj = Tower::bf16().deepstack(0).read().unwrap();
    mmproj.fits(&facts("qwen3vl", 64, ALL)).unwrap();
    let error = mmproj.fits(&facts("qwen35", 32, ALL)).unwrap_err();
    assert!(matches!(
        error,
        MmprojError::Width {
            width: 64,
            parts: 2,
            projection: 32,
            expected: 32,
            ..
        }
    ));
}
