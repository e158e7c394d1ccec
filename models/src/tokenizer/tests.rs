//! What the keys of a file lead to, on vocabularies small enough to see.

use burn_gguf::gguf::Gguf;

use super::{Tokenizer, TokenizerError};

/// A metadata value, as it is written.
pub(crate) enum Entry<'a> {
    Text(&'a str),
    Flag(bool),
    Id(u32),
    Texts(&'a [&'a str]),
    Types(&'a [i32]),
    Scores(&'a [f32]),
}

/// A file of metadata alone. Keys are those under `tokenizer.ggml.`, or `chat_template...`.
pub(crate) fn gguf(entries: &[(&str, Entry<'_>)]) -> Gguf {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    fn array(out: &mut Vec<u8>, element: u32, len: usize) {
        out.extend(9_u32.to_le_bytes());
        out.extend(element.to_le_bytes());
        out.extend((len as u64).to_le_bytes());
    }
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(0_u64.to_le_bytes());
    out.extend((entries.len() as u64).to_le_bytes());
    for (key, entry) in entries {
        let section = if key.starts_with("chat_template") {
            ""
        } else {
            "ggml."
        };
        text(&mut out, &format!("tokenizer.{section}{key}"));
        match entry {
            Entry::Text(value) => {
                out.extend(8_u32.to_le_bytes());
                text(&mut out, value);
            }
            Entry::Flag(value) => {
                out.extend(7_u32.to_le_bytes());
                out.push(u8::from(*value));
            }
            Entry::Id(value) => {
                out.extend(4_u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Entry::Texts(values) => {
                array(&mut out, 8, values.len());
                values.iter().for_each(|value| text(&mut out, value));
            }
            Entry::Types(values) => {
                array(&mut out, 5, values.len());
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Entry::Scores(values) => {
                array(&mut out, 6, values.len());
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
    }
    Gguf::from_bytes(out.into()).expect("a valid file")
}

use Entry::{Flag, Id, Scores, Text, Texts, Types};

const BPE_TOKENS: &[&str] = &["a", "b", "ab", "Ġ", "<|im_end|>", "<think>", "</s>", "<s>"];
const BPE_TYPES: &[i32] = &[1, 1, 1, 1, 3, 4, 1, 3];

fn bpe(extra: Vec<(&str, Entry<'_>)>) -> Result<Tokenizer, TokenizerError> {
    let mut entries = vec![
        ("model", Text("gpt2")),
        ("tokens", Texts(BPE_TOKENS)),
        ("token_type", Types(BPE_TYPES)),
        ("merges", Texts(&["a b"])),
    ];
    entries.extend(extra);
    Tokenizer::from_metadata(gguf(&entries).metadata())
}

#[test]
fn no_tokenizer() {
    let error = Tokenizer::from_metadata(gguf(&[]).metadata()).unwrap_err();
    assert!(matches!(error, TokenizerError::NoTokenizer(_)), "{error}");
    let error =
        Tokenizer::from_metadata(gguf(&[("model", Text("no_vocab"))]).metadata()).unwrap_err();
    assert!(
        matches!(&error, TokenizerError::NoTokenizer(name) if name == "`no_vocab`"),
        "{error}"
    );
}

#[test]
fn unsupported_model() {
    let error = Tokenizer::from_metadata(gguf(&[("model", Text("t5"))]).metadata()).unwrap_err();
    assert!(
        matches!(&error, TokenizerError::UnsupportedModel(name) if name == "t5"),
        "{error}"
    );
    assert!(error.to_string().contains("gpt2, llama, gemma4"), "{error}");
}

#[test]
fn missing_and_unknown_pre_and_the_way_out() {
    let error = bpe(vec![]).unwrap_err();
    assert!(matches!(error, TokenizerError::MissingPre), "{error}");
    let error = bpe(vec![("pre", Text("default"))]).unwrap_err();
    assert!(
        matches!(&error, TokenizerError::UnknownPre(name) if name == "default"),
        "{error}"
    );

    let file = gguf(&[
        ("model", Text("gpt2")),
        ("tokens", Texts(BPE_TOKENS)),
        ("merges", Texts(&["a b"])),
    ]);
    let tokenizer = Tokenizer::from_metadata_with_pre(file.metadata(), "qwen2").unwrap();
    assert_eq!(tokenizer.encode("ab ab", false, false).unwrap(), [2, 3, 2]);
}

#[test]
fn keys_of_the_wrong_type_and_missing_arrays() {
    let error = Tokenizer::from_metadata(gguf(&[("model", Id(1))]).metadata()).unwrap_err();
    assert!(matches!(error, TokenizerError::Metadata(_)), "{error}");
    let error = Tokenizer::from_metadata(gguf(&[("model", Text("llama"))]).metadata()).unwrap_err();
    assert!(
        error.to_string().contains("tokenizer.ggml.tokens"),
        "{error}"
    );
    let file = gguf(&[
        ("model", Text("gpt2")),
        ("tokens", Texts(&["a"])),
        ("pre", Text("qwen2")),
    ]);
    let error = Tokenizer::from_metadata(file.metadata()).unwrap_err();
    assert!(
        error.to_string().contains("tokenizer.ggml.merges"),
        "{error}"
    );
}

#[test]
fn special_tokens_in_text_are_read_only_if_asked_for() {
    let tokenizer = bpe(vec![("pre", Text("qwen2"))]).unwrap();
    assert_eq!(
        tokenizer.encode("a<|im_end|>b", false, true).unwrap(),
        [0, 4, 1]
    );
    // Nothing but a, b and the space has a token here; the rest of the markup is dropped.
    assert_eq!(
        tokenizer.encode("a<|im_end|>b", false, false).unwrap(),
        [0, 1]
    );
    // User-defined tokens are matched either way.
    assert_eq!(
        tokenizer.encode("a<think>b", false, false).unwrap(),
        [0, 5, 1]
    );
    // Control tokens are hidden, user-defined ones are not.
    assert_eq!(
        tokenizer.decode(&[0, 4, 5, 3, 1], false).unwrap(),
        "a<think> b"
    );
    assert_eq!(
        tokenizer.decode(&[0, 4, 5], true).unwrap(),
        "a<|im_end|><think>"
    );
}

#[test]
fn the_end_of_generation_by_key_and_by_text() {
    let tokenizer = bpe(vec![("pre", Text("qwen2")), ("eos_token_id", Id(1))]).unwrap();
    assert_eq!(tokenizer.special().end_of_generation, [1, 4, 6]);
    assert_eq!((tokenizer.eos(), tokenizer.eot()), (Some(1), Some(4)));
    // `</s>` was an ordinary entry and became a control token.
    assert_eq!(tokenizer.decode(&[6], false).unwrap(), "");
}

#[test]
fn ids_outside_of_the_vocabulary_count_as_absent() {
    let keys = vec![
        ("pre", Text("qwen2")),
        ("bos_token_id", Id(99)),
        ("suppress_tokens", Types(&[2, -1, 8, 0])),
        ("add_bos_token", Flag(true)),
    ];
    let tokenizer = bpe(keys).unwrap();
    assert_eq!(tokenizer.bos(), None);
    assert_eq!(tokenizer.special().suppressed, [2, 0]);
    assert_eq!(tokenizer.encode("a", true, true).unwrap(), [0]);
}

#[test]
fn bos_and_eos_follow_the_keys() {
    let keys = |add: bool| {
        vec![
            ("pre", Text("qwen2")),
            ("bos_token_id", Id(7)),
            ("eos_token_id", Id(4)),
            ("add_bos_token", Flag(add)),
            ("add_eos_token", Flag(add)),
        ]
    };
    let with = bpe(keys(true)).unwrap();
    assert_eq!(with.encode("a", true, false).unwrap(), [7, 0, 4]);
    assert_eq!(with.encode("a", false, false).unwrap(), [0]);
    assert_eq!(with.encode("", true, false).unwrap(), [7, 4]);
    // A template may have written BOS already, or even twice.
    assert_eq!(with.encode("<s>a", true, true).unwrap(), [7, 7, 0, 4]);
    for prompt in ["a", "<s>a", "<s><s>a"] {
        assert_eq!(with.encode_prompt(prompt).unwrap(), [7, 0, 4], "{prompt}");
    }
    let without = bpe(keys(false)).unwrap();
    assert_eq!(without.encode_prompt("a").unwrap(), [0]);
    assert_eq!(without.encode_prompt("<s>a").unwrap(), [7, 0]);
    // The default of this rule is the other way round.
    let llama = bpe(vec![("pre", Text("llama-bpe")), ("bos_token_id", Id(7))]).unwrap();
    assert_eq!(llama.encode("a", true, false).unwrap(), [7, 0]);
}

fn spm(extra: Vec<(&str, Entry<'_>)>) -> Tokenizer {
    let mut entries = vec![
        ("model", Text("llama")),
        (
            "tokens",
            Texts(&[
                "<unk>", "<s>", "</s>", "▁", "a", "▁a", "<0x0A>", "<0xC3>", "<0xA9>",
            ]),
        ),
        ("token_type", Types(&[2, 3, 3, 1, 1, 1, 6, 6, 6])),
        (
            "scores",
            Scores(&[0.0, 0.0, 0.0, -3.0, -2.0, -1.0, 0.0, 0.0, 0.0]),
        ),
    ];
    entries.extend(extra);
    Tokenizer::from_metadata(gguf(&entries).metadata()).unwrap()
}

#[test]
fn sentencepiece_puts_a_space_before_text_and_takes_it_away_again() {
    let tokenizer = spm(vec![]);
    assert_eq!(tokenizer.encode("a", true, false).unwrap(), [1, 5]);
    assert_eq!(tokenizer.encode("a</s>a", false, true).unwrap(), [5, 2, 5]);
    assert_eq!(tokenizer.decode(&[5, 5], false).unwrap(), "a a");
    assert_eq!(
        tokenizer.encode("aé\nz", false, false).unwrap(),
        [5, 7, 8, 6, 0]
    );

    let plain = spm(vec![
        ("add_space_prefix", Flag(false)),
        ("add_bos_token", Flag(false)),
    ]);
    assert_eq!(plain.encode("a a", true, false).unwrap(), [4, 5]);
    assert_eq!(plain.decode(&[5, 5, 6], false).unwrap(), " a a\n");
}

#[test]
fn streaming_decodes_byte_tokens_into_characters() {
    let tokenizer = spm(vec![]);
    let mut stream = super::DecodeStream::new(&tokenizer, false);
    let pieces: Vec<String> = [1, 5, 7, 8, 5]
        .iter()
        .map(|&id| stream.push(id).unwrap())
        .collect();
    assert_eq!(pieces, ["", " a", "", "é", " a"]);
    assert_eq!(stream.push(7).unwrap(), "");
    assert_eq!(stream.flush(), "\u{FFFD}");
    let mut stream = super::DecodeStream::new(&tokenizer, false);
    assert_eq!(stream.push(5).unwrap(), "a");
    let tokenizer = std::sync::Arc::new(tokenizer);
    let mut stream = super::DecodeStream::new(tokenizer, false).continuing();
    assert_eq!(stream.push(5).unwrap(), " a");
}

#[test]
fn unknown_id() {
    let tokenizer = spm(vec![]);
    for error in [
        tokenizer.decode(&[9], false).unwrap_err(),
        tokenizer.piece(u32::MAX, true).unwrap_err(),
        tokenizer.token_text(9).unwrap_err(),
    ] {
        assert!(
            matches!(error, TokenizerError::UnknownId { size: 9, .. }),
            "{error}"
        );
    }
}

#[test]
fn tokens_by_text() {
    let tokenizer = spm(vec![]);
    assert_eq!(tokenizer.token_id("▁a"), Some(5));
    assert_eq!(tokenizer.token_id("b"), None);
    assert_eq!(tokenizer.token_text(5).unwrap(), "▁a");
    assert_eq!(tokenizer.vocab_size(), 9);
}
