//! A vocabulary of bytes, and as many tokens without a text as a real one has with.

use burn_gguf::gguf::{Array, GgufWriter, StringArray, Value};

/// Tokens in all.
pub const TOKENS: u64 = 32768;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The letter that stands for a byte in byte-level BPE: itself where it is printable, else one from 256 on.
fn letters() -> Vec<String> {
    let printable = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut other = 256..;
    let letter = |b: u32| match printable(b) {
        true => b,
        false => other.next().unwrap_or(b),
    };
    let letters = (0..256).map(letter).filter_map(char::from_u32);
    letters.map(String::from).collect()
}

/// Byte-level BPE of the pretokenizer `pre`, with one merge.
pub fn write(file: &mut GgufWriter<'_>, pre: &str) {
    let mut tokens = letters();
    let mut kinds = vec![NORMAL; tokens.len()];
    tokens.push("\u{120}t".into());
    kinds.push(NORMAL);
    let end = tokens.len() as u32;
    tokens.push("<|endoftext|>".into());
    kinds.push(CONTROL);
    file.set_metadata("tokenizer.ggml.pre", pre)
        .set_metadata("tokenizer.ggml.eos_token_id", end)
        .set_metadata("tokenizer.ggml.padding_token_id", end);
    finish(file, "gpt2", tokens, kinds, "\u{120} t");
}

/// Gemma 4's BPE of characters, with a token for each byte and each printable character of ASCII, and one merge.
pub fn write_gemma(file: &mut GgufWriter<'_>) {
    let mut tokens: Vec<String> = ["<pad>", "<eos>", "<bos>", "<unk>"].map(Into::into).into();
    let mut kinds = vec![CONTROL; tokens.len()];
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    kinds.resize(tokens.len(), BYTE);
    tokens.extend(('!'..='~').map(String::from));
    tokens.extend(["\n", "\u{2581}", "\u{2581}t"].map(String::from));
    kinds.resize(tokens.len(), NORMAL);
    for (key, id) in [("padding", 0), ("eos", 1), ("bos", 2), ("unknown", 3)] {
        file.set_metadata(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
    }
    let scores = Array::F32(vec![-1000.0; TOKENS as usize]);
    file.set_metadata("tokenizer.ggml.scores", Value::Array(scores))
        .set_metadata("tokenizer.ggml.add_space_prefix", false)
        .set_metadata("tokenizer.ggml.add_bos_token", true);
    finish(file, "gemma4", tokens, kinds, "\u{2581} t");
}

/// The tokens, with as many unused ones as are missing.
fn finish(
    file: &mut GgufWriter<'_>,
    model: &str,
    mut tokens: Vec<String>,
    mut kinds: Vec<i32>,
    merge: &str,
) {
    while (tokens.len() as u64) < TOKENS {
        tokens.push(format!("<unused{}>", tokens.len()));
        kinds.push(UNUSED);
    }
    let strings = |texts: Vec<String>| texts.into_iter().collect::<StringArray>();
    file.set_metadata("tokenizer.ggml.model", model)
        .set_metadata("tokenizer.ggml.tokens", strings(tokens))
        .set_metadata("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))
        .set_metadata("tokenizer.ggml.merges", strings(vec![merge.into()]));
}
