//! Images in conversations.

use std::path::Path;

use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf_models::chat::Chat;
use burn_gguf_models::generation::GenerateOptions;
use burn_gguf_models::vision::MmprojDtype;
use burn_gguf_models::{AutoModel, PromptRow};

use super::common::{case, devices};
use super::{MODEL, gradient, load};

/// The tiny model with a chat template of its own, its mmproj file beside it.
fn with_template(folder: &Path, template: &str) -> Option<AutoModel> {
    let (model, mmproj) = (case(MODEL)?, case("qwen3vl/mmproj-bf16.gguf")?);
    let source = Gguf::open(model).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_from(&source);
    writer.set_metadata("tokenizer.chat_template", template);
    writer.write_file(folder.join("model.gguf")).unwrap();
    std::fs::copy(mmproj, folder.join("mmproj-model.gguf")).unwrap();
    let (_, device) = devices().remove(0);
    Some(load(&folder.join("model.gguf"), &device, MmprojDtype::Bf16))
}

#[test]
fn any_template_takes_images() {
    let folder = tempfile::tempdir().unwrap();
    let chat = Chat::new().with(
        Chat::user()
            .text("see ")
            .image(gradient(256, 256, 1))
            .image(gradient(256, 288, 2))
            .text(" now"),
    );
    // It knows nothing of parts or images.
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let Some(model) = with_template(folder.path(), plain) else {
        return;
    };
    let prompt = model.chat_prompt(&chat).unwrap();
    let vision = |name: &str| model.tokenizer().unwrap().token_id(name).unwrap();
    let (begin, end) = (vision("<|vision_start|>"), vision("<|vision_end|>"));
    let rows: Vec<_> = prompt.rows().collect();
    let images = rows
        .iter()
        .filter(|row| matches!(row, PromptRow::Image { .. }));
    assert_eq!(images.count(), 64 + 72);
    let shape: Vec<char> = rows
        .iter()
        .map(|row| match row {
            PromptRow::Token(token) if *token == begin => '[',
            PromptRow::Token(token) if *token == end => ']',
            PromptRow::Token(_) => 't',
            PromptRow::Image { .. } => 'i',
        })
        .collect();
    let mut shape: String = shape.into_iter().collect();
    for (long, short) in [("tt", "t"), ("ii", "i")] {
        while shape.contains(long) {
            shape = shape.replace(long, short);
        }
    }
    assert_eq!(shape, "t[i][i]t");

    // An answer comes, and the same picture later in the chat is a hit.
    let options = GenerateOptions {
        max_tokens: Some(3),
        ..GenerateOptions::default()
    };
    assert_eq!(model.generate(&prompt, options).unwrap().count(), 3);

    for (template, found) in [
        ("{{ messages[0].role }}", "no place"),
        (
            "{{ messages[0].content }}{{ messages[0].content }}",
            "2 places",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let model = with_template(folder.path(), template).unwrap();
        let error = model.chat_prompt(&chat).unwrap_err().to_string();
        assert!(
            error.contains(found) && error.contains("image 1 (of 2)"),
            "{error}"
        );
    }
}

#[test]
fn markers_typed_by_a_user_are_text() {
    let folder = tempfile::tempdir().unwrap();
    let Some(model) = with_template(folder.path(), "{{ messages[0].content }}") else {
        return;
    };
    let typed = "a <__media_0_0__> b <__media__>";
    let chat = Chat::new().with(Chat::user().text(typed).image(gradient(256, 256, 3)));
    let prompt = model.chat_prompt(&chat).unwrap();
    let tokens: Vec<u32> = prompt.tokens().collect();
    let text = model.tokenizer().unwrap().decode(&tokens, true).unwrap();
    assert_eq!(text, format!("{typed}<|vision_start|><|vision_end|>"));
}

#[test]
fn bad_images_in_a_chat_name_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let Some(model) = with_template(folder.path(), "{{ messages[0].content }}") else {
        return;
    };
    let refused = |message: burn_gguf_models::chat::UserMessage| {
        model
            .chat_prompt(&Chat::new().with(message))
            .unwrap_err()
            .to_string()
    };
    assert!(refused(Chat::user().image("nowhere.png")).contains("nowhere.png"));
    assert!(refused(Chat::user().image(b"no picture".to_vec())).contains("10 bytes"));
    let thin = refused(Chat::user().image(gradient(4000, 2, 0)));
    assert!(thin.contains("4000"), "{thin}");
}
