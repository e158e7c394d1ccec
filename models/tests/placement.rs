//! Models spread over devices compute what they compute on one.

mod common;

use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;
use burn_gguf_models::vision::discover::VisionSource;
use burn_gguf_models::{AutoModel, LoadOptions, PlacementOptions, SessionOptions};
use common::{Npy, argmax, case, devices, nmse, say};

/// As in `cases`.
const NMSE: f64 = 1e-6;

const CASES: &[&str] = &[
    "qwen3moe",
    "qwen35",
    "qwen35moe",
    "gemma3",
    "gemma4",
    "gemma4-e",
    "minimax-m3",
    "muse-glimmer",
];

fn check(name: &str, what: &str, options: impl Fn() -> LoadOptions, device: &burn::tensor::Device) {
    let (Some(path), Some(dir)) = (
        case(&format!("{name}/model-bf16.gguf")),
        case(&format!("{name}/text")),
    ) else {
        return;
    };
    let npy = |file: &str| Npy::read(&dir.join(file));
    let original = dir.join("hf_logits.npy");
    let want = match original.exists() {
        true => Npy::read(&original).floats(),
        false => npy("logits.npy").floats(),
    };
    let model = AutoModel::load(Gguf::open(path).unwrap(), device, options()).unwrap();
    let mut session = model.session(&SessionOptions::default());
    let logits = session.feed_all(&npy("tokens.npy").ids()).unwrap();
    let e = nmse(&logits, &want);
    say(&format!("{name}, {what}: NMSE {e:.1e}"));
    assert!(e <= NMSE, "{name}, {what}: NMSE {e:.1e}");
    // One token after the other goes through the same layers.
    let mut token = argmax(&logits[logits.len() - model.model().vocab_size()..]);
    for want in npy("decode_tokens.npy").ids() {
        assert_eq!(token, want, "{name}, {what}");
        token = argmax(&session.feed(&[token]).unwrap());
    }
}

fn options(placement: PlacementOptions) -> LoadOptions {
    let mut options = LoadOptions {
        arithmetic: Arithmetic::Exact,
        placement,
        ..LoadOptions::default()
    };
    options.vision.source = VisionSource::Off;
    options
}

#[test]
fn layers_are_shared_among_devices() {
    let devices = devices();
    if devices.len() < 2 {
        say("skipped: layers over several devices need two");
        return;
    }
    for (i, (first, device)) in devices.iter().enumerate() {
        let (second, other) = &devices[(i + 1) % devices.len()];
        let placement = || PlacementOptions {
            more: vec![other.clone()],
            ..PlacementOptions::default()
        };
        for name in CASES {
            check(
                name,
                &format!("{first}, {second}"),
                || options(placement()),
                device,
            );
        }
    }
}

#[test]
fn experts_have_a_device_of_their_own() {
    let devices = devices();
    if devices.len() < 2 {
        say("skipped: experts elsewhere need two devices");
        return;
    }
    for (i, (first, device)) in devices.iter().enumerate() {
        let (second, other) = &devices[(i + 1) % devices.len()];
        let placement = || PlacementOptions {
            experts: Some(other.clone()),
            ..PlacementOptions::default()
        };
        for name in [
            "qwen3moe",
            "qwen35moe",
            "qwen3next",
            "gemma4",
            "minimax-m2",
            "minimax-m3",
        ] {
            let what = format!("{first}, experts on {second}");
            check(name, &what, || options(placement()), device);
        }
    }
}
