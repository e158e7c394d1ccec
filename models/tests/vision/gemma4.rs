//! Gemma 4 with pictures: two towers, and images whose rows see each other in both directions.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::Arithmetic;
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::{GgmlType, gguf::Value};
use burn_gguf_models::vision::image::{ContentHash, ImageInput};
use burn_gguf_models::vision::mmproj::Mmproj;
use burn_gguf_models::vision::processor::Grid;
use burn_gguf_models::vision::{MmprojDtype, Vision, VisionOptions};
use burn_gguf_models::{
    AutoModel, ImagePositions, ImageRows, Prompt, PromptPart, PromptRow, SessionOptions,
};

use super::common::{Npy, argmax, case, chunked, devices, nmse, say};
use super::{EMBEDDINGS, PROMPT, floats, gradient, load, signed_ids};

const FAMILIES: [&str; 2] = ["gemma4", "gemma4uv"];

/// Sums in another order, which sharp attention (its scores are not scaled) and the choice of experts enlarge.
const LOGITS: f64 = 1e-7;

/// The eyes of a file alone, and what they see.
fn see_alone(mmproj: &Mmproj, path: &Path, device: &Device) -> Vec<f32> {
    let options = VisionOptions::default();
    let vision = Vision::load(mmproj, device, &options, Arithmetic::Exact).unwrap();
    floats(&see(&vision, path))
}

fn see(vision: &Vision, path: &Path) -> Arc<ImageRows> {
    let processor = vision.processor();
    let image = ImageInput::from(path).decode(&processor.decode_options());
    let processed = processor.process_resized(&image.unwrap()).unwrap();
    vision.encode_processed(&processed).unwrap()
}

/// The original's output, or llama.cpp's where the two agree.
fn original(dir: &Path, name: &str) -> Vec<f32> {
    let hf = dir.join(format!("hf_{name}"));
    let path = if hf.exists() { hf } else { dir.join(name) };
    Npy::read(&path).floats()
}

#[test]
fn towers_see_what_the_original_sees() {
    for (family, dirs) in [
        ("gemma4-e", &["vl"][..]),
        ("gemma4", &["vl", "vl2"]),
        ("gemma4uv", &["vl", "vl2"]),
    ] {
        let Some(path) = case(&format!("{family}/mmproj-bf16.gguf")) else {
            continue;
        };
        let mmproj = Mmproj::open(path).unwrap();
        for dir in dirs {
            let Some(dir) = case(&format!("{family}/{dir}")) else {
                continue;
            };
            for (name, device) in devices() {
                let seen = see_alone(&mmproj, &dir.join("image_pre.png"), &device);
                let e = nmse(&seen, &original(&dir, "image_embd.npy"));
                say(&format!("{} on {name}: embeddings {e:.1e}", dir.display()));
                assert!(e <= EMBEDDINGS, "{} on {name}: {e}", dir.display());
            }
        }
    }
}

/// The logits after the prompt's text rows.
fn text_rows(all: &[f32], vocab: usize, prompt: &Prompt) -> Vec<f32> {
    let rows = all.chunks_exact(vocab).zip(prompt.rows());
    rows.filter(|(_, row)| matches!(row, PromptRow::Token(_)))
        .flat_map(|(logits, _)| logits.to_vec())
        .collect()
}

fn each_case(run: impl Fn(&str, &AutoModel, &Path)) {
    for family in FAMILIES {
        let Some(path) = case(&format!("{family}/model-bf16.gguf")) else {
            continue;
        };
        for (name, device) in devices() {
            let model = load(&path, &device, MmprojDtype::Bf16);
            for dir in ["vl", "vl2"] {
                let dir = format!("{family}/{dir}");
                if let Some(path) = case(&dir) {
                    run(&format!("{dir} on {name}"), &model, &path);
                }
            }
        }
    }
}

#[test]
fn logits_equal_the_originals() {
    each_case(|what, model, dir| {
        let rows = see(model.vision().unwrap(), &dir.join("image_pre.png"));
        let prompt = model.text_prompt(PROMPT, &[rows.into()]).unwrap();
        let ids: Vec<i64> = prompt
            .rows()
            .map(|row| match row {
                PromptRow::Token(token) => i64::from(token),
                PromptRow::Image { .. } => -1,
            })
            .collect();
        assert_eq!(ids, signed_ids(&dir.join("vl_ids.npy")), "{what}");
        let positions = prompt.positions(ImagePositions::Sequential, 0);
        let positions: Vec<i64> = positions
            .thw()
            .iter()
            .flatten()
            .map(|&p| p.into())
            .collect();
        assert_eq!(positions, signed_ids(&dir.join("vl_pos_thw.npy")), "{what}");
        let want = original(dir, "vl_logits.npy");
        // An image is longer than most of these chunks, and read in one piece all the same.
        for chunk in [usize::MAX, 1, 7, 32] {
            let mut session = model.session(&chunked(chunk));
            let all = session.feed_prompt_all(&prompt).unwrap();
            let text = text_rows(&all, model.model().vocab_size(), &prompt);
            let e = nmse(&text, &want);
            say(&format!("{what} in chunks of {chunk}: logits {e:.1e}"));
            assert!(e <= LOGITS, "{what} in chunks of {chunk}: logits {e}");
        }
    });
}

/// llama.cpp's tower has another activation, so its greedy tokens come from its own image rows.
#[test]
fn answers_to_llama_cpps_rows_are_llama_cpps() {
    each_case(|what, model, dir| {
        let npy = |name: &str| Npy::read(&dir.join(name));
        let embeddings = npy("image_embd.npy");
        let shape = [embeddings.shape[0], embeddings.shape[1]];
        let data = TensorData::new(embeddings.floats(), shape);
        let device = model.model().device();
        let rows = Arc::new(ImageRows {
            embeddings: Tensor::from_data(data, &device),
            grid: Grid {
                rows: 8,
                columns: 10,
            },
            hash: ContentHash::of(&[gradient(8, 8, 0)]),
        });
        let prompt = model.text_prompt(PROMPT, &[rows.into()]).unwrap();
        let vocab = model.model().vocab_size();
        let mut session = model.session(&SessionOptions::default());
        let all = session.feed_prompt_all(&prompt).unwrap();
        let text = text_rows(&all, vocab, &prompt);
        let e = nmse(&text, &npy("vl_logits.npy").floats());
        say(&format!("{what}: logits {e:.1e}"));
        assert!(e <= LOGITS, "{what}: logits {e}");
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
        assert!(e <= LOGITS, "{what}: decode {e}");
    });
}

#[test]
fn an_image_is_never_kept_in_part() {
    let Some(path) = case("gemma4/model-bf16.gguf") else {
        return;
    };
    let (_, device) = devices().remove(0);
    let model = load(&path, &device, MmprojDtype::Bf16);
    let dir = case("gemma4/vl").unwrap();
    let rows = see(model.vision().unwrap(), &dir.join("image_pre.png"));
    let prompt = model
        .text_prompt("what is <__media__> this?", &[rows.into()])
        .unwrap();
    let start = prompt
        .rows()
        .position(|row| matches!(row, PromptRow::Image { .. }))
        .unwrap();
    let images = prompt
        .rows()
        .filter(|row| matches!(row, PromptRow::Image { .. }));
    let image_end = start + images.count();
    let mut session = model.session(&SessionOptions::default());
    let (want, none) = session.feed_prompt(&prompt).unwrap();
    assert_eq!(none, 0);
    // Cut in the image, behind it, and not at all.
    for (cut, kept) in [
        (start + 20, start),
        (start + 80, start + 80),
        (prompt.len(), prompt.len() - 1),
    ] {
        session.cache_mut().truncate(cut);
        let (again, shared) = session.feed_prompt(&prompt).unwrap();
        // The tiny windows may have lost more.
        let whole = shared <= start || shared >= image_end;
        assert!(shared <= kept && whole, "cut at {cut}: {shared} are kept");
        let e = nmse(&again, &want);
        assert!(e < 1e-10, "cut at {cut}: {e}");
    }
    // The answer to a prompt that ends in an image reads the image again.
    let mut ends = Prompt::new();
    for part in prompt.parts().iter().take(2) {
        match part {
            PromptPart::Tokens(tokens) => ends.push_tokens(tokens.clone()),
            PromptPart::Image(image) => ends.push_image(image.clone()),
        }
    }
    let (first, _) = session.feed_prompt(&ends).unwrap();
    let (second, shared) = session.feed_prompt(&ends).unwrap();
    assert!(shared <= start, "{shared} are kept");
    assert!(nmse(&second, &first) < 1e-10);
}

/// Whether an image's last row reaches its first: in both directions, whatever the window, or not at all.
#[test]
fn rows_of_an_image_see_ahead_where_they_should() {
    for (file, sees) in [
        ("gemma4-e/model-bf16.gguf", false),
        ("gemma4/model-bf16.gguf", true),
        ("gemma4uv/model-bf16.gguf", true),
    ] {
        let Some(path) = case(file) else { continue };
        for (name, device) in devices() {
            let model = super::common::load(&path, &device, Arithmetic::Exact).unwrap();
            let width = model.model().image_width();
            let (vocab, count) = (model.model().vocab_size(), 30);
            let run = |last: f32| {
                let mut values: Vec<f32> = (0..count * width)
                    .map(|i| (i as f32 * 0.37).sin())
                    .collect();
                values[(count - 1) * width..].fill(last);
                let data = TensorData::new(values, [count, width]);
                let mut prompt = Prompt::from(vec![2, 5, 6]);
                prompt.push_image(Arc::new(ImageRows {
                    embeddings: Tensor::from_data(data, &device),
                    grid: Grid {
                        rows: 5,
                        columns: 6,
                    },
                    hash: ContentHash::of(&[gradient(8, 8, 0)]),
                }));
                prompt.push_tokens([7]);
                let mut session = model.session(&chunked(4));
                session.feed_prompt_all(&prompt).unwrap()
            };
            let (a, b) = (run(1.0), run(-1.0));
            let at = |row: usize| nmse(&a[row * vocab..][..vocab], &b[row * vocab..][..vocab]);
            assert_eq!(at(2), 0.0, "{file} on {name}: the text before is another");
            let first = at(3);
            assert_eq!(first > 1e-6, sees, "{file} on {name}: {first}");
            assert!(at(3 + count) > 1e-6, "{file} on {name}: the text behind");
        }
    }
}

/// The text model with embeddings per layer reads images causally.
#[test]
fn causal_images_may_be_cut_anywhere() {
    let path = case("gemma4-e/model-bf16.gguf").expect("the fixture is in the repository");
    let dir = case("gemma4-e/vl").expect("the fixture is in the repository");
    for (name, device) in devices() {
        let model = load(&path, &device, MmprojDtype::Bf16);
        assert!(!model.model().reads_images_whole());
        let rows = see(model.vision().unwrap(), &dir.join("image_pre.png"));
        let prompt = model.text_prompt(PROMPT, &[rows.into()]).unwrap();
        let run = |chunk: usize| {
            let mut session = model.session(&chunked(chunk));
            session.feed_prompt_all(&prompt).unwrap()
        };
        let want = run(usize::MAX);
        for chunk in [1, 7, 32] {
            let e = nmse(&run(chunk), &want);
            assert!(e < 1e-9, "{name} in chunks of {chunk}: {e}");
        }
    }
}

fn tower() -> Gguf {
    let path = case("gemma4-e/mmproj-bf16.gguf");
    Gguf::open(path.expect("the fixture is in the repository")).unwrap()
}

/// The tower's file with more tensors.
fn with_tensors(tensors: &[(&str, f32)]) -> Mmproj {
    let mut writer = GgufWriter::new();
    writer.copy_from(&tower());
    for (name, value) in tensors {
        let bytes = value.to_le_bytes().to_vec();
        writer.tensor(*name, &[1], GgmlType::F32, bytes);
    }
    let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    Mmproj::from_gguf(gguf).unwrap()
}

#[test]
fn bounds_of_linear_layers_count() {
    let dir = case("gemma4-e/vl").expect("the fixture is in the repository");
    let image = dir.join("image_pre.png");
    for (name, device) in devices() {
        let see = |tensors: &[(&str, f32)]| see_alone(&with_tensors(tensors), &image, &device);
        let plain = see(&[]);
        // So wide that they change nothing, or not to be reached.
        let wide = see(&[
            ("v.blk.0.attn_q.input_min", f32::NEG_INFINITY),
            ("v.blk.0.attn_q.input_max", f32::MAX),
            ("v.blk.1.ffn_down.output_min", -1e6),
            ("v.blk.1.ffn_down.output_max", 1e6),
        ]);
        assert!(nmse(&wide, &plain) < 1e-12, "{name}");
        for bound in [
            "v.blk.0.attn_v.output_max",
            "v.blk.1.attn_out.input_max",
            "v.blk.0.ffn_up.output_max",
            "mm.input_projection.input_max",
        ] {
            let e = nmse(&see(&[(bound, 0.1)]), &plain);
            assert!(e > 1e-4, "{bound} on {name}: {e}");
        }
        // Everything within one value: all tokens are the same.
        let bound = ("mm.input_projection.output_max", 0.25);
        let flat = see(&[("mm.input_projection.output_min", 0.25), bound]);
        assert!(flat.iter().all(|&v| v == 0.25), "{name}");
    }
    let refused = |tensors: &[(&str, f32)]| {
        let mmproj = with_tensors(tensors);
        let options = VisionOptions::default();
        let loaded = Vision::load(&mmproj, &Device::flex(), &options, Arithmetic::Exact);
        loaded.err().expect("it loaded").to_string()
    };
    let crossed = [
        ("v.blk.0.attn_q.input_min", 1.0),
        ("v.blk.0.attn_q.input_max", 0.0),
    ];
    assert!(refused(&crossed).contains("v.blk.0.attn_q.input_min"));
    assert!(refused(&[("v.blk.0.attn_k.output_max", f32::NAN)]).contains("attn_k.output_min"));
    // Nothing of that name is in the tower.
    assert!(refused(&[("v.blk.0.attn_x.input_max", 1.0)]).contains("attn_x"));
}

#[test]
fn pictures_beyond_the_position_tables_are_refused() {
    let Some(path) = case("gemma4uv/mmproj-bf16.gguf") else {
        return;
    };
    let options = VisionOptions {
        max_tokens: Some(280),
        ..VisionOptions::default()
    };
    let mmproj = Mmproj::open(path).unwrap();
    let vision = Vision::load(&mmproj, &Device::flex(), &options, Arithmetic::Exact).unwrap();
    let image = ImageInput::from(gradient(2000, 100, 0));
    let image = image.decode(&vision.processor().decode_options()).unwrap();
    let error = vision.encode(&image).unwrap_err().to_string();
    assert!(error.contains("32"), "{error}");
}

#[test]
fn a_silu_is_refused() {
    let mut writer = GgufWriter::new();
    writer.copy_from(&tower());
    writer.set_metadata("clip.use_silu", Value::Bool(true));
    let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    let mmproj = Mmproj::from_gguf(gguf).unwrap();
    let options = VisionOptions::default();
    let loaded = Vision::load(&mmproj, &Device::flex(), &options, Arithmetic::Exact);
    let error = loaded.err().expect("it loaded").to_string();
    assert!(error.contains("clip.use_silu"), "{error}");
}
