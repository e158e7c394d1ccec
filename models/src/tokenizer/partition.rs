//! Cutting special tokens out of a text before it is tokenized.
//!
//! The rule is llama.cpp's: candidates are taken longest first, and each of them cuts every
//! occurrence out of what is still text, leftmost first. That is not leftmost-longest matching:
//! a long token wins over a shorter one that starts before it. An Aho-Corasick scan finds which
//! candidates occur at all (usually none to a handful of thousands), and only those are cut.

use aho_corasick::AhoCorasick;
use memchr::memmem;

use super::TokenizerError;
use super::vocabulary::{HIDDEN, SPECIAL, Vocabulary};

/// A stretch of the input: still text, or a token already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment<'a> {
    Text(&'a [u8]),
    Token(u32),
}

/// The special tokens of a vocabulary, ready to be found in a text.
#[derive(Debug)]
pub(crate) struct Partition {
    /// All special tokens, for text that may carry them as markup.
    parsed: Candidates,
    /// Those that are matched even in text from a user.
    always: Candidates,
}

#[derive(Debug)]
struct Candidates {
    /// Longest text first.
    ids: Vec<u32>,
    scan: AhoCorasick,
}

impl Partition {
    pub(crate) fn new(vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let mut ids: Vec<u32> = (0..vocabulary.len() as u32)
            .filter(|&id| vocabulary.kind(id).is(SPECIAL))
            .collect();
        ids.sort_by_key(|&id| std::cmp::Reverse(vocabulary.text(id).len()));
        let always = ids
            .iter()
            .copied()
            .filter(|&id| !vocabulary.kind(id).is(HIDDEN))
            .collect();
        Ok(Self {
            parsed: Candidates::new(ids, vocabulary)?,
            always: Candidates::new(always, vocabulary)?,
        })
    }

    /// The fragments of `text`, in order and none of them empty. With `parse_special` false the
    /// control and unknown tokens are left as text.
    pub(crate) fn split<'a>(
        &self,
        text: &'a [u8],
        vocabulary: &Vocabulary,
        parse_special: bool,
    ) -> Vec<Fragment<'a>> {
        if text.is_empty() {
            return Vec::new();
        }
        let candidates = if parse_special {
            &self.parsed
        } else {
            &self.always
        };
        let mut fragments = vec![Fragment::Text(text)];
        for id in candidates.present(text) {
            let finder = memmem::Finder::new(vocabulary.text(id));
            let mut cut = Vec::with_capacity(fragments.len() + 2);
            for fragment in fragments {
                match fragment {
                    Fragment::Text(text) => cut_out(text, id, &finder, &mut cut),
                    token => cut.push(token),
                }
            }
            fragments = cut;
        }
        fragments
    }
}

impl Candidates {
    fn new(ids: Vec<u32>, vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let scan = AhoCorasick::new(ids.iter().map(|&id| vocabulary.text(id)))
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        Ok(Self { ids, scan })
    }

    /// The candidates that occur in `text`, longest first.
    fn present(&self, text: &[u8]) -> Vec<u32> {
        if self.ids.is_empty() || !self.scan.is_match(text) {
            return Vec::new();
        }
        let mut seen = vec![false; self.ids.len()];
        for found in self.scan.find_overlapping_iter(text) {
            seen[found.pattern().as_usize()] = true;
        }
        self.ids
            .iter()
            .zip(seen)
            .filter_map(|(&id, seen)| seen.then_some(id))
            .collect()
    }
}

fn cut_out<'a>(text: &'a [u8], id: u32, token: &memmem::Finder<'_>, out: &mut Vec<Fragment<'a>>) {
    let mut rest = text;
    while let Some(at) = token.find(rest) {
        if at > 0 {
            out.push(Fragment::Text(&rest[..at]));
        }
        out.push(Fragment::Token(id));
        rest = &rest[at + token.needle().len()..];
    }
    if !rest.is_empty() {
        out.push(Fragment::Text(rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        let tokens = ["<a>", "<a><b", "<b><c>", "text", "<u>"];
        Vocabulary::new(&tokens, Some(&[3, 3, 3, 1, 4]), None).unwrap()
    }

    fn split(text: &str, parse_special: bool) -> Vec<Fragment<'_>> {
        let vocabulary = vocabulary();
        Partition::new(&vocabulary)
            .unwrap()
            .split(text.as_bytes(), &vocabulary, parse_special)
    }

    #[test]
    fn the_longest_token_wins_wherever_it_starts() {
        use Fragment::{Text, Token};
        assert_eq!(
            split("x<a><b><c>y", true),
            [Text(b"x"), Token(0), Token(2), Text(b"y")]
        );
        assert_eq!(split("<a><b", true), [Token(1)]);
        assert_eq!(
            split("<a><a>text", true),
            [Token(0), Token(0), Text(b"text")]
        );
    }

    #[test]
    fn control_tokens_stay_text_unless_asked_for() {
        use Fragment::{Text, Token};
        assert_eq!(
            split("<a><u>!", false),
            [Text(b"<a>"), Token(4), Text(b"!")]
        );
        assert_eq!(split("<a><u>!", true), [Token(0), Token(4), Text(b"!")]);
        assert_eq!(split("", true), []);
        assert_eq!(split("plain", true), [Text(b"plain")]);
    }
}
