//! The README's table of families is what the registry says.

mod common;

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;
use burn_gguf_models::families::families;
use burn_gguf_models::{AutoModel, LoadOptions};

const BEGIN: &str =
    "<!-- families: generated from the registry, checked by models/tests/registry.rs -->\n";
const END: &str = "<!-- end of families -->";

#[test]
fn the_readme_lists_the_registry() {
    let readme = include_str!("../../README.md");
    let table = readme
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END))
        .expect("the README has the markers of the table")
        .0;
    let mut expected =
        String::from("\n| architecture | models | beyond a plain Llama stack |\n|---|---|---|\n");
    for family in families() {
        expected += &format!(
            "| `{}` | {} | {} |\n",
            family.architecture,
            family.models,
            family.parts.join(", ")
        );
    }
    expected.push('\n');
    assert!(
        table == expected,
        "the README's table should be:\n{expected}"
    );
}

#[test]
fn a_model_knows_how_many_weights_it_has() {
    for name in ["qwen2", "qwen3moe", "gemma3", "gemma4-e"] {
        let file = match name {
            "qwen3moe" => "qwen3moe/model-q4_k_m.gguf".to_owned(),
            name => format!("{name}/model-bf16.gguf"),
        };
        let gguf = Gguf::open(common::case(&file).expect("the fixture is in the repository"));
        let gguf = gguf.unwrap();
        // The divisors of a rotation are no weights.
        let tensors = gguf.tensors().filter(|t| t.name() != "rope_freqs.weight");
        let expected: u64 = tensors.map(|t| t.n_elements()).sum();
        let model = AutoModel::load(gguf, &Device::flex(), LoadOptions::default()).unwrap();
        assert_eq!(model.model().parameters() as u64, expected, "{name}");
    }
}
