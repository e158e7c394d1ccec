//! The two real models against llama.cpp.
//!
//! The files are looked for in `BURN_GGUF_MODELS`, else in `models-cache` of the workspace (`tests/models/fetch` puts
//! them there); the reference outputs in the shared cases. `BURN_GGUF_DEVICES` picks devices.

mod common;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf_models::{AutoModel, SessionOptions};
use common::{Npy, argmax, devices, load, nmse, real_models, say, shared};
use serde_json::Value;

/// Folder of the cases and name of the file.
const MODELS: &[(&str, &str)] = &[
    ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-q4_k_m.gguf"),
    ("gemma3-270m", "gemma3-270m-q4_k_m.gguf"),
];

/// Where two logits are closer than this, 32-bit sums in another order may swap them.
const MARGIN: f32 = 0.05;

struct Prompt {
    name: String,
    tokens: Vec<u32>,
    top_ids: Vec<u32>,
    top_logits: Vec<f32>,
    positions: Vec<usize>,
    /// Full logits at `positions`, stored in 16 bits.
    logits_at: Vec<f32>,
    greedy: Vec<u32>,
    greedy_margin: Vec<f32>,
    nmse_native: f64,
}

impl Prompt {
    fn read(dir: &Path, name: &str, summary: &Value) -> Self {
        let npy = |file: &str| Npy::read(&dir.join(name).join(file));
        Self {
            name: name.to_string(),
            tokens: npy("tokens.npy").ids(),
            top_ids: npy("top64_ids.npy").ids(),
            top_logits: npy("top64_logits.npy").floats(),
            positions: npy("positions.npy")
                .ids()
                .iter()
                .map(|&p| p as usize)
                .collect(),
            logits_at: npy("logits_at.npy").floats(),
            greedy: npy("greedy_tokens.npy").ids(),
            greedy_margin: npy("greedy_margin.npy").floats(),
            nmse_native: summary["nmse_native_all"].as_f64().unwrap(),
        }
    }

    fn width(&self) -> usize {
        self.top_ids.len() / self.tokens.len()
    }

    /// The logits at the stored ids of each position.
    fn at_top(&self, logits: &[f32]) -> Vec<f32> {
        let vocab = logits.len() / self.tokens.len();
        let rows = self.top_ids.chunks(self.width()).zip(logits.chunks(vocab));
        rows.flat_map(|(ids, row)| ids.iter().map(|&id| row[id as usize]))
            .collect()
    }

    /// Positions where the most likely token is another although the reference is sure of its own.
    fn other_choices(&self, logits: &[f32]) -> Vec<usize> {
        let (width, vocab) = (self.width(), logits.len() / self.tokens.len());
        (0..self.tokens.len())
            .filter(|&i| {
                let margin = self.top_logits[i * width] - self.top_logits[i * width + 1];
                margin > MARGIN && argmax(&logits[i * vocab..][..vocab]) != self.top_ids[i * width]
            })
            .collect()
    }
}

/// The model files with their prompts; those that are not here are named.
fn models() -> Vec<(&'static str, PathBuf, Vec<Prompt>)> {
    let mut found = Vec::new();
    for (name, file) in MODELS {
        let (path, dir) = (real_models().join(file), shared().join("real").join(name));
        if !path.is_file() || !dir.is_dir() {
            say(&format!(
                "skipped: {name}: needs {} (tests/models/fetch) and {}",
                path.display(),
                dir.display()
            ));
            continue;
        }
        let text = std::fs::read_to_string(dir.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            path.metadata().unwrap().len(),
            summary["bytes"].as_u64().unwrap(),
            "{} is another file",
            path.display()
        );
        let prompts = summary["prompts"].as_object().unwrap();
        found.push((
            *name,
            path,
            prompts
                .iter()
                .map(|(p, s)| Prompt::read(&dir, p, s))
                .collect(),
        ));
    }
    found
}

fn flex(path: &Path, arithmetic: Arithmetic) -> AutoModel {
    load(path, &Device::flex(), arithmetic).unwrap()
}

fn all_logits(model: &AutoModel, tokens: &[u32]) -> Vec<f32> {
    model
        .session(&SessionOptions::default())
        .feed_all(tokens)
        .unwrap()
}

/// Agreement with everything stored of a prompt.
fn check_exact(what: &str, prompt: &Prompt, logits: &[f32]) {
    let top = nmse(&prompt.at_top(logits), &prompt.top_logits);
    let vocab = logits.len() / prompt.tokens.len();
    let at: Vec<f32> = prompt
        .positions
        .iter()
        .flat_map(|&p| logits[p * vocab..][..vocab].to_vec())
        .collect();
    let full = nmse(&at, &prompt.logits_at);
    say(&format!(
        "{what} {}: NMSE {top:.1e} at the top 64, {full:.1e} on full rows stored in f16",
        prompt.name
    ));
    assert!(top <= 1e-5 && full <= 1e-5, "{what} {}", prompt.name);
    assert_eq!(
        prompt.other_choices(logits),
        [0usize; 0],
        "{what} {}: other most likely tokens",
        prompt.name
    );
}

#[test]
fn exact_logits_are_llama_cpps() {
    for (name, path, prompts) in models() {
        let model = flex(&path, Arithmetic::Exact);
        for prompt in &prompts {
            let ids = model
                .tokenizer()
                .unwrap()
                .encode_prompt(
                    std::fs::read_to_string(
                        shared()
                            .join("real")
                            .join(name)
                            .join(&prompt.name)
                            .join("prompt.txt"),
                    )
                    .unwrap(),
                )
                .unwrap();
            assert_eq!(
                ids, prompt.tokens,
                "{name} {}: the tokenizer's ids",
                prompt.name
            );
            check_exact(
                &format!("{name} exact on flex"),
                prompt,
                &all_logits(&model, &prompt.tokens),
            );
        }
    }
}

#[test]
fn exact_greedy_tokens_are_llama_cpps() {
    for (name, path, prompts) in models() {
        let model = flex(&path, Arithmetic::Exact);
        for prompt in &prompts {
            let mut session = model.session(&SessionOptions::default());
            let mut token = argmax(&session.feed(&prompt.tokens).unwrap());
            let mut tokens = Vec::new();
            for _ in 0..prompt.greedy.len() {
                tokens.push(token);
                token = argmax(&session.feed(&[token]).unwrap());
            }
            let smallest = prompt.greedy_margin.iter().fold(f32::MAX, |m, v| m.min(*v));
            say(&format!(
                "{name} {}: {} greedy tokens, smallest margin {smallest:.3}",
                prompt.name,
                tokens.len()
            ));
            assert_eq!(tokens, prompt.greedy, "{name} {}", prompt.name);
        }
    }
}

/// `nmse_native_all` is llama.cpp's quantized run against its exact run over all logits of all positions. The exact
/// logits are too large to store; ours stand in for them, which the tests above hold to 1e-5 of them.
#[test]
fn fast_is_at_least_as_close_as_llama_cpp_on_the_blocks() {
    for (name, path, prompts) in models() {
        let (exact, fast) = (
            flex(&path, Arithmetic::Exact),
            flex(&path, Arithmetic::Fast),
        );
        for prompt in &prompts {
            let reference = all_logits(&exact, &prompt.tokens);
            let logits = all_logits(&fast, &prompt.tokens);
            let all = nmse(&logits, &reference);
            let top = nmse(&prompt.at_top(&logits), &prompt.top_logits);
            let native = prompt.nmse_native;
            let other = prompt.other_choices(&logits).len();
            say(&format!(
                "{name} fast on flex {}: NMSE {all:.2e}, llama.cpp {native:.2e}; {top:.2e} at the top 64, {other} other choices",
                prompt.name
            ));
            assert!(
                all <= native,
                "{name} {}: {all:.2e} is over llama.cpp's {native:.2e}",
                prompt.name
            );
        }
    }
}

/// Decoding goes through other kernels than a prompt does, with the same arithmetic: the same tokens one by one.
#[test]
fn fast_decoding_is_as_close_as_the_prompt() {
    for (name, path, prompts) in models() {
        let (exact, fast) = (
            flex(&path, Arithmetic::Exact),
            flex(&path, Arithmetic::Fast),
        );
        let prompt = &prompts[0];
        let tokens = &prompt.tokens[..16.min(prompt.tokens.len())];
        let reference = all_logits(&exact, tokens);
        let whole = nmse(&all_logits(&fast, tokens), &reference);
        let mut session = fast.session(&SessionOptions::default());
        let logits: Vec<f32> = tokens
            .iter()
            .flat_map(|&token| session.feed(&[token]).unwrap())
            .collect();
        let single = nmse(&logits, &reference);
        say(&format!(
            "{name} fast on flex {}: NMSE {single:.2e} token by token, {whole:.2e} at once",
            prompt.name
        ));
        assert!(
            single <= whole * 1.5,
            "{name}: {single:.2e} over {whole:.2e}"
        );
    }
}

/// Every other device on a short prompt: software GPUs take seconds a token.
#[test]
fn exact_on_other_devices_agrees_on_a_short_prompt() {
    for (name, path, prompts) in models() {
        let reference = flex(&path, Arithmetic::Exact);
        let prompt = prompts
            .iter()
            .find(|p| p.tokens.len() >= 16)
            .expect("a prompt of 16 tokens");
        let tokens = &prompt.tokens[..16];
        let want = all_logits(&reference, tokens);
        let vocab = reference.model().vocab_size();
        // The stored rows first: what is compared with must itself be llama.cpp's.
        let rows = prompt
            .top_ids
            .chunks(prompt.width())
            .take(16)
            .zip(want.chunks(vocab));
        let stored: Vec<f32> = rows
            .flat_map(|(ids, row)| ids.iter().map(|&id| row[id as usize]))
            .collect();
        assert!(nmse(&stored, &prompt.top_logits[..stored.len()]) <= 1e-5);
        for (device_name, device) in devices() {
            if device_name == "flex" {
                continue;
            }
            let start = std::time::Instant::now();
            let model = load(&path, &device, Arithmetic::Exact).unwrap();
            let logits = all_logits(&model, tokens);
            let e = nmse(&logits, &want);
            say(&format!(
                "{name} exact on {device_name}, 16 tokens: NMSE {e:.1e} in {:.1} s",
                start.elapsed().as_secs_f64()
            ));
            assert!(e <= 1e-4, "{name} on {device_name}");
        }
    }
}
