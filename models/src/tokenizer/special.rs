//! Which tokens begin, end and structure a text, and which of them stop generation.
//!
//! Files name a few ids by key; the rest is recognised by text, as llama.cpp does it, because
//! many files mark the end of a turn only in the chat template.

use burn_gguf::gguf::Metadata;

use super::TokenizerError;
use super::vocabulary::{TokenKind, Vocabulary};

/// Ends a turn when `tokenizer.ggml.eot_token_id` is absent; the first that exists.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];
const END_OF_MESSAGE: &[&str] = &["<|eom_id|>"];
const FIM_PREFIX: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];
const FIM_SUFFIX: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];
const FIM_MIDDLE: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];
const FIM_PAD: &[&str] = &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const FIM_REPOSITORY: &[&str] = &[
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
];
const FIM_SEPARATOR: &[&str] = &["<|file_sep|>"];

/// Texts that end generation wherever they are in a vocabulary.
const END_OF_GENERATION: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Markup that is part of the answer and stays visible.
const VISIBLE: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Ids with a meaning of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message: the turn goes on after a tool's answer.
    pub eom: Option<u32>,
    /// Stands for what has no token.
    pub unknown: Option<u32>,
    /// Padding.
    pub padding: Option<u32>,
    /// Fill in the middle: before the text that precedes the gap.
    pub fim_prefix: Option<u32>,
    /// Fill in the middle: before the text that follows the gap.
    pub fim_suffix: Option<u32>,
    /// Fill in the middle: before the text of the gap.
    pub fim_middle: Option<u32>,
    /// Every id that ends generation, ascending.
    pub end_of_generation: Vec<u32>,
    /// Ids that must never be generated (`tokenizer.ggml.suppress_tokens`).
    pub suppressed: Vec<u32>,
}

impl SpecialTokens {
    /// Reads the keys and recognises the rest by text. Tokens that end generation become control
    /// tokens in `vocabulary`, whatever their type was.
    ///
    /// `defaults` are used where the file has no key; an id outside of the vocabulary counts as
    /// absent, as files with one are in circulation.
    pub(crate) fn read(
        metadata: &Metadata,
        vocabulary: &mut Vocabulary,
        defaults: Self,
    ) -> Result<Self, TokenizerError> {
        let size = vocabulary.len() as u64;
        let key = |name: &str| -> Result<Option<u32>, TokenizerError> {
            let id: Option<i64> =
                metadata.get_optional(&format!("tokenizer.ggml.{name}_token_id"))?;
            Ok(id
                .and_then(|id| u32::try_from(id).ok())
                .filter(|&id| u64::from(id) < size))
        };
        let default = |id: Option<u32>| id.filter(|&id| u64::from(id) < size);
        let either = |new: &str, old: &str| -> Result<Option<u32>, TokenizerError> {
            Ok(match key(new)? {
                Some(id) => Some(id),
                None => key(old)?,
            })
        };

        let mut tokens = Self {
            bos: key("bos")?.or(default(defaults.bos)),
            eos: key("eos")?.or(default(defaults.eos)),
            eot: key("eot")?,
            eom: key("eom")?,
            unknown: key("unknown")?.or(default(defaults.unknown)),
            padding: key("padding")?,
            fim_prefix: either("fim_pre", "prefix")?,
            fim_suffix: either("fim_suf", "suffix")?,
            fim_middle: either("fim_mid", "middle")?,
            end_of_generation: Vec::new(),
            suppressed: metadata
                .get_optional::<Vec<i64>>("tokenizer.ggml.suppress_tokens")?
                .unwrap_or_default()
                .into_iter()
                .filter_map(|id| u32::try_from(id).ok().filter(|&id| u64::from(id) < size))
                .collect(),
        };
        let mut fim = [key("fim_pad")?, key("fim_rep")?, key("fim_sep")?];

        recognise(&mut tokens.eot, END_OF_TURN, vocabulary);
        recognise(&mut tokens.eom, END_OF_MESSAGE, vocabulary);
        recognise(&mut tokens.fim_prefix, FIM_PREFIX, vocabulary);
        recognise(&mut tokens.fim_suffix, FIM_SUFFIX, vocabulary);
        recognise(&mut tokens.fim_middle, FIM_MIDDLE, vocabulary);
        for (id, texts) in fim.iter_mut().zip([FIM_PAD, FIM_REPOSITORY, FIM_SEPARATOR]) {
            recognise(id, texts, vocabulary);
        }

        let mut ends: Vec<u32> = fim.into_iter().flatten().collect();
        for text in END_OF_GENERATION {
            if let Some(id) = vocabulary.id(text.as_bytes()) {
                make_control(id, vocabulary);
                ends.push(id);
            }
        }
        for text in VISIBLE {
            if let Some(id) = vocabulary.id(text.as_bytes()) {
                vocabulary.set_kind(id, TokenKind::USER_DEFINED);
            }
        }
        ends.extend([tokens.eos, tokens.eot, tokens.eom].into_iter().flatten());
        ends.sort_unstable();
        ends.dedup();
        remove_false_ends(&mut ends, vocabulary);
        tokens.end_of_generation = ends;
        Ok(tokens)
    }
}

/// Fills `id` with the first of `texts` that the vocabulary has.
fn recognise(id: &mut Option<u32>, texts: &[&str], vocabulary: &mut Vocabulary) {
    if id.is_none() {
        *id = texts.iter().find_map(|text| vocabulary.id(text.as_bytes()));
        if let Some(id) = *id {
            make_control(id, vocabulary);
        }
    }
}

fn make_control(id: u32, vocabulary: &mut Vocabulary) {
    let kind = vocabulary.kind(id);
    vocabulary.set_kind(id, kind.or(TokenKind::CONTROL));
}

/// Texts that end generation in one vocabulary and are ordinary in another.
fn remove_false_ends(ends: &mut Vec<u32>, vocabulary: &mut Vocabulary) {
    let find = |ends: &[u32], text: &str| {
        vocabulary
            .id(text.as_bytes())
            .filter(|id| ends.contains(id))
    };
    let has = |text| find(ends, text).is_some();

    let call = has("<|call|>") || has("<|calls|>");
    let harmony_end =
        find(ends, "<|end|>").filter(|_| call && (has("<|return|>") || has("<|flush|>")));
    let markup_s = find(ends, "</s>").filter(|_| has("<|tool_response>"));
    for (id, kind) in [
        (harmony_end, TokenKind::USER_DEFINED),
        (markup_s, TokenKind::NORMAL),
    ] {
        if let Some(id) = id {
            ends.retain(|&end| end != id);
            vocabulary.set_kind(id, kind);
        }
    }
}
