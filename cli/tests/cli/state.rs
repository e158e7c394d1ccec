//! `--prompt-cache` and `--lora`.

use burn_gguf::GgmlType;
use burn_gguf::gguf::GgufWriter;

use super::{err, fails, fixture, folder, ok};

const MODEL: &str = "qwen3/model-q4_k_m.gguf";

fn run<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let plain = [
        "run", model, "--raw", "--temp", "0", "-n", "4", "--device", "flex",
    ];
    [&plain, more].concat()
}

#[test]
fn a_prompt_is_read_once() {
    let dir = folder("state-read-once");
    let state = dir.join("state.gguf");
    let (model, state) = (fixture(MODEL), state.to_str().unwrap());
    let text = "one two three four five six";
    let args = run(&model, &["-p", text, "--prompt-cache", state]);
    let plain = ok(&run(&model, &["-p", text, "-q"]));
    let first = super::burn_gguf(&args);
    assert!(first.status.success(), "{}", err(&first));
    assert!(
        !err(&first).contains("were read already"),
        "{}",
        err(&first)
    );
    let second = super::burn_gguf(&args);
    assert!(
        err(&second).contains("were read already"),
        "{}",
        err(&second)
    );
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(String::from_utf8_lossy(&first.stdout), plain);
    // Another prompt shares what it shares.
    let other = ["-p", "one two three and more", "-q"];
    let with = [&other[..], &["--prompt-cache", state]].concat();
    assert_eq!(ok(&run(&model, &with)), ok(&run(&model, &other)));
}

#[test]
fn a_file_that_is_no_state_of_this_model_is_refused_and_kept() {
    let model = fixture(MODEL);
    let dir = folder("state-refused");
    let path = dir.join("state.gguf");
    std::fs::copy(&model, &path).unwrap();
    let state = path.to_str().unwrap();
    let text = fails(&run(&model, &["-p", "a", "--prompt-cache", state]), 1);
    assert!(text.contains("is no prompt state"), "{text}");
    assert_eq!(
        std::fs::read(&path).unwrap(),
        std::fs::read(&model).unwrap()
    );
    std::fs::write(&path, b"text").unwrap();
    let text = fails(&run(&model, &["-p", "a", "--prompt-cache", state]), 1);
    assert!(text.contains("state.gguf"), "{text}");
}

#[test]
fn an_adapter_is_applied_as_strongly_as_asked() {
    let model = fixture(MODEL);
    let gguf = burn_gguf::gguf::Gguf::open(&model).unwrap();
    let weight = gguf.require("blk.0.ffn_up.weight").unwrap();
    let [cols, rows] = [weight.shape()[0], weight.shape()[1]];
    let floats = |n: u64| -> Vec<u8> {
        let values = (0..n).map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0) * 0.5);
        values.flat_map(f32::to_le_bytes).collect()
    };
    let dir = folder("lora-scale");
    let path = dir.join("adapter.gguf");
    GgufWriter::new()
        .metadata("general.architecture", "qwen3")
        .metadata("general.type", "adapter")
        .metadata("adapter.type", "lora")
        .metadata("adapter.lora.alpha", 1.0f32)
        .tensor(
            "blk.0.ffn_up.weight.lora_a",
            &[cols, 1],
            GgmlType::F32,
            floats(cols),
        )
        .tensor(
            "blk.0.ffn_up.weight.lora_b",
            &[1, rows],
            GgmlType::F32,
            floats(rows),
        )
        .write_file(&path)
        .unwrap();
    let logits = |lora: Option<&str>| {
        let out = dir.join("out");
        let to = out.to_str().unwrap();
        let mut args = vec![
            "logits", &model, "--tokens", "1,2,3", "--out", to, "--device", "flex",
        ];
        args.extend(lora.iter().flat_map(|lora| ["--lora", lora]));
        ok(&args);
        let file = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.ends_with("logits.npy"))
            .expect("logits were written");
        std::fs::read(file).unwrap()
    };
    let file = path.to_str().unwrap();
    let (plain, none) = (logits(None), logits(Some(&format!("{file}:0"))));
    let (whole, half) = (logits(Some(file)), logits(Some(&format!("{file}:0.5"))));
    assert_ne!(plain, whole);
    assert_ne!(whole, half);
    assert_eq!(plain, none);
    // What was read with an adapter is no state of the plain model.
    let state = dir.join("state.gguf");
    let state = state.to_str().unwrap();
    let adapted = ["-p", "a b c", "-q", "--prompt-cache", state, "--lora", file];
    ok(&run(&model, &adapted));
    ok(&run(&model, &adapted));
    let text = fails(&run(&model, &adapted[..5]), 1);
    assert!(text.contains("another model"), "{text}");
    let text = fails(
        &[
            "logits",
            &model,
            "--tokens",
            "1",
            "--out",
            "x",
            "--lora",
            "absent.gguf",
        ],
        1,
    );
    assert!(text.contains("absent.gguf"), "{text}");
    let odd = format!("{file}:much");
    let text = fails(
        &[
            "logits", &model, "--tokens", "1", "--out", "x", "--lora", &odd,
        ],
        1,
    );
    assert!(text.contains("no number"), "{text}");
    assert!(ok(&["inspect", file]).contains("--lora"));
}
