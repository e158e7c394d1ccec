//! When generation ends.

use crate::tokenizer::Tokenizer;

/// Why generation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model chose this token, which ends its answer.
    EndOfGeneration(u32),
    /// The text reached this stop string.
    StopString(String),
    /// The limit of tokens is reached.
    MaxTokens,
    /// The context has no room for another token.
    ContextFull,
    /// An error ended the generation.
    Failed,
}

/// What to do after a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Text that is certain to belong to the answer.
    pub text: String,
    /// Why there is no next token.
    pub stop: Option<StopReason>,
}

/// Decides after each token whether generation goes on, and holds back text that might be the
/// beginning of a stop string.
///
/// ```
/// use burn_gguf_models::generation::{StopChecker, StopReason};
///
/// let mut stop = StopChecker::new(vec![2]).with_stop_strings(["User:"]);
/// assert_eq!(stop.push(7, "Yes.\nUs").text, "Yes.\n");
/// let last = stop.push(8, "er: No");
/// assert_eq!((last.text.as_str(), last.stop), ("", Some(StopReason::StopString("User:".into()))));
/// ```
#[derive(Debug, Clone, Default)]
pub struct StopChecker {
    ends: Vec<u32>,
    strings: Vec<String>,
    limit: Option<usize>,
    tokens: usize,
    held: String,
    /// A stop string was found: nothing after it belongs to the answer.
    cut: bool,
}

impl StopChecker {
    /// Stops at any of `ends`.
    pub fn new(ends: Vec<u32>) -> Self {
        Self {
            ends,
            ..Self::default()
        }
    }

    /// Stops at every token that ends generation in this vocabulary.
    pub fn for_tokenizer(tokenizer: &Tokenizer) -> Self {
        Self::new(tokenizer.special().end_of_generation.clone())
    }

    /// Also stops when the text contains one of `strings`, however it is cut into tokens. The
    /// string itself is not part of the answer. Empty strings are ignored.
    #[must_use]
    pub fn with_stop_strings(
        mut self,
        strings: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.strings.extend(
            strings
                .into_iter()
                .map(Into::into)
                .filter(|string| !string.is_empty()),
        );
        self
    }

    /// Also stops after this many tokens.
    #[must_use]
    pub fn with_max_tokens(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether `id` ends generation.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// Number of tokens pushed that were part of the answer.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Takes the chosen token and the text it decodes to (see [`DecodeStream`]). A token that
    /// ends generation has no text, whatever `text` is.
    ///
    /// When the last token is in, call [`Self::flush`] for text that is still held back; after a
    /// stop string there is none.
    ///
    /// [`DecodeStream`]: crate::tokenizer::DecodeStream
    pub fn push(&mut self, id: u32, text: &str) -> Step {
        if self.is_end(id) {
            return Step {
                text: String::new(),
                stop: Some(StopReason::EndOfGeneration(id)),
            };
        }
        self.tokens += 1;
        self.held.push_str(text);
        if let Some((at, string)) = self.find() {
            let stop = Some(StopReason::StopString(string.to_owned()));
            let mut text = std::mem::take(&mut self.held);
            text.truncate(at);
            self.cut = true;
            return Step { text, stop };
        }
        let safe = self.held.len() - self.undecided();
        let rest = self.held.split_off(safe);
        let text = std::mem::replace(&mut self.held, rest);
        let full = self.limit.is_some_and(|limit| self.tokens >= limit);
        let stop = full.then_some(StopReason::MaxTokens);
        Step { text, stop }
    }

    /// Takes text that no token belongs to: what the decoder held back to the end.
    pub fn push_rest(&mut self, text: &str) {
        if !self.cut {
            self.held.push_str(text);
        }
    }

    /// The text that was held back; it was not the beginning of a stop string after all.
    pub fn flush(&mut self) -> String {
        if let Some((at, _)) = self.find() {
            self.held.truncate(at);
        }
        std::mem::take(&mut self.held)
    }

    /// The first stop string in the held text, the longest of those that start there.
    fn find(&self) -> Option<(usize, &str)> {
        self.strings
            .iter()
            .filter_map(|string| Some((self.held.find(string.as_str())?, string.as_str())))
            .min_by_key(|(at, string)| (*at, std::cmp::Reverse(string.len())))
    }

    /// Length of the longest end of the held text that begins a stop string.
    fn undecided(&self) -> usize {
        let held = self.held.as_bytes();
        self.strings
            .iter()
            .filter_map(|string| {
                let most = (string.len() - 1).min(held.len());
                (1..=most)
                    .rev()
                    .find(|&length| held.ends_with(&string.as_bytes()[..length]))
            })
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(mut stop: StopChecker, pieces: &[&str]) -> (String, Option<StopReason>) {
        let mut out = String::new();
        for piece in pieces {
            let step = stop.push(1, piece);
            out += &step.text;
            if step.stop.is_some() {
                assert_eq!(stop.flush(), "");
                return (out, step.stop);
            }
        }
        (out + &stop.flush(), None)
    }

    #[test]
    fn stop_strings_across_any_cut() {
        let whole = "one €END two";
        let string = || Some(StopReason::StopString("€END".to_owned()));
        let characters: Vec<String> = whole.chars().map(String::from).collect();
        for size in 1..=characters.len() {
            let pieces: Vec<String> = characters
                .chunks(size)
                .map(|chunk| chunk.concat())
                .collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let stop = StopChecker::new(vec![]).with_stop_strings(["€END", ""]);
            assert_eq!(text(stop, &pieces), ("one ".to_owned(), string()), "{size}");
        }
    }

    #[test]
    fn text_is_held_back_only_while_undecided() {
        let mut stop = StopChecker::new(vec![]).with_stop_strings(["aab", "é!"]);
        assert_eq!(stop.push(1, "xa").text, "x");
        assert_eq!(stop.push(1, "a").text, "");
        assert_eq!(stop.push(1, "a").text, "a");
        assert_eq!(stop.push(1, "c").text, "aac");
        assert_eq!(stop.push(1, "é").text, "");
        assert_eq!(stop.flush(), "é");
    }

    #[test]
    fn the_first_string_wins_and_the_longest_there() {
        let stop = || StopChecker::new(vec![]).with_stop_strings(["bc", "b", "abc"]);
        assert_eq!(
            text(stop(), &["zabcd"]),
            ("z".into(), Some(StopReason::StopString("abc".into())))
        );
        assert_eq!(
            text(stop(), &["zbcd"]),
            ("z".into(), Some(StopReason::StopString("bc".into())))
        );
    }

    #[test]
    fn end_tokens_have_no_text() {
        let mut stop = StopChecker::new(vec![5, 9]).with_stop_strings(["xy"]);
        assert_eq!(
            stop.push(1, "ax"),
            Step {
                text: "a".into(),
                stop: None
            }
        );
        assert_eq!(
            stop.push(9, "</s>"),
            Step {
                text: String::new(),
                stop: Some(StopReason::EndOfGeneration(9))
            }
        );
        assert_eq!(stop.flush(), "x");
        assert_eq!(stop.tokens(), 1);
    }

    #[test]
    fn the_limit_counts_tokens() {
        let mut stop = StopChecker::new(vec![5]).with_max_tokens(2);
        assert_eq!(stop.push(1, "a").stop, None);
        assert_eq!(
            stop.push(1, "b"),
            Step {
                text: "b".into(),
                stop: Some(StopReason::MaxTokens)
            }
        );
        assert_eq!(StopChecker::new(vec![]).push(1, "a").stop, None);
    }

    #[test]
    fn the_rest_of_the_decoder_may_complete_a_stop_string() {
        let mut stop = StopChecker::new(vec![]).with_stop_strings(["a\u{FFFD}"]);
        assert_eq!(stop.push(1, "xa").text, "x");
        stop.push_rest("\u{FFFD}");
        assert_eq!(stop.flush(), "");
        let mut stop = StopChecker::new(vec![]).with_stop_strings(["a"]);
        assert_eq!(stop.push(1, "xa").text, "x");
        stop.push_rest("\u{FFFD}");
        assert_eq!(stop.flush(), "");
    }
}
