//! A byte-level vocabulary in which every word of the prompts and captions is one token.

use burn_gguf::gguf::GgufWriter;
use burn_gguf_models::demo::{Colour, PROMPTS, Relation, Shape};

/// Special tokens, after all others.
pub const SPECIAL: [&str; 6] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
];

/// ChatML, with Qwen's markup for images.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {% if message.content is string %}{{ message.content }}{% else %}\
    {% for part in message.content %}\
    {% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
    {% elif part.type == 'text' %}{{ part.text }}{% endif %}\
    {% endfor %}{% endif %}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Tokens and merges.
pub struct Vocabulary {
    tokens: Vec<String>,
    merges: Vec<String>,
}

impl Vocabulary {
    /// The bytes, the prefixes of all words, and the special tokens.
    pub fn new() -> Self {
        // A word is built letter by letter from its start. Longer prefixes rank first, so that a word once begun is
        // finished before any other begins; at its start, words with a space and long words go first.
        let mut prefixes: Vec<(String, String)> = Vec::new();
        for word in words() {
            let letters: Vec<char> = word.bytes().map(letter).collect();
            for end in 2..=letters.len() {
                let left: String = letters[..end - 1].iter().collect();
                let merge = (left, letters[end - 1].to_string());
                if !prefixes.contains(&merge) {
                    prefixes.push(merge);
                }
            }
        }
        prefixes.sort_by_key(|(left, _)| std::cmp::Reverse(left.chars().count()));
        let mut tokens: Vec<String> = (0..=u8::MAX).map(|byte| letter(byte).to_string()).collect();
        tokens.extend(
            prefixes
                .iter()
                .map(|(left, right)| format!("{left}{right}")),
        );
        tokens.extend(SPECIAL.map(str::to_owned));
        let merges = prefixes
            .iter()
            .map(|(left, right)| format!("{left} {right}"));
        Self {
            tokens,
            merges: merges.collect(),
        }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Adds the keys of the tokenizer and the chat template.
    pub fn write(&self, file: &mut GgufWriter<'_>) {
        let first_special = self.len() - SPECIAL.len();
        let kind = |id| if id < first_special { 1i32 } else { 3 };
        let id = |special: usize| (first_special + special) as u32;
        file.metadata("tokenizer.ggml.model", "gpt2")
            .metadata("tokenizer.ggml.pre", "qwen2")
            .metadata("tokenizer.ggml.tokens", self.tokens.clone())
            .metadata(
                "tokenizer.ggml.token_type",
                (0..self.len()).map(kind).collect::<Vec<_>>(),
            )
            .metadata("tokenizer.ggml.merges", self.merges.clone())
            .metadata("tokenizer.ggml.bos_token_id", id(0))
            .metadata("tokenizer.ggml.padding_token_id", id(0))
            .metadata("tokenizer.ggml.eos_token_id", id(2))
            .metadata("tokenizer.ggml.add_bos_token", false)
            .metadata("tokenizer.chat_template", TEMPLATE);
    }
}

/// Every word as the pre-tokenizer cuts it, those that must win a common beginning first.
fn words() -> Vec<String> {
    let mut words: Vec<String> = ["assistant", "system", "user", "two", "three", "an", "a"]
        .map(str::to_owned)
        .into();
    let spaced = |text: &str| format!(" {text}");
    words.extend(["a", "an", "two", "three"].map(spaced));
    words.extend(Colour::ALL.map(|colour| spaced(colour.word())));
    words.extend(
        Shape::ALL
            .iter()
            .flat_map(|shape| shape.words().map(spaced)),
    );
    for relation in Relation::ALL {
        words.extend(relation.words().split(' ').map(spaced));
    }
    for prompt in PROMPTS {
        let text = prompt.trim_end_matches(['.', '?']);
        words.extend(text.split_inclusive(' ').scan("", |space, part| {
            let word = format!("{space}{}", part.trim_end());
            *space = " ";
            Some(word)
        }));
    }
    words.sort_by_key(|word| (!word.starts_with(' '), std::cmp::Reverse(word.len())));
    words.dedup();
    words
}

/// GPT-2's printable stand-in for a byte.
fn letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&byte| !printable(byte)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or('\u{FFFD}')
}
