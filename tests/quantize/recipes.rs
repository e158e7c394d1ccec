//! Recipes: the type of each tensor, as `llama-quantize` chooses it (`fixtures/quantize/recipes/make.py`).

use std::collections::BTreeMap;
use std::path::Path;

use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, GgufWriter, Value};
use burn_gguf::quantize::{ImportanceMatrix, QuantSpec, QuantizeOptions, QuantizePlan, Recipe};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    metadata: BTreeMap<String, serde_json::Value>,
    /// Name, type, shape.
    tensors: Vec<(String, String, Vec<u64>)>,
    letters: BTreeMap<char, String>,
    /// Mode, recipe, a letter a tensor.
    types: BTreeMap<String, BTreeMap<String, String>>,
}

fn type_named(name: &str) -> GgmlType {
    *GgmlType::ALL
        .iter()
        .find(|ty| ty.name() == name)
        .unwrap_or_else(|| panic!("no type {name}"))
}

fn model(golden: &Golden) -> Gguf {
    let mut writer = GgufWriter::new();
    for (key, value) in &golden.metadata {
        let value = match value {
            serde_json::Value::String(text) => Value::from(text.as_str()),
            serde_json::Value::Array(list) => {
                let list: Vec<u32> = list.iter().map(|v| v.as_u64().unwrap() as u32).collect();
                Value::from(list)
            }
            number => Value::from(number.as_u64().unwrap() as u32),
        };
        writer.metadata(key, value);
    }
    for (name, ty, shape) in &golden.tensors {
        let ty = type_named(ty);
        let values: u64 = shape.iter().product();
        let bytes = values as usize / ty.block_len() * ty.block_bytes();
        writer.tensor(name, shape, ty, vec![0u8; bytes]);
    }
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

/// An importance matrix of a tensor that no model has.
fn matrix() -> ImportanceMatrix {
    let one = 1f32.to_le_bytes().to_vec();
    let bytes = GgufWriter::new()
        .metadata("general.type", "imatrix")
        .tensor("x.weight.in_sum2", &[1, 1], GgmlType::F32, one.clone())
        .tensor("x.weight.counts", &[1, 1], GgmlType::F32, one)
        .to_bytes()
        .unwrap();
    ImportanceMatrix::from_gguf(&Gguf::from_bytes(bytes).unwrap()).unwrap()
}

#[test]
fn every_recipe_gives_every_tensor_the_type_llama_cpp_gives_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quantize/recipes");
    let mut compared = 0;
    let mut differing = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let file = path.file_stem().unwrap().to_str().unwrap();
        let golden: Golden =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let gguf = model(&golden);
        for (mode, recipes) in &golden.types {
            for (recipe, letters) in recipes {
                let mut options = QuantizeOptions::new(recipe.parse().unwrap());
                options.pure = mode == "pure";
                options.importance = (mode == "imatrix").then(matrix);
                let plan = QuantizePlan::new(&gguf, &options).unwrap();
                assert_eq!(plan.tensors.len(), letters.len());
                for (tensor, letter) in plan.tensors.iter().zip(letters.chars()) {
                    let expected = golden.letters.get(&letter).map(|name| type_named(name));
                    assert!(expected.is_some() || letter == '.');
                    compared += 1;
                    if tensor.to != expected {
                        differing.push(format!(
                            "{file} {mode} {recipe} {}: {:?}, not {expected:?}",
                            tensor.name, tensor.to
                        ));
                    }
                }
            }
        }
    }
    assert!(compared > 50_000, "only {compared} tensors in the goldens");
    assert!(
        differing.is_empty(),
        "{} of {compared} differ:\n{}",
        differing.len(),
        differing[..differing.len().min(40)].join("\n")
    );
}

#[test]
fn every_spec_names_a_recipe_of_its_type() {
    for spec in QuantSpec::all() {
        let recipe = Recipe::from(spec);
        assert_eq!(recipe, spec.name().parse().unwrap());
        // llama.cpp's IQ2_S is mostly IQ2_XS.
        if spec.name() != "iq2_s" {
            assert_eq!(recipe.base(), Some(spec.ggml_type()), "{spec}");
        }
    }
    assert_eq!("Q1_0_G128".parse::<Recipe>().unwrap().name(), "Q1_0");
    assert_eq!(" copy ".parse::<Recipe>().unwrap(), Recipe::COPY);
    assert_eq!(Recipe::COPY.base(), None);
}

#[test]
fn recipes_parse_in_any_spelling() {
    for recipe in Recipe::all() {
        let text = format!(" {} ", recipe.name().to_lowercase().replace('_', "-"));
        assert_eq!(text.parse::<Recipe>().unwrap(), recipe);
    }
}

#[test]
fn unknown_recipe() {
    let error = "q4_k_x".parse::<Recipe>().unwrap_err().to_string();
    assert!(
        error.contains("\"q4_k_x\"") && error.contains("IQ3_M"),
        "{error}"
    );
}
