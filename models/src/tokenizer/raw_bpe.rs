//! BPE over raw UTF-8 characters (`tokenizer.ggml.model = gemma4`): spaces become U+2581, text
//! is only split at runs of newlines, and characters without a token become byte tokens.
//!
//! The merge table is kept by pairs of ids instead of the `tokenizers` crate's pairs of strings:
//! Gemma's half a million merges are read in a fifth of the time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::TokenizerError;
use super::merge::{MergeRule, merge};
use super::spm::mark_spaces;
use super::text::Text;
use super::vocabulary::Vocabulary;

/// Merges by rank.
#[derive(Debug)]
pub(crate) struct RawBpe {
    /// From a pair of ids to its rank and the id of what it merges to.
    merges: HashMap<(u32, u32), (u32, u32), BuildHasherDefault<PairHasher>>,
}

impl MergeRule for RawBpe {
    fn merge(&self, _: &[u8], left: Option<u32>, right: Option<u32>) -> Option<(u32, u32)> {
        self.merges.get(&(left?, right?)).copied()
    }
}

impl RawBpe {
    /// `lines` are `left right`, most important first.
    pub(crate) fn new<T: AsRef<[u8]>>(lines: &[T], vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let mut merges = HashMap::with_capacity_and_hasher(lines.len(), BuildHasherDefault::default());
        let mut text = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let (left, right) = split_merge(index, line.as_ref())?;
            text.clear();
            text.extend_from_slice(left);
            text.extend_from_slice(right);
            let id = |text: &[u8]| {
                vocabulary.id(text).ok_or_else(|| {
                    let [line, token] = [line.as_ref(), text].map(String::from_utf8_lossy);
                    TokenizerError::Merges(format!("entry {index}, `{line}`, needs the token `{token}`"))
                })
            };
            let pair = (id(left)?, id(right)?);
            merges.entry(pair).or_insert((index as u32, id(&text)?));
        }
        Ok(Self { merges })
    }

    /// Appends the ids of one fragment of text.
    pub(crate) fn encode(&self, text: &[u8], vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let marked = mark_spaces(text, false);
        let text = Text::new(&marked);
        for piece in newline_runs(text.as_str()) {
            let bytes = text.bytes(piece);
            // A run of newlines is one token where the vocabulary has it, merges or not.
            if bytes.starts_with(b"\n")
                && let Some(id) = vocabulary.id(&bytes)
            {
                out.push(id);
                continue;
            }
            merge(&bytes, vocabulary, self, |id, bytes| match id {
                Some(id) => out.push(id),
                None => out.extend(bytes.iter().filter_map(|&byte| vocabulary.byte_token(byte))),
            });
        }
    }
}

/// Splits a line of `tokenizer.ggml.merges` at the first space that is not its first byte.
pub(crate) fn split_merge(index: usize, line: &[u8]) -> Result<(&[u8], &[u8]), TokenizerError> {
    line.iter()
        .skip(1)
        .position(|&byte| byte == b' ')
        .map(|at| (&line[..at + 1], &line[at + 2..]))
        .ok_or_else(|| TokenizerError::MalformedMerge {
            index,
            merge: String::from_utf8_lossy(line).into_owned(),
        })
}

/// Ranges of `text` that are all newlines or contain none.
fn newline_runs(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let mut start = 0;
    std::iter::from_fn(move || {
        let newline = *bytes.get(start)? == b'\n';
        let length = bytes[start..].iter().take_while(|&&byte| (byte == b'\n') == newline).count();
        let run = start..start + length;
        start = run.end;
        Some(run)
    })
}

/// Mixes a pair of ids by multiplication; the default hasher takes most of the loading time.
#[derive(Debug, Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0.rotate_left(32) ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_by_rank_with_byte_fallback() {
        let tokens = ["a", "b", "c", "ab", "bc", "▁", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>"];
        let vocabulary = Vocabulary::new(&tokens, None, None).unwrap();
        let bpe = RawBpe::new(&["b c", "a b", "▁ a"], &vocabulary).unwrap();
        let ids = |text: &str| {
            let mut out = Vec::new();
            bpe.encode(text.as_bytes(), &vocabulary, &mut out);
            out
        };
        assert_eq!(ids("abc ab"), [0, 4, 5, 3]);
        assert_eq!(ids(" aé"), [6, 9, 10]);
        assert_eq!(ids("a\n\nb\n\n\n"), [0, 8, 1, 7, 7, 7]);
    }

    #[test]
    fn merge_lines() {
        assert_eq!(split_merge(0, b"a b").unwrap(), (&b"a"[..], &b"b"[..]));
        assert_eq!(split_merge(0, b"  x").unwrap(), (&b" "[..], &b"x"[..]));
        assert!(matches!(split_merge(7, b"ab"), Err(TokenizerError::MalformedMerge { index: 7, .. })));
        assert!(matches!(split_merge(7, b""), Err(TokenizerError::MalformedMerge { .. })));
    }

    #[test]
    fn a_merge_of_unknown_tokens_is_an_error() {
        let vocabulary = Vocabulary::new(&["a", "b"], None, None).unwrap();
        let error = RawBpe::new(&["a b"], &vocabulary).unwrap_err();
        assert!(error.to_string().contains("`ab`"), "{error}");
    }
}
