//! SentencePiece BPE by scores (`tokenizer.ggml.model = llama`): Llama 2, Gemma 2 and 3.
//!
//! Unlike Unigram, which maximises the sum of scores over the whole text, this merges the
//! adjacent pair whose *result* scores highest, again and again.

use super::merge::{MergeRule, Merger};
use super::text::characters;
use super::vocabulary::Vocabulary;

/// U+2581, which stands for a space inside of tokens.
pub(crate) const SPACE_MARK: &[u8] = "\u{2581}".as_bytes();

struct ByScore<'a>(&'a Vocabulary);

impl MergeRule for ByScore<'_> {
    fn merge(&self, text: &[u8], _: Option<u32>, _: Option<u32>) -> Option<(u32, u32)> {
        let id = self.0.id(text)?;
        Some((descending(self.0.score(id)), id))
    }
}

/// Maps scores to integers in reverse order: the highest score becomes the lowest number.
fn descending(score: f32) -> u32 {
    // Adding zero turns -0.0 into 0.0, which compares equal to it.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 {
        bits
    } else {
        !bits & 0x7FFF_FFFF
    }
}

/// Appends the ids of one fragment of text. `prefix` puts a space before it.
pub(crate) fn encode(
    text: &[u8],
    prefix: bool,
    vocabulary: &Vocabulary,
    unknown: Option<u32>,
    out: &mut Vec<u32>,
) {
    let text = mark_spaces(text, prefix);
    let symbols = characters(&text, vocabulary);
    Merger::default().merge(&text, symbols, &ByScore(vocabulary), |id, bytes| match id {
        Some(id) => out.push(id),
        None => out.extend(bytes.iter().filter_map(|&byte| {
            vocabulary
                .byte_token(byte)
                .or_else(|| vocabulary.id(&[byte]))
                .or(unknown)
        })),
    });
}

/// `text` with every space replaced by U+2581, and one more in front if asked for.
pub(crate) fn mark_spaces(text: &[u8], prefix: bool) -> Vec<u8> {
    let mut marked = Vec::with_capacity(text.len() + text.len() / 2 + SPACE_MARK.len());
    if prefix {
        marked.extend_from_slice(SPACE_MARK);
    }
    for &byte in text {
        match byte {
            b' ' => marked.extend_from_slice(SPACE_MARK),
            _ => marked.push(byte),
        }
    }
    marked
}

/// The reverse of [`mark_spaces`], without a prefix.
pub(crate) fn unmark_spaces(token: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(token.len());
    let mut rest = token;
    while let Some((&first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(SPACE_MARK) {
            text.push(b' ');
            rest = after;
        } else {
            text.push(first);
            rest = after;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_order_in_reverse() {
        let scores = [
            f32::INFINITY,
            3.5,
            1e-30,
            0.0,
            -1e-30,
            -1.0,
            -1000.0,
            f32::NEG_INFINITY,
        ];
        assert!(
            scores
                .windows(2)
                .all(|pair| descending(pair[0]) < descending(pair[1]))
        );
        assert_eq!(descending(-0.0), descending(0.0));
    }

    #[test]
    fn the_highest_scoring_pair_merges_first_and_ties_go_left() {
        let tokens = ["a", "b", "c", "ab", "bc", "aa", "<0xC3>", "<0xA9>"];
        let scores = vec![0.0, 0.0, 0.0, -2.0, -1.0, -3.0, 0.0, 0.0];
        let vocabulary = Vocabulary::new(&tokens, None, Some(scores)).unwrap();
        let ids = |text: &str| {
            let mut out = Vec::new();
            encode(text.as_bytes(), false, &vocabulary, None, &mut out);
            out
        };
        assert_eq!(ids("abc"), [0, 4]);
        assert_eq!(ids("aaa"), [5, 0]);
        assert_eq!(ids("abé"), [3, 6, 7]);
        assert_eq!(ids(""), [0_u32; 0]);
    }

    #[test]
    fn spaces_are_marked() {
        assert_eq!(mark_spaces(b"a b", true), "▁a▁b".as_bytes());
        assert_eq!(mark_spaces(b"", false), b"");
        assert_eq!(unmark_spaces("▁a▁▁é".as_bytes()), " a  é".as_bytes());
    }
}
