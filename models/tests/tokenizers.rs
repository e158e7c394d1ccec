//! Token ids against llama.cpp's, for every vocabulary that can be found.
//!
//! The expected ids are `cases/tokenizers/*.json` of the shared folder (`BURN_GGUF_SHARED`,
//! else `shared` beside the workspace). Vocabularies come from three places: that folder, the
//! real models (`BURN_GGUF_MODELS`, else `models-cache` in the workspace), and llama.cpp's
//! `models/ggml-vocab-*.gguf` (`BURN_GGUF_VOCABS`). What is not there is skipped by name.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn_gguf::gguf::Gguf;
use burn_gguf_models::tokenizer::{DecodeStream, Tokenizer, TokenizerError};
use serde_json::Value;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folder(variable: &str, fallback: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| workspace().join(fallback), PathBuf::from)
}

fn shared(path: &str) -> PathBuf {
    folder("BURN_GGUF_SHARED", "../shared").join(path)
}

/// Where the vocabulary of a case is.
fn vocabulary(name: &str) -> Result<PathBuf, String> {
    let candidates = match name {
        "qwen2.5-coder-0.5b" | "gemma3-270m" => {
            vec![folder("BURN_GGUF_MODELS", "models-cache").join(format!("{name}-q4_k_m.gguf"))]
        }
        _ => {
            let file = format!("ggml-vocab-{name}.gguf");
            let vocabs = std::env::var_os("BURN_GGUF_VOCABS").map(PathBuf::from);
            let mut places = vec![shared("cases/tokenizers").join(&file)];
            places.extend(vocabs.map(|folder| folder.join(&file)));
            places
        }
    };
    candidates
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| {
            let looked: Vec<_> = candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            format!("skipped: {name}: no vocabulary at {}", looked.join(" or "))
        })
}

fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().expect("a hex string");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .expect("ids")
        .iter()
        .map(|id| id.as_u64().expect("an id") as u32)
        .collect()
}

/// What a case's list of failures is called when it is not empty.
struct Report(Vec<String>);

impl Report {
    fn check<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: impl Fn() -> String,
        got: T,
        expected: T,
    ) {
        if got != expected {
            self.0
                .push(format!("{}: {got:?}, expected {expected:?}", what()));
        }
    }
}

/// Runs one file; `None` if it was skipped.
fn run(name: &str) -> Option<Report> {
    let path = shared("cases/tokenizers").join(format!("{name}.json"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {name}: no {}", path.display());
        return None;
    };
    let file = match vocabulary(name) {
        Ok(file) => file,
        Err(skipped) => {
            println!("{skipped}");
            return None;
        }
    };
    let case: Value = serde_json::from_str(&text).unwrap();
    let gguf = Gguf::open(file).unwrap();
    let start = Instant::now();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let built = start.elapsed();
    let mut report = Report(Vec::new());

    let id = |key: &str| case[key].as_i64().and_then(|id| u32::try_from(id).ok());
    report.check(
        || "vocab".into(),
        tokenizer.vocab_size() as u64,
        case["vocab"].as_u64().unwrap(),
    );
    report.check(|| "bos".into(), tokenizer.bos(), id("bos"));
    report.check(|| "eos".into(), tokenizer.eos(), id("eos"));
    report.check(|| "eot".into(), tokenizer.eot(), id("eot"));
    report.check(
        || "add_bos".into(),
        tokenizer.adds_bos(),
        case["add_bos"].as_bool().unwrap(),
    );
    report.check(
        || "add_eos".into(),
        tokenizer.adds_eos(),
        case["add_eos"].as_bool().unwrap(),
    );
    let mut ends = ids(&case["eog"]);
    ends.sort_unstable();
    report.check(
        || "eog".into(),
        tokenizer.special().end_of_generation.clone(),
        ends.clone(),
    );
    assert!(ends.iter().all(|&id| tokenizer.is_end_of_generation(id)));

    let mut encoded = 0;
    for entry in case["encode"].as_array().unwrap() {
        let bytes = hex(&entry["hex"]);
        for (key, add, parse) in [
            ("ids", false, false),
            ("ids_parse_special", false, true),
            ("ids_add_special", true, false),
            ("ids_add_and_parse_special", true, true),
        ] {
            let expected = entry.get(key).unwrap_or(&entry["ids"]);
            let what = || format!("encode {} {key}", entry["name"]);
            report.check(
                what,
                tokenizer.encode(&bytes, add, parse).unwrap(),
                ids(expected),
            );
            encoded += 1;
        }
    }

    // llama.cpp removes spaces before punctuation when it decodes these; we do not.
    let cleaned = matches!(name, "llama-bpe" | "gemma-4");
    let solid = |mut bytes: Vec<u8>| {
        bytes.retain(|&byte| !cleaned || byte != b' ');
        bytes
    };
    let decodes = case["decode"].as_array().unwrap();
    for (index, entry) in decodes.iter().enumerate() {
        let list = ids(&entry["ids"]);
        for (key, special) in [("hex", false), ("hex_unparse_special", true)] {
            let expected = hex(entry.get(key).unwrap_or(&entry["hex"]));
            let got = tokenizer.decode_bytes(&list, special).unwrap();
            report.check(
                || format!("decode {index} {key}"),
                solid(got.clone()),
                solid(expected),
            );
            let mut stream = DecodeStream::new(&tokenizer, special);
            let mut streamed: String = list.iter().map(|&id| stream.push(id).unwrap()).collect();
            streamed += &stream.flush();
            report.check(
                || format!("stream {index} {key}"),
                streamed,
                String::from_utf8_lossy(&got).into_owned(),
            );
        }
    }

    let pieces = case["pieces"].as_array().unwrap();
    for entry in pieces {
        let id = entry["id"].as_u64().unwrap() as u32;
        for (key, special) in [("hex", false), ("hex_special", true)] {
            let expected = hex(entry.get(key).unwrap_or(&entry["hex"]));
            report.check(
                || format!("piece {id} {key}"),
                tokenizer.piece(id, special).unwrap(),
                expected,
            );
        }
    }
    println!(
        "{name}: {encoded} encodings, {} decodings, {} pieces, {} differ; built in {built:.1?}",
        decodes.len() * 2,
        pieces.len() * 2,
        report.0.len()
    );
    Some(report)
}

macro_rules! vocabularies {
    ($($test:ident $name:literal)*) => {
        $(
            #[test]
            fn $test() {
                if let Some(Report(differences)) = run($name) {
                    assert!(differences.is_empty(), "{}:\n{}", $name, differences.join("\n"));
                }
            }
        )*

        #[test]
        fn every_case_has_a_test() {
            let Ok(entries) = std::fs::read_dir(shared("cases/tokenizers")) else {
                println!("skipped: no {}", shared("cases/tokenizers").display());
                return;
            };
            let tested = [$($name),*];
            for path in entries.map(|entry| entry.unwrap().path()) {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                if path.extension().is_some_and(|extension| extension == "json") && name != "vocabs" {
                    assert!(tested.contains(&name.as_str()), "no test for {name}");
                }
            }
        }
    };
}

vocabularies! {
    qwen2 "qwen2"
    qwen35 "qwen35"
    qwen25_coder "qwen2.5-coder-0.5b"
    gemma3 "gemma3-270m"
    gemma4 "gemma-4"
    llama_bpe "llama-bpe"
    llama_spm "llama-spm"
    deepseek_llm "deepseek-llm"
    deepseek_coder "deepseek-coder"
}

/// llama.cpp's own pairs of texts and ids, which cover more splitting rules.
#[test]
fn llama_cpp_vocabulary_files() {
    let Some(folder) = std::env::var_os("BURN_GGUF_VOCABS").map(PathBuf::from) else {
        println!("skipped: BURN_GGUF_VOCABS is not set");
        return;
    };
    for name in [
        "command-r",
        "deepseek-coder",
        "deepseek-llm",
        "falcon",
        "gemma-4",
        "gpt-2",
        "llama-bpe",
        "llama-spm",
        "mpt",
        "qwen2",
        "qwen35",
        "refact",
        "starcoder",
    ] {
        let file = folder.join(format!("ggml-vocab-{name}.gguf"));
        let read = |suffix: &str| std::fs::read_to_string(format!("{}{suffix}", file.display()));
        let (Ok(texts), Ok(expected)) = (read(".inp"), read(".out")) else {
            println!("skipped: {name}: no texts beside {}", file.display());
            continue;
        };
        let tokenizer = Tokenizer::from_metadata(Gguf::open(&file).unwrap().metadata()).unwrap();
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        assert!(texts.len() > 20, "{name}");
        let mut differ = 0;
        for (text, line) in texts.iter().zip(expected.lines()) {
            let ids: Vec<u32> = line
                .split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect();
            let got = tokenizer.encode(text, false, false).unwrap();
            if got != ids {
                println!("{name}: {text:?}\n  {got:?}\n  {ids:?}");
                differ += 1;
            }
        }
        println!("{name}: {} texts, {differ} differ", texts.len());
        assert_eq!(differ, 0, "{name}");
    }
}

/// A megabyte of anything takes time in proportion, not the square of it.
#[test]
fn long_inputs() {
    for name in ["qwen35", "deepseek-llm", "gemma-4", "gemma3-270m"] {
        let file = match vocabulary(name) {
            Ok(file) => file,
            Err(skipped) => {
                println!("{skipped}");
                continue;
            }
        };
        let tokenizer = Tokenizer::from_metadata(Gguf::open(file).unwrap().metadata()).unwrap();
        for text in [
            "a",
            " ",
            "\n",
            "\t",
            " \n",
            "the quick brown fox, ",
            "東京",
            "<|im_start|>",
            "x1",
            "\u{301}",
            "'",
        ] {
            let text = text.repeat((1 << 20) / text.len());
            let start = Instant::now();
            let ids = tokenizer.encode(&text, false, true).unwrap();
            let elapsed = start.elapsed();
            println!(
                "{name}: {:?} x 1 MiB: {} ids in {elapsed:.1?}",
                &text.chars().take(4).collect::<String>(),
                ids.len()
            );
            assert!(elapsed.as_secs() < 30, "{name}: {elapsed:?}");
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
        }
    }
}

#[test]
fn exactly_one_bos() {
    for (name, text) in [
        ("gemma3-270m", "<bos><start_of_turn>user\nHi<end_of_turn>\n"),
        ("llama-bpe", "<|begin_of_text|>Hi"),
        ("qwen2", "<|im_start|>user\nHi<|im_end|>\n"),
    ] {
        let file = match vocabulary(name) {
            Ok(file) => file,
            Err(skipped) => {
                println!("{skipped}");
                continue;
            }
        };
        let tokenizer = Tokenizer::from_metadata(Gguf::open(file).unwrap().metadata()).unwrap();
        let count = |ids: &[u32]| {
            ids.iter()
                .filter(|&&id| Some(id) == tokenizer.bos())
                .count()
        };
        let with = tokenizer.encode_prompt(text).unwrap();
        let wanted = usize::from(tokenizer.adds_bos());
        assert_eq!(count(&with), wanted, "{name}");
        let bare = text
            .trim_start_matches("<bos>")
            .trim_start_matches("<|begin_of_text|>");
        assert_eq!(tokenizer.encode_prompt(bare).unwrap(), with, "{name}");
    }
}

/// A tokenizer.json made of the same vocabulary and the published regex gives the same ids,
/// through the `tokenizers` crate's own splitting and merging.
#[test]
fn tokenizer_json_agrees() {
    use tokenizers::models::bpe::{BPE, Vocab};
    use tokenizers::pre_tokenizers::{
        byte_level::ByteLevel, sequence::Sequence, split::Split, split::SplitPattern,
    };

    let Ok(case) = std::fs::read_to_string(shared("cases/tokenizers/qwen35.json")) else {
        println!("skipped: no shared cases");
        return;
    };
    let case: Value = serde_json::from_str(&case).unwrap();
    let gguf = Gguf::open(vocabulary("qwen35").unwrap()).unwrap();
    let metadata = gguf.metadata();
    let tokens: Vec<String> = metadata.get("tokenizer.ggml.tokens").unwrap();
    let merges: Vec<&str> = metadata.get("tokenizer.ggml.merges").unwrap();
    let merges = merges.iter().map(|line| {
        let (left, right) = line.split_once(' ').unwrap();
        (left.to_owned(), right.to_owned())
    });
    let vocab: Vocab = tokens.into_iter().zip(0..).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges.collect())
        .build()
        .unwrap();
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let split = Split::new(
        SplitPattern::Regex(pattern.to_owned()),
        tokenizers::SplitDelimiterBehavior::Isolated,
        false,
    );
    let mut json = tokenizers::Tokenizer::new(bpe);
    json.with_pre_tokenizer(Some(Sequence::new(vec![
        split.unwrap().into(),
        ByteLevel::new(false, false, false).into(),
    ])));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    json.save(&path, false).unwrap();

    let native = Tokenizer::from_metadata(metadata).unwrap();
    let foreign = Tokenizer::from_json(metadata, &path).unwrap();
    assert_eq!(foreign.special(), native.special());
    let mut compared = 0;
    for entry in case["encode"].as_array().unwrap() {
        // Invalid UTF-8 is replaced by other rules there.
        let Ok(text) = String::from_utf8(hex(&entry["hex"])) else {
            continue;
        };
        let ids = native.encode(&text, true, true).unwrap();
        assert_eq!(
            foreign.encode(&text, true, true).unwrap(),
            ids,
            "{}",
            entry["name"]
        );
        assert_eq!(
            foreign.decode(&ids, true).unwrap(),
            native.decode(&ids, true).unwrap()
        );
        compared += 1;
    }
    assert!(compared > 60, "{compared}");

    // Another model's tokenizer.json is refused.
    if let Ok(other) = vocabulary("deepseek-llm") {
        let error = Tokenizer::from_json(Gguf::open(other).unwrap().metadata(), &path).unwrap_err();
        assert!(
            matches!(error, TokenizerError::JsonMismatch { .. }),
            "{error}"
        );
    }
    let error = Tokenizer::from_json(metadata, folder.path().join("none.json")).unwrap_err();
    assert!(matches!(error, TokenizerError::Json(_)), "{error}");
}

/// The prompts of the real models, chat markup included, become the ids that the reference ran.
#[test]
fn prompts_of_the_real_models() {
    for name in ["qwen2.5-coder-0.5b", "gemma3-270m"] {
        let file = match vocabulary(name) {
            Ok(file) => file,
            Err(skipped) => {
                println!("{skipped}");
                continue;
            }
        };
        let folder = shared("cases/real").join(name);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("skipped: {name}: no {}", folder.display());
            continue;
        };
        let tokenizer = Tokenizer::from_metadata(Gguf::open(file).unwrap().metadata()).unwrap();
        let mut prompts = 0;
        for case in entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
        {
            let text = std::fs::read(case.join("prompt.txt")).unwrap();
            let npy = std::fs::read(case.join("tokens.npy")).unwrap();
            let header = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
            let tokens: Vec<u32> = npy[header..]
                .chunks_exact(4)
                .map(|id| u32::from_le_bytes(id.try_into().unwrap()))
                .collect();
            assert_eq!(
                tokenizer.encode_prompt(&text).unwrap(),
                tokens,
                "{}",
                case.display()
            );
            prompts += 1;
        }
        println!("{name}: {prompts} prompts");
        assert!(prompts > 0);
    }
}
