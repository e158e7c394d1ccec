//! The binary as people run it: exit codes, standard output and standard error.

mod demo;
mod devices;
mod matrix;
mod quantize;
mod state;
mod vision;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The binary without any of the machine's settings for tests.
fn burn_gguf(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_burn-gguf"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("standard output is UTF-8")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("standard error is UTF-8")
}

/// Standard output of a run that must succeed.
fn ok(args: &[&str]) -> String {
    let output = burn_gguf(args);
    assert!(output.status.success(), "{args:?}: {}", err(&output));
    out(&output)
}

/// Standard error of a run that must fail with `code`, having printed nothing else.
fn fails(args: &[&str], code: i32) -> String {
    let output = burn_gguf(args);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{args:?}: {}{}",
        out(&output),
        err(&output)
    );
    assert_eq!(out(&output), "", "{args:?}");
    let text = err(&output);
    assert!(!text.contains("panicked"), "{args:?}: {text}");
    text
}

fn fixture(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures")
        .join(path);
    assert!(path.exists(), "{} is in the repository", path.display());
    path.to_str().unwrap().to_string()
}

fn model() -> String {
    fixture("qwen3/model-q4_k_m.gguf")
}

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Header text and data of a `.npy` file.
fn npy(path: &Path) -> (String, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{}", path.display());
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(start.is_multiple_of(64), "{}", path.display());
    (
        String::from_utf8(bytes[10..start].to_vec()).unwrap(),
        bytes[start..].to_vec(),
    )
}

/// The dimensions in a header.
fn shape(header: &str) -> Vec<usize> {
    let text = header
        .split("'shape': (")
        .nth(1)
        .unwrap()
        .split(')')
        .next()
        .unwrap();
    text.split(',')
        .filter_map(|n| n.trim().parse().ok())
        .collect()
}

fn floats(path: &Path) -> Vec<f32> {
    npy(path)
        .1
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

fn nmse(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |v: f64| v * v;
    let error: f64 = got
        .iter()
        .zip(want)
        .map(|(&g, &w)| square(f64::from(g) - f64::from(w)))
        .sum();
    error / want.iter().map(|&w| square(f64::from(w))).sum::<f64>()
}

#[test]
fn help_and_version() {
    let help = ok(&["--help"]);
    for command in [
        "run", "inspect", "devices", "bench", "logits", "tokenize", "tensor",
    ] {
        assert!(help.contains(command), "{help}");
    }
    assert!(ok(&["run", "--help"]).contains("--arithmetic"));
    assert_eq!(
        ok(&["--version"]).trim(),
        format!("burn-gguf {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn bad_flags_exit_with_2() {
    let model = model();
    for args in [
        &[][..],
        &["jump"],
        &["run"],
        &["run", &model, "--no-such-flag"],
        &["run", &model, "--temp", "warm"],
        &["run", &model, "--arithmetic", "quick"],
        &["logits", &model, "--out", "x"],
        &[
            "logits", &model, "--out", "x", "--tokens", "1", "--prompt", "a",
        ],
        &["tokenize", &model],
        &["bench", &model, "-p", "-1"],
    ] {
        let text = fails(args, 2);
        assert!(
            text.contains("Usage") || text.contains("error:"),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn bad_values_exit_with_1_and_say_why() {
    let model = model();
    let out = folder("bad-values");
    let out = out.to_str().unwrap();
    for (args, part) in [
        (&["run", &model, "-p", "a", "--temp=-1"][..], "temperature"),
        (&["run", &model, "-p", "a", "--top-p", "1.5"], "top"),
        (&["run", &model, "--raw"], "-p"),
        (&["run", &model, "--raw", "-p", "a", "--ctx", "0"], "--ctx"),
        (
            &["run", &model, "--raw", "-p", "a", "--chunk", "0"],
            "--chunk",
        ),
        (&["-t", "0", "devices"], "--threads"),
        (&["bench", &model, "-r", "0"], "--repetitions"),
        (&["bench", &model, "-p", "100000"], "context"),
        (
            &["logits", &model, "--tokens", "99999", "--out", out],
            "99999",
        ),
        (&["tokenize", &model, "--decode", "99999"], "99999"),
        (
            &["tokenize", &model, "--file", "no/such/text"],
            "no/such/text",
        ),
        (
            &["tensor", &model, "no.such.tensor", "--out", "x.npy"],
            "no.such.tensor",
        ),
    ] {
        let text = fails(args, 1);
        assert!(
            text.starts_with("error: ") && text.contains(part),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn bad_files_exit_with_1_and_are_named() {
    let foreign = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let foreign = foreign.to_str().unwrap();
    let missing = "no-such-folder/no-such-file.gguf";
    let out = folder("bad-files");
    let out = out.to_str().unwrap();
    for path in [missing, foreign] {
        for args in [
            &["run", path, "-p", "a"][..],
            &["inspect", path],
            &["bench", path],
            &["logits", path, "--tokens", "1", "--out", out],
            &["tokenize", path, "a"],
            &["tensor", path, "a", "--out", "x.npy"],
        ] {
            let text = fails(args, 1);
            assert!(
                text.starts_with("error: ") && text.contains(path),
                "{args:?}: {text}"
            );
        }
    }
}

#[test]
fn bad_devices_exit_with_1_and_list_the_good_ones() {
    let model = model();
    for device in ["tpu", "flex:x", "flex:3", "vulkan:77777777777777777777777"] {
        let text = fails(&["run", &model, "--raw", "-p", "a", "--device", device], 1);
        assert!(
            text.starts_with("error: ") && text.contains(device),
            "{device}: {text}"
        );
    }
    assert!(fails(&["run", &model, "--raw", "-p", "a", "--device", "tpu"], 1).contains("flex"));
}

#[test]
fn devices_names_the_default() {
    let text = ok(&["devices"]);
    assert!(
        text.lines()
            .any(|l| l.starts_with("flex") && l.contains("available (default)")),
        "{text}"
    );
}

#[test]
fn inspect_as_json() {
    let json: Value = serde_json::from_str(&ok(&["inspect", &model(), "--json"])).unwrap();
    assert_eq!(json["architecture"], "qwen3");
    assert_eq!(json["runs"], true);
    assert_eq!(json["version"], 3);
    assert_eq!(json["metadata"]["general.architecture"], "qwen3");
    assert_eq!(
        json["size"].as_u64().unwrap(),
        std::fs::metadata(model()).unwrap().len()
    );
    let tensors = json["tensors"].as_array().unwrap();
    let embedding = tensors
        .iter()
        .find(|t| t["name"] == "token_embd.weight")
        .unwrap();
    assert_eq!(embedding["shape"].as_array().unwrap().len(), 2);
    let count: u64 = json["types"]
        .as_object()
        .unwrap()
        .values()
        .map(|t| t["tensors"].as_u64().unwrap())
        .sum();
    assert_eq!(count, tensors.len() as u64);
    assert!(json["types"]["Q4_K"]["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn inspect_as_text() {
    let text = ok(&["inspect", &model()]);
    for part in [
        "general.architecture = \"qwen3\"",
        "token_embd.weight",
        "Q4_K",
        "runs: yes",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn text_survives_tokenizing() {
    let model = model();
    for text in [
        "the river is in the fog",
        "über 3.14 \u{1f600} «x»",
        "a\n\n  b\t",
    ] {
        let ids = ok(&["tokenize", &model, text]);
        let ids: Vec<u32> = serde_json::from_str(&ids).unwrap_or_else(|e| panic!("{e}: {ids}"));
        let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
        let back = ok(&["tokenize", &model, "--decode", &ids.join(",")]);
        assert_eq!(back.strip_suffix('\n').unwrap(), text);
    }
    let file = folder("tokenize").join("text.txt");
    std::fs::write(&file, "the lazy dog").unwrap();
    assert_eq!(
        ok(&["tokenize", &model, "--file", file.to_str().unwrap()]),
        ok(&["tokenize", &model, "the lazy dog"])
    );
}

#[test]
fn logits_are_the_fixtures() {
    let dir = folder("logits");
    let tokens = fixture("qwen3/text-q4_k_m/tokens.npy");
    let args = [
        "logits",
        &model(),
        "--tokens-file",
        &tokens,
        "--decode",
        "8",
        "--arithmetic",
        "exact",
        "--device",
        "flex",
    ];
    ok(&[&args[..], &["--out", dir.to_str().unwrap()]].concat());
    for name in ["tokens.npy", "decode_tokens.npy"] {
        let want = npy(Path::new(&fixture(&format!("qwen3/text-q4_k_m/{name}"))));
        let got = npy(&dir.join(name));
        assert_eq!(got.1, want.1, "{name}");
        assert_eq!(shape(&got.0), shape(&want.0), "{name}");
    }
    for name in ["logits.npy", "decode_logits.npy"] {
        let want = fixture(&format!("qwen3/text-q4_k_m/{name}"));
        let e = nmse(&floats(&dir.join(name)), &floats(Path::new(&want)));
        assert!(e <= 1e-6, "{name}: NMSE {e:.1e}");
        assert_eq!(
            shape(&npy(&dir.join(name)).0),
            shape(&npy(Path::new(&want)).0),
            "{name}"
        );
    }
    // The same ids on the command line, without decoding.
    let again = folder("logits-again");
    ok(&[
        "logits",
        &model(),
        "--tokens",
        "1,2,3",
        "--chunk",
        "2",
        "--out",
        again.to_str().unwrap(),
    ]);
    assert!(!again.join("decode_tokens.npy").exists());
    assert_eq!(
        npy(&again.join("tokens.npy")).1,
        [1i32, 2, 3].map(i32::to_le_bytes).concat()
    );
}

#[test]
fn tensor_writes_ggmls_values() {
    let dir = folder("tensor");
    for ty in ["q4_k", "q6_k", "q8_0"] {
        let file = dir.join(format!("{ty}.npy"));
        ok(&[
            "tensor",
            &fixture(&format!("blocks/{ty}.gguf")),
            "random",
            "--out",
            file.to_str().unwrap(),
        ]);
        let (header, data) = npy(&file);
        assert!(header.contains("(2, 1024)"), "{header}");
        assert_eq!(
            data,
            npy(Path::new(&fixture(&format!("blocks/{ty}.random.npy")))).1,
            "{ty}"
        );
    }
}

#[test]
fn bench_as_json() {
    let json: Value = serde_json::from_str(&ok(&[
        "bench",
        &model(),
        "-p",
        "16",
        "-n",
        "4",
        "-d",
        "8",
        "-r",
        "2",
        "-t",
        "1",
        "--json",
    ]))
    .unwrap();
    let tests = json.as_array().unwrap();
    assert_eq!(tests.len(), 2);
    for (test, (prompt, generated)) in tests.iter().zip([(16, 0), (0, 4)]) {
        assert_eq!(test["n_prompt"], prompt);
        assert_eq!(test["n_gen"], generated);
        assert_eq!(test["n_depth"], 8);
        assert!(test["tokens_per_second"].as_f64().unwrap() > 0.0);
        assert!(test["test"].is_string());
    }
    let only: Value = serde_json::from_str(&ok(&[
        "bench",
        &model(),
        "-p",
        "0",
        "-n",
        "2",
        "-r",
        "1",
        "--json",
    ]))
    .unwrap();
    assert_eq!(only.as_array().unwrap().len(), 1);
}

#[test]
fn run_is_greedy_at_temperature_zero() {
    let model = model();
    let args = [
        "run",
        &model,
        "--raw",
        "-p",
        "the river",
        "-n",
        "12",
        "--temp",
        "0",
    ];
    let first = burn_gguf(&args);
    assert!(first.status.success(), "{}", err(&first));
    assert!(
        out(&first).trim_end().len() > 1,
        "text came: {:?}",
        out(&first)
    );
    assert!(
        err(&first).contains("seed"),
        "statistics on standard error: {}",
        err(&first)
    );
    assert_eq!(ok(&args), out(&first), "the same again");
    let quiet = burn_gguf(&[&args[..], &["-q"]].concat());
    assert_eq!((out(&quiet), err(&quiet)), (out(&first), String::new()));
    // What the text should be: the most likely tokens, fed back.
    let dir = folder("run");
    ok(&[
        "logits",
        &model,
        "--prompt",
        "the river",
        "--decode",
        "12",
        "--out",
        dir.to_str().unwrap(),
    ]);
    // Control tokens are no text.
    let json: Value = serde_json::from_str(&ok(&["inspect", &model, "--json"])).unwrap();
    let types = json["metadata"]["tokenizer.ggml.token_type"]
        .as_array()
        .unwrap();
    let ids: Vec<String> = npy(&dir.join("decode_tokens.npy"))
        .1
        .chunks_exact(4)
        .map(|b| i32::from_le_bytes(b.try_into().unwrap()))
        .filter(|&id| types[id as usize] != 3)
        .map(|id| id.to_string())
        .collect();
    assert_eq!(
        ok(&["tokenize", &model, "--decode", &ids.join(",")]),
        out(&first)
    );
}

#[test]
fn seeds_repeat() {
    let model = model();
    let run = |seed| {
        ok(&[
            "run", &model, "--raw", "-p", "the", "-n", "16", "--temp", "2", "--top-k", "0",
            "--top-p", "1", "--min-p", "0", "--seed", seed,
        ])
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn chat_needs_a_template() {
    let text = fails(&["run", &model(), "-p", "hello"], 1);
    assert!(
        text.contains("template") && text.contains("--raw"),
        "{text}"
    );
}

#[test]
fn a_real_model_answers() {
    let dir = std::env::var_os("BURN_GGUF_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../models-cache"),
        PathBuf::from,
    );
    let path = dir.join("qwen2.5-coder-0.5b-q4_k_m.gguf");
    if !path.is_file() {
        println!("skipped: no {} (tests/models/fetch)", path.display());
        return;
    }
    let path = path.to_str().unwrap();
    let answer = ok(&[
        "run",
        path,
        "-p",
        "What is the capital of France? Answer in one word.",
        "--temp",
        "0",
        "-n",
        "8",
        "-q",
    ]);
    assert!(answer.contains("Paris"), "{answer}");
    // A conversation on standard input; the second answer depends on the first turn.
    let mut child = Command::new(env!("CARGO_BIN_EXE_burn-gguf"))
        .args(["run", path, "--temp", "0", "-n", "24", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"My name is Ada. Say hello.\nWhat is my name?\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert!(
        out(&output).lines().last().unwrap().contains("Ada"),
        "{}",
        out(&output)
    );
}
