//! The model that comes with the program.

use super::{fails, fixture, folder, ok};

#[test]
fn a_drawn_picture_is_described_and_can_be_shown_again() {
    let png = folder("demo").join("picture.png");
    let png = png.to_str().unwrap();
    let text = ok(&["demo", "--seed", "4", "--device", "flex", "--save", png]);
    let caption = "a green triangle left of an orange star";
    assert_eq!(text, format!("model:   {caption}\npicture: {caption}\n"));
    let again = ok(&["demo", "--image", png, "--device", "flex"]);
    assert_eq!(again, format!("model:   {caption}\n"));
}

/// The processor of the model makes any picture as small as those it knows.
#[test]
fn a_large_picture_is_made_small() {
    let text = ok(&[
        "demo",
        "--image",
        &fixture("qwen3vl/vl/image_pre.png"),
        "--device",
        "flex",
    ]);
    assert!(text.starts_with("model:   "), "{text}");
}

#[test]
fn a_picture_is_drawn_or_given() {
    fails(&["demo", "--image", "a.png", "--seed", "1"], 2);
    let error = fails(&["demo", "--image", "nowhere.png", "--device", "flex"], 1);
    assert!(error.contains("nowhere.png"), "{error}");
}
