//! Models with images against the original ones, on every device.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, FloatDType};
use burn_gguf::gguf::{Array, Gguf, GgufWriter, Value};
use burn_gguf::{Arithmetic, GgmlTensor, GgmlType};
use burn_gguf_models::chat::Chat;
use burn_gguf_models::generation::GenerateOptions;
use burn_gguf_models::vision::image::ImageInput;
use burn_gguf_models::vision::mmproj::Mmproj;
use burn_gguf_models::vision::{MmprojDtype, VideoInput, VisionError, VisionOptions};
use burn_gguf_models::{
    AutoModel, ImagePositions, ImageRows, LoadOptions, Prompt, PromptRow, SessionOptions,
};
use common::{Npy, argmax, case, chunked, devices, nmse, say};
use image::RgbImage;

const MODEL: &str = "qwen3vl/model-bf16.gguf";
const PROMPT: &str = "what is in <__media__> this image? describes the picture in a few words";

/// f32 sums in another order are at 1e-12; the tanh form of GELU in the mergers would be at 4e-8.
const EMBEDDINGS: f64 = 1e-9;
/// The same, through the text model.
const LOGITS: f64 = 1e-9;

fn load(path: &Path, device: &Device, dtype: MmprojDtype) -> AutoModel {
    let options = LoadOptions {
        arithmetic: Arithmetic::Exact,
        vision: VisionOptions {
            dtype,
            ..VisionOptions::default()
        },
        ..LoadOptions::default()
    };
    AutoModel::load(Gguf::open(path).unwrap(), device, options).unwrap()
}

fn floats(rows: &ImageRows) -> Vec<f32> {
    rows.embeddings.to_data().try_into_vec().unwrap()
}

/// The picture that enters the tower, embedded.
fn see(model: &AutoModel, path: &Path) -> Arc<ImageRows> {
    let vision = model.vision().unwrap();
    let processor = vision.processor();
    let image = ImageInput::from(path).decode(&processor.decode_options());
    let processed = processor.process_resized(&image.unwrap()).unwrap();
    vision.encode_processed(&processed).unwrap()
}

/// Runs on each device with each model and a folder of reference outputs.
fn each_case(run: impl Fn(&str, &AutoModel, &Path)) {
    for family in ["qwen3vl", "qwen3vlmoe"] {
        let Some(path) = case(&format!("{family}/model-bf16.gguf")) else {
            continue;
        };
        for (name, device) in devices() {
            let model = load(&path, &device, MmprojDtype::Bf16);
            for dir in ["vl", "vl2"] {
                let dir = format!("{family}/{dir}");
                run(&format!("{dir} on {name}"), &model, &case(&dir).unwrap());
            }
            say(&format!("devices run: {name}"));
        }
    }
}

fn signed_ids(path: &Path) -> Vec<i64> {
    let npy = Npy::read(path);
    npy.ints()
}

#[test]
fn embeddings_and_logits_equal_the_original() {
    each_case(|what, model, dir| {
        let npy = |name: &str| Npy::read(&dir.join(name));
        let rows = see(model, &dir.join("image_pre.png"));
        let e = nmse(&floats(&rows), &npy("hf_image_embd.npy").floats());
        say(&format!("{what}: embeddings {e:.1e}"));
        assert!(e <= EMBEDDINGS, "{what}: embeddings {e}");

        let prompt = model.text_prompt(PROMPT, &[rows.into()]).unwrap();
        let ids: Vec<i64> = prompt
            .rows()
            .map(|row| match row {
                PromptRow::Token(token) => i64::from(token),
                PromptRow::Image { .. } => -1,
            })
            .collect();
        assert_eq!(ids, signed_ids(&dir.join("vl_ids.npy")), "{what}");
        let positions = prompt.positions(ImagePositions::Grid, 0);
        let positions: Vec<i64> = positions
            .thw()
            .iter()
            .flatten()
            .map(|&p| p.into())
            .collect();
        assert_eq!(positions, signed_ids(&dir.join("vl_pos_thw.npy")), "{what}");

        let vocab = model.model().vocab_size();
        let want = npy("hf_vl_logits.npy").floats();
        let mut session = model.session(&SessionOptions::default());
        let all = session.feed_prompt_all(&prompt).unwrap();
        let text = |all: &[f32]| -> Vec<f32> {
            let rows = all.chunks_exact(vocab).zip(&ids);
            rows.filter(|(_, id)| **id >= 0)
                .flat_map(|(row, _)| row.to_vec())
                .collect()
        };
        let e = nmse(&text(&all), &want);
        say(&format!("{what}: logits {e:.1e}"));
        assert!(e <= LOGITS, "{what}: logits {e}");

        // Greedy decoding, whose logits llama.cpp gave (tanh GELU: 1e-8).
        let mut token = argmax(&all[all.len() - vocab..]);
        let (mut tokens, mut logits) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            tokens.push(token);
            let next = session.feed(&[token]).unwrap();
            token = argmax(&next);
            logits.extend(next);
        }
        assert_eq!(tokens, npy("vl_decode_tokens.npy").ids(), "{what}");
        let e = nmse(&logits, &npy("vl_decode_logits.npy").floats());
        assert!(e <= 1e-6, "{what}: decode {e}");

        // An image longer than a chunk, cut anywhere.
        for chunk in [1, 7, 32] {
            let mut session = model.session(&chunked(chunk));
            let e = nmse(&text(&session.feed_prompt_all(&prompt).unwrap()), &want);
            assert!(e <= LOGITS, "{what} in chunks of {chunk}: {e}");
        }
    });
}

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

fn gradient(width: u32, height: u32, phase: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let v = |a: u32| ((a * 7 + phase) % 256) as u8;
        image::Rgb([v(x), v(y), v(x + y)])
    })
}

#[test]
fn turns_with_images_reuse_what_was_read() {
    let Some(path) = case(MODEL) else { return };
    let (_, device) = devices().remove(0);
    let model = load(&path, &device, MmprojDtype::Bf16);
    let vision = model.vision().unwrap();
    let rows = |phase: u32| {
        let image = ImageInput::from(gradient(320, 256, phase));
        let image = image.decode(&vision.processor().decode_options()).unwrap();
        vision.encode(&image).unwrap()
    };
    let (a, b) = (rows(0), rows(90));
    assert!(
        Arc::ptr_eq(&a, &rows(0)),
        "the same picture is embedded once"
    );
    assert!(
        nmse(&floats(&a), &floats(&b)) > 1e-3,
        "two pictures look the same"
    );

    let first = model
        .text_prompt("see <__media__> and", &[a.clone().into()])
        .unwrap();
    let both = [a.clone().into(), b.clone().into()];
    let second = model
        .text_prompt("see <__media__> and <__media__> too", &both)
        .unwrap();
    let mut session = model.session(&SessionOptions::default());
    session.feed_prompt(&first).unwrap();
    let (logits, shared) = session.feed_prompt(&second).unwrap();
    // All of the first prompt but what its end and the second's beginning share no longer.
    assert!(shared >= a.grid.len() + 2, "{shared} rows were kept");
    assert_eq!(session.history().len(), second.len());
    let mut fresh = model.session(&SessionOptions::default());
    let (want, none) = fresh.feed_prompt(&second).unwrap();
    assert_eq!(none, 0);
    assert!(nmse(&logits, &want) < 1e-10);

    // Another picture in the same place is not taken for the one that was read.
    let swapped = [b.into(), a.into()];
    let swapped = model
        .text_prompt("see <__media__> and <__media__> too", &swapped)
        .unwrap();
    let (other, shared) = session.feed_prompt(&swapped).unwrap();
    assert!(shared < 10, "{shared} rows of another picture were kept");
    assert!(nmse(&other, &want) > 1e-6);
    // A cache cut in the middle of an image is read on from there.
    session.feed_prompt(&second).unwrap();
    session.cache_mut().truncate(20);
    let (again, shared) = session.feed_prompt(&second).unwrap();
    assert_eq!(shared, 20);
    assert!(nmse(&again, &want) < 1e-10);
}

#[test]
fn videos_have_times_and_two_frames_a_patch() {
    let Some(path) = case(MODEL) else { return };
    let (_, device) = devices().remove(0);
    let model = load(&path, &device, MmprojDtype::Bf16);
    let vision = model.vision().unwrap();
    let frames = |phases: &[u32]| VideoInput::Frames {
        frames: phases
            .iter()
            .map(|&p| gradient(256, 256, p).into())
            .collect(),
        fps: 2.0,
    };
    let video = vision.encode_video(&frames(&[0, 40, 80])).unwrap();
    let times: Vec<_> = video.iter().map(|v| v.timestamp.as_str()).collect();
    // The odd last frame is its own partner.
    assert_eq!(times, ["<0.2 seconds>", "<1.0 seconds>"]);
    // Both frames of a patch count, and a still video is a still picture.
    let still = vision.encode_video(&frames(&[0, 0])).unwrap();
    assert!(nmse(&floats(&video[0].rows), &floats(&still[0].rows)) > 1e-4);
    let processor = vision.processor();
    let image = ImageInput::from(gradient(256, 256, 0));
    let image = image.decode(&processor.decode_options()).unwrap();
    let picture = floats(&vision.encode(&image).unwrap());
    let still = floats(&still[0].rows);
    if picture.len() == still.len() {
        assert!(nmse(&still, &picture) < 1e-10);
    }
}

#[test]
fn markers_and_images_must_agree() {
    let Some(path) = case(MODEL) else { return };
    let (_, device) = devices().remove(0);
    let model = load(&path, &device, MmprojDtype::Bf16);
    let rows = see(&model, &case("qwen3vl/vl/image_pre.png").unwrap());
    for (text, images, found) in [
        ("none", 1, 0),
        ("<__media__><__media__>", 1, 2),
        ("<__media__>", 0, 1),
    ] {
        let media = vec![rows.clone().into(); images];
        let error = model.text_prompt(text, &media).unwrap_err().to_string();
        assert!(
            error.contains(&format!("has {found} ")) && error.contains(&format!("{images} images")),
            "{error}"
        );
    }
    // Rows of another width are refused before anything runs.
    let mut narrow = (*rows).clone();
    let [n, width] = narrow.embeddings.dims();
    narrow.embeddings = narrow.embeddings.slice([0..n, 0..width - 1]);
    let mut prompt = Prompt::new();
    prompt.push_image(Arc::new(narrow));
    let error = model
        .session(&SessionOptions::default())
        .feed_prompt(&prompt)
        .unwrap_err();
    assert!(error.to_string().contains("another model"), "{error}");
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
    let error = match AutoModel::load(gguf, &device, LoadOptions::default()) {
        Ok(_) => panic!("it loaded"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("v.blk.0.ls1.weight"), "{error}");
}
