//! Bytes to text the way llama.cpp reads them before it splits words.
//!
//! Invalid input must not fail and must give the same ids as there: each byte that does not
//! start a sequence becomes U+FFFD, while overlong forms are taken as the character they encode
//! and surrogates keep their three bytes.

use std::borrow::Cow;

use super::vocabulary::Vocabulary;

/// First of 2048 private-use characters that stand for the surrogates U+D800..U+DFFF while the
/// text is a `str`: like a surrogate they are neither letter, number, mark, symbol,
/// punctuation nor space, so every pre-tokenizer treats them the same.
const STAND_IN: u32 = 0x10_F000;
const SURROGATES: std::ops::Range<u32> = 0xD800..0xE000;

/// A text that is valid UTF-8, and where surrogates were.
pub(crate) struct Text<'a> {
    text: Cow<'a, str>,
    /// Byte positions in `text` of the characters that stand for surrogates, ascending.
    surrogates: Vec<usize>,
}

impl<'a> Text<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Self {
                text: Cow::Borrowed(text),
                surrogates: Vec::new(),
            };
        }
        let mut text = String::with_capacity(bytes.len());
        let mut surrogates = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (code, length) = decode(rest).unwrap_or((0xFFFD, 1));
            if SURROGATES.contains(&code) {
                surrogates.push(text.len());
                text.extend(char::from_u32(STAND_IN + code - SURROGATES.start));
            } else {
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            rest = &rest[length..];
        }
        Self {
            text: Cow::Owned(text),
            surrogates,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The bytes of one piece of the text, surrogates restored.
    pub(crate) fn bytes(&self, piece: std::ops::Range<usize>) -> Cow<'_, [u8]> {
        let first = self.surrogates.partition_point(|&at| at < piece.start);
        if self.surrogates.get(first).is_none_or(|&at| at >= piece.end) {
            return Cow::Borrowed(&self.text.as_bytes()[piece]);
        }
        let mut bytes = Vec::with_capacity(piece.len());
        for (offset, character) in self.text[piece.clone()].char_indices() {
            let code = character as u32;
            if self
                .surrogates
                .binary_search(&(piece.start + offset))
                .is_ok()
            {
                let code = code - STAND_IN + SURROGATES.start;
                bytes.extend([
                    0xED,
                    0x80 | (code >> 6 & 0x3F) as u8,
                    0x80 | (code & 0x3F) as u8,
                ]);
            } else {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        Cow::Owned(bytes)
    }
}

/// The code point at the start of `bytes` and how many bytes it takes; overlong forms and
/// surrogates included.
fn decode(bytes: &[u8]) -> Option<(u32, usize)> {
    let lead = u32::from(*bytes.first()?);
    let (length, bits) = match lead {
        0x00..=0x7F => return Some((lead, 1)),
        0xC0..=0xDF => (2, lead & 0x1F),
        0xE0..=0xEF => (3, lead & 0x0F),
        0xF0..=0xF7 => (4, lead & 0x07),
        _ => return None,
    };
    let code = bytes.get(1..length)?.iter().try_fold(bits, |code, &byte| {
        (byte & 0xC0 == 0x80).then_some(code << 6 | u32::from(byte & 0x3F))
    })?;
    Some((code, length))
}

/// Length and id of each character of `text`, as the merge loop starts from them. A sequence
/// that is cut off or invalid counts as a character of the length its first byte announces.
pub(crate) fn characters(
    text: &[u8],
    vocabulary: &Vocabulary,
) -> impl Iterator<Item = (usize, Option<u32>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let length = sequence_length(*rest.first()?).min(rest.len());
        let (character, after) = rest.split_at(length);
        rest = after;
        Some((length, vocabulary.id(character)))
    })
}

/// Length that the first byte of a UTF-8 sequence announces; 1 for bytes that cannot start one.
fn sequence_length(lead: u8) -> usize {
    match lead {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xFF => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<u8> {
        let text = Text::new(bytes);
        text.bytes(0..text.as_str().len()).into_owned()
    }

    #[test]
    fn valid_text_is_borrowed() {
        let text = Text::new("naïve 東".as_bytes());
        assert!(matches!(text.text, Cow::Borrowed("naïve 東")));
        assert!(matches!(text.bytes(0..2), Cow::Borrowed(b"na")));
    }

    #[test]
    fn stray_bytes_become_replacement_characters() {
        assert_eq!(read(b"ab\xFFcd"), "ab\u{FFFD}cd".as_bytes());
        assert_eq!(read(b"\x80\x80x"), "\u{FFFD}\u{FFFD}x".as_bytes());
        assert_eq!(read(b"caf\xC3"), "caf\u{FFFD}".as_bytes());
        assert_eq!(
            read(b"\xF0\x9F\x98 y"),
            "\u{FFFD}\u{FFFD}\u{FFFD} y".as_bytes()
        );
        assert_eq!(
            read(b"\xF8\x88\x80\x80\x80q"),
            "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}q".as_bytes()
        );
    }

    #[test]
    fn overlong_forms_are_read_and_surrogates_kept() {
        assert_eq!(read(b"\xC0\xAF \xE0\x80\xAF"), b"/ /");
        assert_eq!(
            read(b"a\xED\xA0\x80z\xED\xBF\xBF"),
            b"a\xED\xA0\x80z\xED\xBF\xBF"
        );
    }

    #[test]
    fn a_private_use_character_is_not_taken_for_a_surrogate() {
        let bytes = b"\xED\xA0\x80\xF4\x8F\x80\x80";
        assert_eq!(read(bytes), bytes);
        let text = Text::new(bytes);
        assert_eq!(&*text.bytes(4..8), &bytes[3..]);
    }

    #[test]
    fn codes_past_unicode_become_replacement_characters() {
        assert_eq!(read(b"\xF7\xBF\xBF\xBF"), "\u{FFFD}".as_bytes());
    }
}
