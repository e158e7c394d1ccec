//! Models with images against the original ones, on every device.

mod chat;
#[path = "../common/mod.rs"]
mod common;
mod files;
mod gemma4;

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;
use burn_gguf_models::vision::image::ImageInput;
use burn_gguf_models::vision::{MmprojDtype, VideoInput, VisionOptions};
use burn_gguf_models::{AutoModel, ImageRows, LoadOptions, Prompt, PromptRow, SessionOptions};
use common::{Npy, argmax, case, chunked, devices, nmse, say};
use image::RgbImage;

const MODEL: &str = "qwen3vl/model-bf16.gguf";
const PROMPT: &str = "what is in <__media__> this image? describes the picture in a few words";

/// f32 sums in another order are at 1e-12; the tanh form of GELU in the mergers would be at 4e-8.
const EMBEDDINGS: f64 = 1e-9;
/// The same, through the text model.
const LOGITS: f64 = 1e-9;
/// Families, and how far llama.cpp, which decodes, is from the original: by tanh GELU where that has the exact one, and with
/// `minimax-m3` by attention in f16.
const FAMILIES: &[(&str, f64)] = &[
    ("qwen3vl", 1e-6),
    ("qwen3vlmoe", 1e-6),
    ("qwen35", 1e-6),
    ("qwen35moe", 1e-6),
    ("minimax-m3", 5e-6),
];

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
fn each_case(run: impl Fn(&str, &AutoModel, &Path, f64)) {
    for (family, llama_cpp) in FAMILIES {
        // The model that has its tower beside it.
        let Some(mmproj) = case(&format!("{family}/mmproj-bf16.gguf")) else {
            continue;
        };
        let path = mmproj.with_file_name("model-bf16.gguf");
        for (name, device) in devices() {
            let model = load(&path, &device, MmprojDtype::Bf16);
            for dir in ["vl", "vl2"] {
                let dir = format!("{family}/{dir}");
                let what = format!("{dir} on {name}");
                run(&what, &model, &case(&dir).unwrap(), *llama_cpp);
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
    each_case(|what, model, dir, llama_cpp| {
        let npy = |name: &str| Npy::read(&dir.join(name));
        let rows = see(model, &dir.join("image_pre.png"));
        // Some cases have llama.cpp's only, which are the same to 1e-12.
        let names = ["hf_image_embd.npy", "image_embd.npy"];
        let name = names.into_iter().find(|name| dir.join(name).exists());
        let e = nmse(&floats(&rows), &npy(name.unwrap()).floats());
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
        let positions = prompt.positions(model.model().image_positions(), 0);
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

        // Greedy decoding, whose logits llama.cpp gave.
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
        assert!(e <= llama_cpp, "{what}: decode {e}");

        // An image longer than a chunk, cut anywhere.
        for chunk in [1, 7, 32] {
            let mut session = model.session(&chunked(chunk));
            let e = nmse(&text(&session.feed_prompt_all(&prompt).unwrap()), &want);
            assert!(e <= LOGITS, "{what} in chunks of {chunk}: {e}");
        }
    });
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
    assert!(nmse(&still, &picture) < 1e-10);
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
fn a_state_with_an_image_belongs_to_its_tower() {
    let (Some(path), Some(dir)) = (case(MODEL), case("qwen3vl/vl")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.gguf");
    let (_, device) = devices().remove(0);
    let model = load(&path, &device, MmprojDtype::Bf16);
    let rows = see(&model, &dir.join("image_pre.png"));
    let prompt = model.text_prompt(PROMPT, &[rows.into()]).unwrap();
    let mut session = model.session(&SessionOptions::default());
    let (want, _) = session.feed_prompt(&prompt).unwrap();
    session.save_state(&state).unwrap();
    let mut again = model.session(&SessionOptions::default());
    assert_eq!(again.load_state(&state).unwrap(), prompt.len());
    let (found, kept) = again.feed_prompt(&prompt).unwrap();
    assert_eq!(kept, prompt.len() - 1);
    assert!(nmse(&found, &want) < 1e-10);
    let other = load(&path, &device, MmprojDtype::F32);
    let mut session = other.session(&SessionOptions::default());
    let error = session.load_state(&state).unwrap_err();
    assert!(
        matches!(error, burn_gguf_models::StateError::OtherTower { .. }),
        "{error}"
    );
}
