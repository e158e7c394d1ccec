//! `burn-gguf quantize`.

use serde_json::Value;

use std::path::Path;

use crate::{burn_gguf, err, fails, folder, model, ok, out};

#[test]
fn quantize_writes_a_model_that_opens_and_says_what_it_did() {
    let dir = folder("quantize");
    let (out, json) = (dir.join("q8.gguf"), dir.join("report.json"));
    let (out, json) = (out.to_str().unwrap(), json.to_str().unwrap());
    let text = ok(&["quantize", &model(), out, "q8_0", "--json", json]);
    assert!(text.contains("blk.0.attn_q.weight"), "{text}");
    assert!(text.contains("bits a weight"), "{text}");
    assert!(text.contains("worst RMSE"), "{text}");
    assert!(text.contains("requantized"), "{text}");

    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["recipe"], "Q8_0");
    assert_eq!(report["dry_run"], false);
    let size = std::fs::metadata(out).unwrap().len();
    assert_eq!(report["file_bytes"], size);
    let written: Value = serde_json::from_str(&ok(&["inspect", out, "--json"])).unwrap();
    assert_eq!(written["runs"], true);
    let tensors = written["tensors"].as_array().unwrap();
    let planned = report["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), planned.len());
    for (tensor, planned) in tensors.iter().zip(planned) {
        assert_eq!(tensor["name"], planned["name"]);
        assert_eq!(tensor["type"], planned["to"], "{}", tensor["name"]);
        assert_eq!(tensor["bytes"], planned["bytes_to"]);
        assert_eq!(planned["copied"], planned["rmse"].is_null());
    }
}

#[test]
fn quantize_dry_run_writes_nothing_and_rules_apply() {
    let dir = folder("quantize-dry");
    let out = dir.join("out.gguf");
    let output = burn_gguf(&[
        "quantize",
        &model(),
        out.to_str().unwrap(),
        "Q4_K_M",
        "--rule",
        "attn_q=q8_0",
        "--rule",
        "ffn_=skip",
        "--rule",
        "nowhere=q4_0",
        "--dry-run",
    ]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(!out.exists());
    let (text, warnings) = (self::out(&output), err(&output));
    assert!(text.contains("dry run: nothing was written"), "{text}");
    let row = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        let (_, rest) = line.split_once(']').unwrap();
        let words: Vec<_> = rest.split_whitespace().collect();
        words[1].to_string()
    };
    assert_eq!(row("blk.0.attn_q.weight"), "Q8_0");
    assert_eq!(row("blk.0.ffn_up.weight"), "=");
    assert!(warnings.contains("\"nowhere\""), "{warnings}");
    assert!(warnings.contains("quantized already"), "{warnings}");
}

#[test]
fn quantize_takes_a_configuration() {
    let dir = folder("quantize-config");
    let (out, toml, json) = (dir.join("o.gguf"), dir.join("c.toml"), dir.join("c.json"));
    let out = out.to_str().unwrap();
    std::fs::write(
        &toml,
        "bits = 8\n[[dynamic]]\nregex = \"attn_v\"\nskip = true\n",
    )
    .unwrap();
    std::fs::write(
        &json,
        r#"{"bits":8,"dynamic":[{"regex":"attn_v","skip":true}]}"#,
    )
    .unwrap();
    let (toml, json) = (toml.to_str().unwrap(), json.to_str().unwrap());
    let model = model();
    let dry = |config: &str| ok(&["quantize", &model, out, "--config", config, "--dry-run"]);
    assert_eq!(dry(toml), dry(json));
    assert!(dry(toml).contains("Q8_0"));

    let args = ["quantize", &model, out, "Q4_0", "--config", toml];
    let text = fails(&args, 1);
    assert!(text.contains("Q4_0") && text.contains("q8_0"), "{text}");
    std::fs::write(toml, "bits = 3\nformat = \"q4_k_m\"\n").unwrap();
    let text = fails(&["quantize", &model, out, "--config", toml], 1);
    assert!(
        text.contains("bits = 3") && text.contains("q4_k_m"),
        "{text}"
    );
}

#[test]
fn quantize_refuses_what_it_cannot_do() {
    let dir = folder("quantize-refused");
    let copy = dir.join("model.gguf");
    std::fs::copy(model(), &copy).unwrap();
    let (copy, out) = (copy.to_str().unwrap(), dir.join("out.gguf"));
    let out = out.to_str().unwrap();
    let before = std::fs::read(copy).unwrap();

    let text = fails(&["quantize", copy, copy, "Q8_0"], 1);
    assert!(text.contains("another file"), "{text}");
    let text = fails(&["quantize", copy, out, "Q8_0", "--json", copy], 1);
    assert!(text.contains("reads or writes"), "{text}");
    let text = fails(&["quantize", copy, out, "Q4_K_X"], 1);
    assert!(text.contains("Q4_K_X") && text.contains("Q4_K_M"), "{text}");
    let text = fails(&["quantize", copy, out, "Q8_0", "--rule", "attn"], 1);
    assert!(text.contains("REGEX=TYPE"), "{text}");
    let text = fails(&["quantize", copy, out, "Q8_0", "--rule", "a(=q4_0"], 1);
    assert!(text.contains("a("), "{text}");
    let text = fails(&["quantize", copy, out, "Q8_0", "--imatrix", "nowhere"], 1);
    assert!(text.contains("nowhere"), "{text}");
    fails(&["quantize", copy, out], 2);
    assert_eq!(std::fs::read(copy).unwrap(), before);
    assert!(!Path::new(out).exists());
}

#[test]
fn nothing_that_is_no_file_is_replaced() {
    let error = fails(&["quantize", &model(), "/dev/null", "Q8_0"], 1);
    assert!(error.contains("/dev/null"), "{error}");
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

#[cfg(unix)]
#[test]
fn a_link_keeps_its_name_and_a_file_its_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let dir = folder("links");
    let (target, link) = (dir.join("target.gguf"), dir.join("link.gguf"));
    std::fs::write(&target, "old").unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&target, &link).unwrap();
    ok(&["quantize", &model(), link.to_str().unwrap(), "Q8_0"]);
    assert!(link.is_symlink());
    let metadata = std::fs::metadata(&target).unwrap();
    assert!(metadata.len() > 1000, "the target was not written");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_report_does_not_overwrite_the_model() {
    let dir = folder("json_clash");
    let out = dir.join("out.gguf");
    let out = out.to_str().unwrap();
    let error = fails(&["quantize", &model(), out, "Q8_0", "--json", out], 1);
    assert!(error.contains("reads or writes"), "{error}");
    let nowhere = dir.join("nowhere/report.json");
    let nowhere = nowhere.to_str().unwrap();
    let error = fails(&["quantize", &model(), out, "Q8_0", "--json", nowhere], 1);
    assert!(error.contains("no folder"), "{error}");
    assert!(!dir.join("out.gguf").exists());
}

#[test]
fn weights_over_the_range_of_a_type_are_refused() {
    let dir = folder("range");
    let path = dir.join("big.gguf");
    let mut values = vec![0.5f32; 256 * 4];
    values[300] = 1e38;
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut writer = burn_gguf::gguf::GgufWriter::new();
    writer.set_metadata("general.architecture", "qwen3");
    writer.tensor(
        "blk.0.ffn_up.weight",
        &[256, 4],
        burn_gguf::GgmlType::F32,
        bytes,
    );
    writer.write_file(&path).unwrap();
    let out = dir.join("out.gguf");
    for ty in ["F16", "Q8_0", "Q4_K"] {
        let args = [
            "quantize",
            path.to_str().unwrap(),
            out.to_str().unwrap(),
            ty,
            "--pure",
        ];
        let error = fails(&args, 1);
        assert!(
            error.contains("blk.0.ffn_up.weight") && error.contains("cannot hold"),
            "{error}"
        );
        assert!(!out.exists());
    }
}
