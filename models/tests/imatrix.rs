//! Importance matrices from a model's own forward pass.

mod common;

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf::quantize::ImportanceMatrix;
use burn_gguf_models::{ImatrixOptions, ModelError};
use common::{case, load};

#[test]
fn every_layer_is_measured_and_the_file_reads_back() {
    let path = case("qwen3/model-f32.gguf").expect("the fixture is in the repository");
    let model = load(&path, &Device::flex(), Arithmetic::Exact).unwrap();
    let options = ImatrixOptions {
        chunk: 16,
        ..ImatrixOptions::default()
    };
    let tokens: Vec<u32> = (0..40).map(|i| (i * 7 + 3) % 50).collect();
    let mut seen = Vec::new();
    let matrix = model
        .collect_imatrix(&tokens, &options, |done, due| seen.push((done, due)))
        .unwrap();
    assert_eq!(seen, [(1, 2), (2, 2)]);
    let weights = |name: &str| &matrix.entries[name];
    for (name, entry) in &matrix.entries {
        assert!(name.starts_with("blk."), "{name}");
        assert_eq!(entry.counts, [32], "{name}");
        assert!(entry.sums.iter().all(|&v| v.is_finite() && v >= 0.0));
        assert!(entry.sums.iter().sum::<f64>() > 0.0, "{name}");
    }
    // Layers that read the same input have the same sums.
    let [q, k, v] = ["q", "k", "v"].map(|part| weights(&format!("blk.0.attn_{part}.weight")));
    assert!(q == k && q == v);
    assert_ne!(q, weights("blk.1.attn_q.weight"));
    assert_eq!(
        weights("blk.1.ffn_gate.weight"),
        weights("blk.1.ffn_up.weight")
    );

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("imatrix.gguf");
    matrix.write(&file, "a text").unwrap();
    let read = ImportanceMatrix::open(&file).unwrap();
    let values = read.get("blk.0.attn_q.weight").expect("it was written");
    assert_eq!(values.len(), q.sums.len());
    for (value, sum) in values.iter().zip(&q.sums) {
        let mean = *sum as f32 / 32.0;
        assert!((value - mean).abs() <= 1e-6 * mean, "{value} is not {mean}");
    }
    assert_eq!(read.len(), matrix.entries.len());

    let error = model
        .collect_imatrix(&tokens[..9], &options, |_, _| {})
        .unwrap_err();
    assert!(matches!(
        error,
        ModelError::TooFewTokens {
            tokens: 9,
            chunk: 16
        }
    ));
}
