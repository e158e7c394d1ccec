//! Images on the command line.

use std::io::Write;
use std::process::{Command, Stdio};

use burn_gguf::gguf::{Gguf, GgufWriter};

use super::{burn_gguf, err, fails, fixture, folder, model, npy, ok, out};

fn seeing() -> String {
    fixture("qwen3vl/model-bf16.gguf")
}

fn mmproj() -> String {
    fixture("qwen3vl/mmproj-bf16.gguf")
}

fn picture() -> String {
    fixture("qwen3vl/vl/image_pre.png")
}

/// The tiny model with a chat template, its mmproj file beside it.
fn chatting(name: &str) -> String {
    let dir = folder(name);
    let source = Gguf::open(seeing()).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_from(&source);
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    writer.set_metadata("tokenizer.chat_template", template);
    writer.write_file(dir.join("model.gguf")).unwrap();
    std::fs::copy(mmproj(), dir.join("mmproj-model.gguf")).unwrap();
    dir.join("model.gguf").to_str().unwrap().to_string()
}

#[test]
fn vision_shows_what_a_model_sees() {
    let dir = folder("vision");
    let png = dir.join("seen.png");
    let (model, png_path) = (seeing(), png.to_str().unwrap());
    let text = ok(&[
        "vision",
        &model,
        &picture(),
        "--save",
        png_path,
        "--encode",
        "1",
    ]);
    for part in [
        "seen at",
        "tokens ",
        "projector qwen3vl_merger",
        "encoded   in",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let saved = image::open(&png).unwrap();
    assert!(
        saved.width().max(saved.height()) >= 512,
        "a small picture is enlarged"
    );
    // The mmproj file alone is enough, and limits count.
    let few = ok(&[
        "vision",
        &mmproj(),
        &picture(),
        "--image-max-tokens",
        "16",
        "--image-min-tokens",
        "8",
    ]);
    let tokens = few.split(" in the prompt").next().unwrap();
    let tokens: u32 = tokens.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((8..=16).contains(&tokens), "{few}");
    let error = fails(&["vision", &model, "nowhere.png"], 1);
    assert!(error.contains("nowhere.png"), "{error}");
    let error = fails(&["vision", &super::model(), &picture()], 1);
    assert!(error.contains("reads no images"), "{error}");
    let error = fails(
        &["vision", &mmproj(), &picture(), "--processor", "colour=red"],
        1,
    );
    assert!(error.contains("colour"), "{error}");
}

#[test]
fn logits_with_an_image_are_written() {
    let dir = folder("vl_logits");
    let (folder, ids) = (dir.to_str().unwrap(), fixture("qwen3vl/vl/vl_ids.npy"));
    let model = seeing();
    let image = ["--pixels-from", &picture()].map(str::to_string);
    let by_prompt = "what is in <__media__> this image? describes the picture in a few words";
    ok(&[
        "logits", &model, "--prompt", by_prompt, &image[0], &image[1], "--decode", "2", "--out",
        folder,
    ]);
    let first = npy(&dir.join("vl_logits.npy"));
    assert_eq!(npy(&dir.join("vl_ids.npy")).1, npy(ids.as_ref()).1);
    for name in [
        "image_embd.npy",
        "pixel_values.npy",
        "vl_decode_tokens.npy",
        "vl_decode_logits.npy",
    ] {
        assert!(dir.join(name).exists(), "{name}");
    }
    // The same by token ids, with -1 where the image goes.
    ok(&[
        "logits",
        &model,
        "--tokens-file",
        &ids,
        &image[0],
        &image[1],
        "--out",
        folder,
    ]);
    assert_eq!(npy(&dir.join("vl_logits.npy")), first);
    let error = fails(
        &["logits", &model, "--tokens-file", &ids, "--out", folder],
        1,
    );
    assert!(error.contains("only 0 were given"), "{error}");
    let error = fails(
        &[
            "logits", &model, "--prompt", "no place", &image[0], &image[1], "--out", folder,
        ],
        1,
    );
    assert!(error.contains("has 0 `<__media__>`"), "{error}");
}

#[test]
fn run_takes_images_and_says_how_it_sees() {
    let model = chatting("run_images");
    let output = burn_gguf(&[
        "run",
        &model,
        "--image",
        &picture(),
        "--image",
        &picture(),
        "-p",
        "hi",
        "-n",
        "2",
    ]);
    assert!(output.status.success(), "{}", err(&output));
    let log = err(&output);
    assert!(
        log.contains("mmproj-model.gguf") && log.contains("qwen3vl_merger"),
        "{log}"
    );
    for (args, wanted) in [
        (
            vec!["run", &model, "--no-vision", "--image", "x.png", "-p", "hi"],
            "reads no images",
        ),
        (
            vec!["run", &model, "--image", "nowhere.png", "-p", "hi"],
            "nowhere.png",
        ),
        (
            vec!["run", &model, "--raw", "--image", "x.png", "-p", "hi"],
            "--raw",
        ),
        (
            vec!["run", &model, "--video", "nowhere.gif", "-p", "hi"],
            "nowhere.gif",
        ),
    ] {
        let error = fails(&args, 1);
        assert!(error.contains(wanted), "{error}");
    }
    // A file that is given must fit.
    let text = super::model();
    let error = fails(&["run", &model, "--mmproj", &text, "-p", "hi"], 1);
    assert!(error.contains("qwen3"), "{error}");
    let error = fails(&["run", &mmproj(), "-p", "hi"], 1);
    assert!(error.contains("mmproj"), "{error}");
}

#[test]
fn a_text_family_says_that_it_never_looks() {
    let output = burn_gguf(&[
        "run",
        &model(),
        "--mmproj",
        &mmproj(),
        "--raw",
        "-p",
        "hi",
        "-n",
        "1",
    ]);
    let said = err(&output);
    assert!(
        !output.status.success() && said.contains("takes text only"),
        "{said}"
    );
}

#[test]
fn pictures_are_shown_in_a_chat() {
    let model = chatting("chat_images");
    let mut child = Command::new(env!("CARGO_BIN_EXE_burn-gguf"))
        .args(["run", &model, "-n", "2", "--temp", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let picture = picture();
    let lines = format!("/image nowhere.png\n/image {picture}\nwhat is it?\nand now?\n/exit\n");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let said = err(&output);
    assert!(
        said.contains("nowhere.png") && said.contains("tokens; ask about it"),
        "{said}"
    );
    assert!(!out(&output).is_empty());
}

#[test]
fn template_prints_the_prompt() {
    let model = chatting("template");
    let dir = folder("template_messages");
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let parts = r#"[{"role": "user", "content": [{"type": "text", "text": "see "}, {"type": "image", "path": "a.png"}]}]"#;
    let text = ok(&["template", &model, &write("parts.json", parts)]);
    assert_eq!(text, "user: see <__media__>\n\n");
    let object =
        r#"{"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": false}"#;
    assert_eq!(
        ok(&["template", &model, &write("object.json", object)]),
        "user: hi\n\n"
    );
    for (text, wanted) in [
        ("{}", "no `messages`"),
        ("[", "EOF"),
        (r#"[{"content": 1}]"#, "messages"),
    ] {
        let error = fails(&["template", &model, &write("bad.json", text)], 1);
        assert!(
            error.contains(wanted) && error.contains("bad.json"),
            "{error}"
        );
    }
}

/// A changed copy of the tiny mmproj file beside the text model.
fn with_mmproj(name: &str, change: impl FnOnce(&mut GgufWriter<'_>, &Gguf)) -> (String, String) {
    let model = chatting(name);
    let dir = std::path::Path::new(&model).parent().unwrap();
    let source = Gguf::open(mmproj()).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_metadata(source.metadata());
    change(&mut writer, &source);
    let path = dir.join("mmproj-model.gguf");
    writer.write_file(&path).unwrap();
    (model.clone(), path.to_str().unwrap().to_string())
}

fn all_tensors(writer: &mut GgufWriter<'_>, source: &Gguf) {
    source.tensors().for_each(|info| {
        writer.copy_tensor(info);
    });
}

#[test]
fn heads_that_cannot_turn_are_refused() {
    for (heads, dim) in [(64u32, None), (32, None), (3, Some(32u32)), (2, Some(16))] {
        let (model, file) = with_mmproj("odd_heads", |writer, source| {
            writer.set_metadata("clip.vision.attention.head_count", heads);
            if let Some(dim) = dim {
                writer.set_metadata("clip.vision.attention.head_dim", dim);
            }
            all_tensors(writer, source);
        });
        let error = fails(
            &[
                "run",
                &model,
                "--mmproj",
                &file,
                "--image",
                &picture(),
                "-p",
                "hi",
            ],
            1,
        );
        assert!(
            error.contains("mmproj-model.gguf") && error.contains("head"),
            "{error}"
        );
    }
}

#[test]
fn a_found_file_that_cannot_be_used_leaves_the_text_model() {
    let (model, file) = with_mmproj("no_bias", |writer, source| {
        let kept = source.tensors().filter(|info| info.name() != "mm.0.bias");
        kept.for_each(|info| {
            writer.copy_tensor(info);
        });
    });
    let output = burn_gguf(&["run", &model, "-p", "hi", "-n", "1"]);
    let said = err(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("mm.0.bias") && said.contains("text only"),
        "{said}"
    );
    // Asked for, it is an error; and images are refused with the reason.
    let error = fails(&["run", &model, "--mmproj", &file, "-p", "hi"], 1);
    assert!(error.contains("mm.0.bias"), "{error}");
    let error = fails(&["run", &model, "--image", &picture(), "-p", "hi"], 1);
    assert!(
        error.contains("reads no images") && error.contains("mm.0.bias"),
        "{error}"
    );
}

#[test]
fn settings_the_tower_was_not_made_for_are_refused() {
    for setting in [
        "merge_size=1",
        "merge_size=4",
        "patch_size=8",
        "temporal_patch_size=3",
    ] {
        let error = fails(
            &["vision", &mmproj(), &picture(), "--processor", setting],
            1,
        );
        assert!(error.contains("was made for"), "{setting}: {error}");
    }
    let crossed = "video_min_pixels=99999999999";
    let error = fails(
        &["vision", &mmproj(), &picture(), "--processor", crossed],
        1,
    );
    assert!(error.contains("99999999999"), "{error}");
}

#[test]
fn what_is_read_is_not_overwritten() {
    let dir = folder("overwrite");
    let picture_copy = dir.join("picture.png");
    std::fs::copy(picture(), &picture_copy).unwrap();
    let shown = picture_copy.to_str().unwrap();
    let error = fails(&["vision", &mmproj(), shown, "--save", shown], 1);
    assert!(error.contains("is read"), "{error}");
}

#[test]
fn images_of_the_command_line_are_checked_before_the_chat() {
    let model = chatting("early");
    let error = fails(&["run", &model, "--image", "nope.png"], 1);
    assert!(error.contains("nope.png"), "{error}");
}
