//! Tiny models of each family against llama.cpp, on every device.
//!
//! `BURN_GGUF_DEVICES=flex,vulkan` picks the devices; without it every one compiled in runs, and those that this
//! machine lacks are named as skipped.

mod common;

use std::path::Path;

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf_models::layers::CacheDtype;
use burn_gguf_models::{Prompt, SessionOptions};
use common::{Npy, argmax, case, chunked, devices, load, nmse, say};

/// File and outputs: what every device must reproduce with `Exact`.
const EXACT: &[(&str, &str)] = &[
    ("qwen2/model-bf16.gguf", "qwen2/text"),
    ("qwen3/model-f32.gguf", "qwen3/text"),
    ("gemma3/model-bf16.gguf", "gemma3/text"),
    ("gemma4-e/model-bf16.gguf", "gemma4-e/text"),
    ("gemma4/model-bf16.gguf", "gemma4/text"),
    ("gemma4uv/model-bf16.gguf", "gemma4uv/text"),
    ("qwen3vl/model-bf16.gguf", "qwen3vl/text"),
    ("qwen3moe/model-bf16.gguf", "qwen3moe/text"),
    ("qwen3moe/model-q4_k_m.gguf", "qwen3moe/text-q4_k_m"),
    ("qwen3vlmoe/model-bf16.gguf", "qwen3vlmoe/text"),
    ("qwen35/model-bf16.gguf", "qwen35/text"),
    ("qwen35/model-q4_k_m.gguf", "qwen35/text-q4_k_m"),
    ("qwen35/model-q6_k.gguf", "qwen35/text-q6_k"),
    ("qwen35moe/model-bf16.gguf", "qwen35moe/text"),
    ("qwen3next/model-bf16.gguf", "qwen3next/text"),
    ("minimax-m2/model-bf16.gguf", "minimax-m2/text"),
    ("minimax-m3/model-bf16.gguf", "minimax-m3/text"),
    ("muse-glimmer/model-bf16.gguf", "muse-glimmer/text"),
    ("qwen3/model-q4_k_m.gguf", "qwen3/text-q4_k_m"),
    ("qwen3/model-q4_0.gguf", "qwen3/text-q4_0"),
    ("qwen3/model-q8_0.gguf", "qwen3/text-q8_0"),
    ("qwen3/model-q6_k.gguf", "qwen3/text-q6_k"),
];

/// Above the rounding of f32 sums in another order (1e-12), far below any wrong detail (1e-4 and more).
const NMSE: f64 = 1e-6;

struct Expected {
    tokens: Vec<u32>,
    logits: Vec<f32>,
    decode_tokens: Vec<u32>,
    decode_logits: Vec<f32>,
}

impl Expected {
    fn read(dir: &Path) -> Self {
        let npy = |name: &str| Npy::read(&dir.join(name));
        Self {
            tokens: npy("tokens.npy").ids(),
            logits: npy("logits.npy").floats(),
            decode_tokens: npy("decode_tokens.npy").ids(),
            decode_logits: npy("decode_logits.npy").floats(),
        }
    }
}

/// The greedy tokens after `last` and the logits after each.
fn decode(
    session: &mut burn_gguf_models::Session<'_>,
    last: &[f32],
    steps: usize,
) -> (Vec<u32>, Vec<f32>) {
    let (mut tokens, mut all) = (Vec::new(), Vec::new());
    let mut token = argmax(last);
    for _ in 0..steps {
        tokens.push(token);
        let logits = session.feed(&[token]).unwrap();
        token = argmax(&logits);
        all.extend(logits);
    }
    (tokens, all)
}

fn each_case(run: impl Fn(&str, &Path, &Expected)) {
    for (file, dir) in EXACT {
        if let (Some(path), Some(dir)) = (case(file), case(dir)) {
            run(file, &path, &Expected::read(&dir));
        }
    }
}

fn each_device(mut run: impl FnMut(&str, &Device)) {
    let devices = devices();
    assert!(!devices.is_empty(), "no device to run on");
    for (name, device) in &devices {
        run(name, device);
    }
}

#[test]
fn exact_logits_and_greedy_tokens_are_llama_cpps() {
    each_case(|file, path, want| {
        each_device(|device_name, device| {
            let model = load(path, device, Arithmetic::Exact).unwrap();
            let mut session = model.session(&SessionOptions::default());
            let logits = session.feed_all(&want.tokens).unwrap();
            let prompt = nmse(&logits, &want.logits);
            let last = &logits[logits.len() - model.model().vocab_size()..];
            let (tokens, after) = decode(&mut session, last, want.decode_tokens.len());
            assert_eq!(tokens, want.decode_tokens, "{file} on {device_name}");
            let steps = nmse(&after, &want.decode_logits);
            say(&format!(
                "{file} exact on {device_name}: NMSE {prompt:.1e}, decoding {steps:.1e}"
            ));
            assert!(prompt <= NMSE && steps <= NMSE, "{file} on {device_name}");
            assert!(
                model.report().unused.is_empty(),
                "{file}: unused {:?}",
                model.report().unused
            );
        });
    });
}

#[test]
fn chunks_do_not_change_the_logits() {
    each_case(|file, path, want| {
        each_device(|device_name, device| {
            let model = load(path, device, Arithmetic::Exact).unwrap();
            for chunk in [1, 7, 32, usize::MAX] {
                let logits = model
                    .session(&chunked(chunk))
                    .feed_all(&want.tokens)
                    .unwrap();
                let e = nmse(&logits, &want.logits);
                assert!(
                    e <= NMSE,
                    "{file} on {device_name} in chunks of {chunk}: NMSE {e:.1e}"
                );
                let last = model.session(&chunked(chunk)).feed(&want.tokens).unwrap();
                let expected = &want.logits[want.logits.len() - last.len()..];
                let e = nmse(&last, expected);
                assert!(
                    e <= NMSE,
                    "{file} on {device_name}, last logits in chunks of {chunk}: NMSE {e:.1e}"
                );
            }
        });
    });
}

#[test]
fn a_session_cut_back_goes_on_as_if_the_rest_had_never_been_read() {
    each_case(|file, path, want| {
        let device = Device::flex();
        let model = load(path, &device, Arithmetic::Exact).unwrap();
        let mut session = model.session(&SessionOptions::default());
        session.feed(&want.tokens[..10]).unwrap();
        session.feed(&[5, 6, 7, 8]).unwrap();
        // Recurrences cannot go back and start again.
        let kept = session.cache_mut().truncate(10);
        let recurrent = file.starts_with("qwen35") || file.starts_with("qwen3next");
        assert_eq!(kept, if recurrent { 0 } else { 10 }, "{file}");
        assert_eq!(session.cache().len(), kept);
        let logits = session.feed_all(&want.tokens[kept..]).unwrap();
        let e = nmse(&logits, &want.logits[kept * model.model().vocab_size()..]);
        assert!(e <= NMSE, "{file}: NMSE {e:.1e}");
    });
}

#[test]
fn a_saved_state_goes_on_on_every_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.gguf");
    each_case(|file, model_path, want| {
        let read = want.tokens.len() - 3;
        each_device(|from, device| {
            let model = load(model_path, device, Arithmetic::Exact).unwrap();
            let mut session = model.session(&chunked(7));
            session.feed(&want.tokens[..read]).unwrap();
            session.save_state(&path).unwrap();
            each_device(|to, device| {
                let model = load(model_path, device, Arithmetic::Exact).unwrap();
                let mut session = model.session(&SessionOptions::default());
                session.feed(&[1, 2, 3]).unwrap();
                assert_eq!(session.load_state(&path).unwrap(), read);
                assert_eq!(session.history().len(), read);
                let logits = session.feed_all(&want.tokens[read..]).unwrap();
                let vocab = model.model().vocab_size();
                let e = nmse(&logits, &want.logits[read * vocab..]);
                assert!(e <= NMSE, "{file} from {from} to {to}: NMSE {e:.1e}");
                let last = &logits[logits.len() - vocab..];
                let (tokens, _) = decode(&mut session, last, want.decode_tokens.len());
                assert_eq!(tokens, want.decode_tokens, "{file} from {from} to {to}");
            });
        });
    });
}

#[test]
fn forks_go_on_apart() {
    each_case(|file, path, want| {
        each_device(|name, device| {
            let model = load(path, device, Arithmetic::Exact).unwrap();
            let vocab = model.model().vocab_size();
            let mut session = model.session(&SessionOptions::default());
            session.feed(&want.tokens[..20]).unwrap();
            let mut other = session.fork();
            other.feed(&[9, 8, 7, 6, 5]).unwrap();
            let logits = session.feed_all(&want.tokens[20..]).unwrap();
            let e = nmse(&logits, &want.logits[20 * vocab..]);
            assert!(e <= NMSE, "{file} on {name}: NMSE {e:.1e}");
            // The fork has not seen what the first went on with.
            let mut alone = model.session(&SessionOptions::default());
            alone.feed(&want.tokens[..20]).unwrap();
            let expected = alone.feed_all(&[9, 8, 7, 6, 5, 4]).unwrap();
            let e = nmse(&other.feed(&[4]).unwrap(), &expected[5 * vocab..]);
            assert!(e <= NMSE, "the fork of {file} on {name}: NMSE {e:.1e}");
        });
    });
}

/// Templates leave out of a turn what they showed before the next (a thought, the opening of an answer).
#[test]
fn a_conversation_whose_end_changes_keeps_its_beginning() {
    each_case(|file, path, want| {
        let model = load(path, &Device::flex(), Arithmetic::Exact).unwrap();
        let vocab = model.model().vocab_size();
        let mut tokens = want.tokens.repeat(4);
        let mut session = model.session(&chunked(50));
        let (_, shared) = session.feed_prompt(&Prompt::from(&tokens)).unwrap();
        assert_eq!(shared, 0);
        for token in [3, 4, 5, 6, 7] {
            session.feed(&[token]).unwrap();
        }
        let read = tokens.len();
        tokens.truncate(read - 5);
        tokens.extend([9, 8, 7]);
        let (logits, _) = session.feed_prompt(&Prompt::from(&tokens)).unwrap();
        let expected = model.session(&chunked(1000)).feed_all(&tokens).unwrap();
        let e = nmse(&logits, &expected[expected.len() - vocab..]);
        assert!(e <= NMSE, "{file}: NMSE {e:.1e}");
        // The third turn shares all of the second.
        let kept = read - 8;
        tokens.truncate(kept);
        assert_eq!(session.cache_mut().truncate(kept), kept, "{file}");
        let (logits, _) = session.feed_prompt(&Prompt::from(&tokens)).unwrap();
        let e = nmse(&logits, &expected[(kept - 1) * vocab..kept * vocab]);
        assert!(e <= NMSE, "{file}: NMSE {e:.1e}");
    });
}

#[test]
fn a_half_precision_cache_stays_close() {
    each_case(|file, path, want| {
        let model = load(path, &Device::flex(), Arithmetic::Exact).unwrap();
        let options = SessionOptions {
            cache_dtype: CacheDtype::F16,
            ..SessionOptions::default()
        };
        let e = nmse(
            &model.session(&options).feed_all(&want.tokens).unwrap(),
            &want.logits,
        );
        // Keys and values keep 11 bits: (2^-12)^2 = 6e-8 at most before attention averages them. Norms make the queries of
        // Muse-Glimmer and Gemma 4 long by design, which sharpens the weights and with them the error.
        let limit = match file.split('/').next() {
            Some("muse-glimmer") => 1e-5,
            // Its scores are not scaled either, and experts are chosen by what comes of it.
            Some("gemma4" | "gemma4-e" | "gemma4uv") => 1e-4,
            _ => 1e-6,
        };
        assert!(e <= limit && e > 0.0, "{file}: NMSE {e:.1e}");
    });
}

/// llama.cpp's own run on the blocks is the bar. Both round activations to 8 bits, so on one short text it is chance
/// which of the two is nearer to the exact logits: 10 % more is allowed on a file, none on the sum of all.
#[test]
fn fast_is_at_least_as_close_as_llama_cpp_on_the_blocks() {
    const CHANCE: f64 = 1.1;
    let mut failures = Vec::new();
    let mut sums: Vec<(String, f64, f64)> = Vec::new();
    for ty in ["q4_0", "q8_0", "q6_k", "q4_k_m"] {
        let file = format!("qwen3/model-{ty}.gguf");
        let (Some(path), Some(dir)) = (case(&file), case(&format!("qwen3/text-{ty}"))) else {
            continue;
        };
        let want = Expected::read(&dir);
        let native = Npy::read(&dir.join("native_logits.npy")).floats();
        let native = nmse(&native, &want.logits);
        each_device(|device_name, device| {
            let model = load(&path, device, Arithmetic::Fast).unwrap();
            let mut session = model.session(&SessionOptions::default());
            let e = nmse(&session.feed_all(&want.tokens).unwrap(), &want.logits);
            say(&format!(
                "{file} fast on {device_name}: NMSE {e:.2e}, llama.cpp {native:.2e}"
            ));
            if e > native * CHANCE {
                failures.push(format!(
                    "{file} on {device_name}: {e:.2e} over {native:.2e}"
                ));
            }
            match sums.iter_mut().find(|(name, ..)| name == device_name) {
                Some((_, ours, theirs)) => (*ours, *theirs) = (*ours + e, *theirs + native),
                None => sums.push((device_name.to_string(), e, native)),
            }
        });
    }
    assert!(!sums.is_empty(), "the q4_k_m fixture is in the repository");
    for (device, ours, theirs) in sums {
        if ours > theirs {
            failures.push(format!(
                "all files on {device}: {ours:.2e} over {theirs:.2e}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
