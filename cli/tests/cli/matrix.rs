//! `burn-gguf matrix`.

use serde_json::Value;

use crate::{fails, folder, ok};

#[test]
fn matrix_runs_what_is_selected_and_writes_reports() {
    let dir = folder("matrix");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let (json, html, markdown) = (path("m.json"), path("m.html"), path("m.md"));
    let text = ok(&[
        "matrix",
        "--device",
        "flex",
        "--types",
        "q8_0,F32",
        "--ops",
        "linear_exact,rms_norm",
        "--runs",
        "1",
        "--json",
        &json,
        "--html",
        &html,
        "--markdown",
        &markdown,
    ]);
    assert!(text.contains("3 cells ok, 0 failed, 0 skipped"), "{text}");
    assert!(text.contains("devices run: flex"), "{text}");
    let rows: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    for row in rows {
        assert!(
            ["linear_exact", "rms_norm"].contains(&row["op"].as_str().unwrap()),
            "{row}"
        );
        assert!(
            ["Q8_0", "F32"].contains(&row["type"].as_str().unwrap()),
            "{row}"
        );
        assert_eq!(row["device"], "flex");
        assert!(!row["shape"].as_str().unwrap().is_empty(), "{row}");
        assert_ne!(row["status"], "failed", "{row}");
    }
    let timed = rows
        .iter()
        .filter(|row| row["gb_per_s"].as_f64().is_some_and(|v| v > 0.0));
    assert_eq!(timed.count(), 2);
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("linear_exact Q8_0 on flex"));
    let table = std::fs::read_to_string(&markdown).unwrap();
    assert!(
        table.starts_with("| type | flex |\n|---|---|\n| Q8_0 | ok, "),
        "{table}"
    );
}

#[test]
fn matrix_refuses_unknown_names() {
    let error = |args: &[&str]| fails(&[&["matrix"], args].concat(), 1);
    let text = error(&["--types", "q4_9"]);
    assert!(
        text.contains("unknown type \"q4_9\"") && text.contains("Q4_K"),
        "{text}"
    );
    let text = error(&["--ops", "matmul"]);
    assert!(
        text.contains("unknown operation \"matmul\"") && text.contains("linear_fast"),
        "{text}"
    );
    let text = error(&["--device", "tpu"]);
    assert!(
        text.contains("unknown device \"tpu\"") && text.contains("flex"),
        "{text}"
    );
    let text = error(&["--types", "q4_k", "--ops", "rope", "--device", "flex"]);
    assert!(
        text.contains("rope_neox") && text.contains("Q4_K"),
        "{text}"
    );
    let missing = "/nonexistent/m.json";
    let text = error(&[
        "--device", "flex", "--types", "f32", "--ops", "rms_norm", "--json", missing,
    ]);
    assert!(text.contains(missing), "{text}");
}
