//! The model that comes with the crate: it is small, and says what is in pictures it was not trained on.

mod common;

use std::path::Path;

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;
use burn_gguf_models::demo::{self, MMPROJ, PROMPTS, Picture, Scene, Split, TEXT};
use burn_gguf_models::tokenizer::Tokenizer;
use common::{devices, say};

/// Held-out pictures that lie as PNG beside their captions.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/demo");

#[test]
fn both_files_take_less_than_four_megabytes() {
    let bytes = TEXT.len() + MMPROJ.len();
    assert!(bytes <= 4_000_000, "{bytes} bytes");
}

#[test]
fn pictures_in_files_are_described_exactly() {
    let captions = std::fs::read_to_string(Path::new(FIXTURES).join("captions.txt")).unwrap();
    let pairs: Vec<_> = captions
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    assert!(pairs.len() >= 3, "{captions}");
    for (name, device) in devices() {
        let model = demo::load(&device, Arithmetic::Fast).unwrap();
        for (file, caption) in &pairs {
            let path = Path::new(FIXTURES).join(file);
            for prompt in PROMPTS {
                let said = demo::describe(&model, path.as_path(), prompt).unwrap();
                assert_eq!(said, *caption, "{file} on {name}, {prompt}");
            }
        }
    }
}

#[test]
fn held_out_pictures_are_described() {
    let model = demo::load(&Device::flex(), Arithmetic::Fast).unwrap();
    let mut wrong = Vec::new();
    const PICTURES: u64 = 100;
    for number in 0..PICTURES {
        let picture = Picture::new(Split::HeldOut, 50_000 + number);
        let prompt = PROMPTS[number as usize % PROMPTS.len()];
        let said = demo::describe(&model, picture.to_image(), prompt).unwrap();
        if said != picture.caption() {
            wrong.push(format!("{number}: {} was called {said}", picture.caption()));
        }
    }
    say(&format!(
        "{} of {PICTURES} captions are exact",
        PICTURES as usize - wrong.len()
    ));
    assert!(wrong.len() as u64 * 20 <= PICTURES, "{}", wrong.join("\n"));
}

#[test]
fn every_word_is_a_token() {
    let gguf = Gguf::from_bytes(TEXT.to_vec().into()).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let check = |text: &str, words: usize| {
        let ids = tokenizer.encode(text, false, false).unwrap();
        assert_eq!(ids.len(), words, "{text}: {ids:?}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    };
    for number in 0..500 {
        let caption = Picture::new(Split::Training, number).caption();
        check(&caption, caption.split(' ').count());
    }
    for prompt in PROMPTS {
        // The last sign is one of its own.
        check(prompt, prompt.split(' ').count() + 1);
    }
    for text in ["user", "assistant", "system"] {
        check(text, 1);
    }
    // Bytes are there for all else.
    let text = "Zwölf graue Ellipsen, 東 \u{1F600}";
    let ids = tokenizer.encode(text, false, false).unwrap();
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
}

#[test]
fn pictures_repeat_and_differ() {
    let picture = Picture::new(Split::HeldOut, 7);
    assert_eq!(picture, Picture::new(Split::HeldOut, 7));
    assert_ne!(picture.pixels, Picture::new(Split::Training, 7).pixels);
    let scenes: std::collections::HashSet<Scene> = (0..200)
        .map(|number| Picture::new(Split::HeldOut, number).scene)
        .collect();
    assert!(scenes.len() > 150, "{} scenes", scenes.len());
}

/// A scene of two groups is told from the larger one, or from the upper or left one of two equals.
#[test]
fn a_scene_has_one_caption() {
    use burn_gguf_models::demo::Relation::{Above, LeftOf};
    for number in 0..2000 {
        let scene = Picture::new(Split::Training, number).scene;
        if let Some((relation, second)) = scene.second {
            assert!(scene.first.count >= second.count, "{scene}");
            if scene.first.count == second.count {
                assert!(matches!(relation, Above | LeftOf), "{scene}");
            }
            let what = |group: demo::Group| (group.colour, group.shape);
            assert_ne!(what(scene.first), what(second), "{scene}");
        }
    }
}
