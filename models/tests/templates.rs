//! Rendered prompts against `transformers`, for the templates of every family.
//!
//! The expected texts are `cases/templates/*.json` of the shared folder (`BURN_GGUF_SHARED`, else
//! `shared` beside the workspace).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use burn_gguf::gguf::Gguf;
use burn_gguf_models::chat::{Chat, ChatError, ChatTemplate};
use burn_gguf_models::tokenizer::Tokenizer;
use serde_json::Value;

/// Template, conversation and why the rendering differs. An entry that no longer differs fails
/// the test, as does a difference that is not listed.
const KNOWN_DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "deepseek-ai-DeepSeek-V3.2",
        "arguments-as-json-string",
        NO_FROM_JSON,
    ),
    (
        "deepseek-ai-DeepSeek-V4",
        "arguments-as-json-string",
        NO_FROM_JSON,
    ),
    (
        "deepseek-ai-DeepSeek-V4-Flash-0731",
        "arguments-as-json-string",
        NO_FROM_JSON,
    ),
];
const NO_FROM_JSON: &str =
    "transformers has no filter `from_json` and fails; llama.cpp and we have it";

fn cases() -> PathBuf {
    let shared = std::env::var_os("BURN_GGUF_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    shared.join("cases/templates")
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The conversations by name; `None` after saying what is missing.
fn conversations() -> Option<Vec<(String, Chat)>> {
    let path = cases().join("conversations.json");
    if !path.is_file() {
        println!("skipped: no {}", path.display());
        return None;
    }
    let conversation = |value: &Value| {
        let chat = Chat {
            messages: serde_json::from_value(value["messages"].clone()).unwrap(),
            tools: value
                .get("tools")
                .and_then(|tools| tools.as_array().cloned()),
            add_generation_prompt: value
                .get("add_generation_prompt")
                .is_none_or(|add| add.as_bool().unwrap()),
            options: value
                .get("kwargs")
                .map(|kwargs| kwargs.as_object().unwrap().clone())
                .unwrap_or_default(),
        };
        (value["name"].as_str().unwrap().to_owned(), chat)
    };
    Some(
        read(&path)
            .as_array()
            .unwrap()
            .iter()
            .map(conversation)
            .collect(),
    )
}

fn template(name: &str, case: &Value) -> Result<ChatTemplate, ChatError> {
    let source = std::fs::read_to_string(cases().join(format!("{name}.jinja"))).unwrap();
    let mut template =
        ChatTemplate::new(&source)?.with_clock(|| UNIX_EPOCH + Duration::from_secs(1_768_469_400));
    for key in ["bos_token", "eos_token"] {
        if let Some(text) = case[key].as_str() {
            template = template.with_token(key, text);
        }
    }
    Ok(template)
}

#[test]
fn renders_equal_transformers() {
    let Some(conversations) = conversations() else {
        return;
    };
    let mut differences = BTreeMap::new();
    let mut names: Vec<PathBuf> = std::fs::read_dir(cases())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jinja")
    });
    names.sort();
    assert!(names.len() >= 15, "{names:?}");
    for path in names {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let case = read(&cases().join(format!("{name}.json")));
        let template = template(&name, &case);
        let mut differ = 0;
        for (conversation, chat) in &conversations {
            let expected = &case["rendered"][conversation];
            let got = template
                .as_ref()
                .map_err(ToString::to_string)
                .and_then(|template| template.render(chat).map_err(|error| error.to_string()));
            let difference = match (&got, expected.as_str()) {
                (Ok(got), Some(expected)) if got == expected => continue,
                // Errors are worded differently; that there is one is what counts.
                (Err(_), None) => continue,
                (Ok(got), Some(expected)) => first_difference(got, expected),
                (Err(error), Some(_)) => format!("error: {error}"),
                (Ok(_), None) => format!("no error, expected {}", expected["error"]),
            };
            differ += 1;
            differences.insert((name.clone(), conversation.clone()), difference);
        }
        println!(
            "{name}: {} conversations, {differ} differ",
            conversations.len()
        );
    }

    let mut failures = Vec::new();
    for ((template, conversation), difference) in &differences {
        match KNOWN_DIFFERENCES
            .iter()
            .find(|known| known.0 == template && known.1 == conversation)
        {
            Some(known) => println!("known: {template} / {conversation}: {}", known.2),
            None => failures.push(format!("{template} / {conversation}: {difference}")),
        }
    }
    for (template, conversation, _) in KNOWN_DIFFERENCES {
        if !differences.contains_key(&(template.to_string(), conversation.to_string())) {
            failures.push(format!(
                "{template} / {conversation}: no longer differs, remove it from the table"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn first_difference(got: &str, expected: &str) -> String {
    let at = got
        .chars()
        .zip(expected.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let around = |text: &str| {
        text.chars()
            .skip(at.saturating_sub(30))
            .take(90)
            .collect::<String>()
    };
    format!(
        "at {at}:\n  got      {:?}\n  expected {:?}",
        around(got),
        around(expected)
    )
}

/// The template inside of a real file is the one it was published with.
#[test]
fn template_of_a_real_model() {
    let models = std::env::var_os("BURN_GGUF_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../models-cache"),
        PathBuf::from,
    );
    let path = models.join("qwen2.5-coder-0.5b-q4_k_m.gguf");
    let Some(conversations) = conversations() else {
        return;
    };
    if !path.is_file() {
        println!("skipped: no {}", path.display());
        return;
    }
    let gguf = Gguf::open(path).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let template = ChatTemplate::from_metadata(gguf.metadata(), &tokenizer).unwrap();
    let case = read(&cases().join("qwen2.5-coder-0.5b.json"));
    let mut equal = 0;
    for (name, chat) in &conversations {
        if let Some(expected) = case["rendered"][name].as_str() {
            assert_eq!(template.render(chat).unwrap(), expected, "{name}");
            equal += 1;
        }
    }
    assert!(equal > 20, "{equal}");
}
