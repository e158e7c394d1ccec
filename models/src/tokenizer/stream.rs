//! Decoding token by token into text that is valid UTF-8 at every step.

use std::ops::Deref;

use super::{Tokenizer, TokenizerError};

/// Turns ids into text as they come. Bytes of a character whose other bytes are still to come
/// are held back, so everything handed out is whole characters.
///
/// Concatenating all pieces and the rest gives what [`Tokenizer::decode`] gives at once.
///
/// `T` is anything that leads to a tokenizer: `&Tokenizer`, or `Arc<Tokenizer>` for a stream that
/// is to live on its own.
#[derive(Debug, Clone)]
pub struct DecodeStream<T> {
    tokenizer: T,
    text: Utf8Stream,
    special: bool,
    started: bool,
}

impl<T: Deref<Target = Tokenizer>> DecodeStream<T> {
    /// `special` says whether control tokens are written out or skipped.
    pub fn new(tokenizer: T, special: bool) -> Self {
        Self {
            tokenizer,
            text: Utf8Stream::default(),
            special,
            started: false,
        }
    }

    /// For text that continues what was decoded before: the space that SentencePiece
    /// vocabularies put before a text is kept.
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.started = true;
        self
    }

    /// The text that `id` completes, possibly empty.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let mut piece = self.tokenizer.piece(id, self.special)?;
        if !std::mem::replace(&mut self.started, true) {
            self.tokenizer.trim_prefix(&mut piece);
        }
        Ok(self.text.push(&piece))
    }

    /// What was held back, as U+FFFD for each sequence that never became a character.
    pub fn flush(&mut self) -> String {
        self.text.flush()
    }
}

/// Bytes to text, holding back an incomplete character at the end.
#[derive(Debug, Clone, Default)]
struct Utf8Stream {
    /// At most three bytes that begin a character.
    pending: Vec<u8>,
}

impl Utf8Stream {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.pending.len());
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    match error.error_len() {
                        Some(length) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = &rest[length..];
                        }
                        // The end of the input is the beginning of a character.
                        None => break,
                    }
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
        text
    }

    fn flush(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_text() {
        let inputs: [&[u8]; 4] = [
            "a€b🙂é".as_bytes(),
            b"x\xFF\xC3y\xE2\x82",
            b"\xF0\x9F\x99",
            b"\x80\xC3\xA9\xF0\x9F",
        ];
        for bytes in inputs {
            let whole = String::from_utf8_lossy(bytes);
            for step in 1..=bytes.len() {
                let mut stream = Utf8Stream::default();
                let mut text: String = bytes.chunks(step).map(|chunk| stream.push(chunk)).collect();
                text += &stream.flush();
                assert_eq!(text, whole, "{bytes:?} by {step}");
            }
        }
    }

    #[test]
    fn whole_characters_come_at_once_and_halves_are_held_back() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"ab\xE2\x82"), "ab");
        assert_eq!(stream.push(b"\xAC"), "€");
        assert_eq!(stream.push(b"\xC3"), "");
        assert_eq!(stream.push(b"x"), "\u{FFFD}x");
        assert_eq!(stream.push(b"\xF0\x9F"), "");
        assert_eq!(stream.flush(), "\u{FFFD}");
        assert_eq!(stream.flush(), "");
    }
}
