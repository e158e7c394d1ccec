//! The token table of a GGUF file: texts, types and scores by id, and ids by text.
//!
//! All texts lie in one buffer and the index by text is an open-addressed table of ids that
//! compares against it, so a vocabulary of 150k to 260k tokens is built in a few milliseconds
//! and without an allocation per token.

use super::TokenizerError;

/// What a token is for. A token can be several at once: llama.cpp marks an ordinary entry
/// that looks like an end of turn as control without it ceasing to be ordinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenKind(u8);

impl TokenKind {
    pub(crate) const NORMAL: Self = Self(1);
    pub(crate) const UNKNOWN: Self = Self(1 << 1);
    pub(crate) const CONTROL: Self = Self(1 << 2);
    pub(crate) const USER_DEFINED: Self = Self(1 << 3);
    pub(crate) const UNUSED: Self = Self(1 << 4);
    pub(crate) const BYTE: Self = Self(1 << 5);
    /// A type number outside of the ones GGUF defines.
    pub(crate) const UNDEFINED: Self = Self(0);

    /// From an entry of `tokenizer.ggml.token_type`.
    pub(crate) fn from_gguf(value: i32) -> Self {
        match value {
            1 => Self::NORMAL,
            2 => Self::UNKNOWN,
            3 => Self::CONTROL,
            4 => Self::USER_DEFINED,
            5 => Self::UNUSED,
            6 => Self::BYTE,
            _ => Self::UNDEFINED,
        }
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `kinds` applies.
    pub(crate) const fn is(self, kinds: Self) -> bool {
        self.0 & kinds.0 != 0
    }
}

/// Tokens that `parse_special = false` leaves as plain text and that decoding hides.
pub(crate) const HIDDEN: TokenKind = TokenKind::CONTROL.or(TokenKind::UNKNOWN);
/// Tokens that are cut out of the text before anything else.
pub(crate) const SPECIAL: TokenKind = HIDDEN.or(TokenKind::USER_DEFINED);

const FREE: u32 = u32::MAX;

/// Texts, kinds and scores of all tokens.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    bytes: Vec<u8>,
    /// `ends[id]` is where the text of `id` ends in `bytes`; it starts where the one before ends.
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    scores: Vec<f32>,
    /// Ids by hash of their text, linear probing, a power of two long and at most half full.
    index: Vec<u32>,
    longest: usize,
}

impl Vocabulary {
    /// `types` and `scores` may be absent; where present they must cover every token.
    pub(crate) fn new<T: AsRef<[u8]>>(
        tokens: &[T],
        types: Option<&[i32]>,
        scores: Option<Vec<f32>>,
    ) -> Result<Self, TokenizerError> {
        let count = tokens.len();
        if count == 0 {
            return Err(TokenizerError::EmptyVocabulary);
        }
        let short = |key, len| TokenizerError::ShortArray {
            key,
            len,
            tokens: count,
        };
        if let Some(types) = types.filter(|types| types.len() < count) {
            return Err(short("tokenizer.ggml.token_type", types.len()));
        }
        if let Some(scores) = scores.as_ref().filter(|scores| scores.len() < count) {
            return Err(short("tokenizer.ggml.scores", scores.len()));
        }

        let mut vocabulary = Self {
            bytes: Vec::with_capacity(tokens.iter().map(|token| token.as_ref().len()).sum()),
            ends: Vec::with_capacity(count),
            kinds: match types {
                Some(types) => types[..count]
                    .iter()
                    .map(|&t| TokenKind::from_gguf(t))
                    .collect(),
                None => vec![TokenKind::NORMAL; count],
            },
            scores: scores.unwrap_or_default(),
            index: vec![FREE; (count * 2).next_power_of_two()],
            longest: 0,
        };
        for (id, token) in tokens.iter().enumerate() {
            let token = token.as_ref();
            if token.is_empty() {
                // An empty text would match everywhere; llama.cpp gives it this name as well.
                vocabulary.push(format!("[EMPTY_{id}]").as_bytes())?;
            } else {
                vocabulary.push(token)?;
            }
        }
        Ok(vocabulary)
    }

    fn push(&mut self, text: &[u8]) -> Result<(), TokenizerError> {
        let id = self.ends.len() as u32;
        let slot = match self.slot(text) {
            Ok(first) => {
                let text = String::from_utf8_lossy(text).into_owned();
                return Err(TokenizerError::DuplicateToken {
                    first,
                    second: id,
                    text,
                });
            }
            Err(slot) => slot,
        };
        self.index[slot] = id;
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
        self.longest = self.longest.max(text.len());
        Ok(())
    }

    /// The id with this text, or the free slot where it would go.
    fn slot(&self, text: &[u8]) -> Result<u32, usize> {
        let mask = self.index.len() - 1;
        let mut slot = hash(text) as usize & mask;
        loop {
            match self.index[slot] {
                FREE => return Err(slot),
                id if self.text(id) == text => return Ok(id),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text of `id` as it stands in the file.
    ///
    /// # Panics
    /// If `id` is not below [`Self::len`].
    pub(crate) fn text(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = if id == 0 {
            0
        } else {
            self.ends[id - 1] as usize
        };
        &self.bytes[start..self.ends[id] as usize]
    }

    /// The id whose text is exactly `text`.
    pub(crate) fn id(&self, text: &[u8]) -> Option<u32> {
        if text.len() > self.longest {
            return None;
        }
        self.slot(text).ok()
    }

    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds[id as usize]
    }

    pub(crate) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        self.kinds[id as usize] = kind;
    }

    /// The score of `id`, 0 in a vocabulary without scores.
    pub(crate) fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    /// The token `<0xXX>` that stands for one byte.
    pub(crate) fn byte_token(&self, byte: u8) -> Option<u32> {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let [high, low] = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        self.id(&[b'<', b'0', b'x', high, low, b'>'])
    }

    /// The byte that a token of the form `<0xXX>` stands for.
    pub(crate) fn byte_of(&self, id: u32) -> Option<u8> {
        let hex = self.text(id).strip_prefix(b"<0x")?.strip_suffix(b">")?;
        u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    }
}

/// A multiplicative hash over words of eight bytes: keys come from the model file and are only
/// looked up afterwards, so speed matters and resistance to chosen keys does not.
fn hash(text: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut state = text.len() as u64;
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        state = (state ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    }
    let mut word = [0; 8];
    word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    state = (state ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    state ^ (state >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_ids_are_inverse() {
        let tokens: Vec<String> = (0..5000).map(|i| format!("token number {i}")).collect();
        let vocabulary = Vocabulary::new(&tokens, None, None).unwrap();
        for (id, token) in tokens.iter().enumerate() {
            assert_eq!(vocabulary.text(id as u32), token.as_bytes());
            assert_eq!(vocabulary.id(token.as_bytes()), Some(id as u32));
        }
        assert_eq!(vocabulary.id(b"token number"), None);
        assert_eq!(vocabulary.id(b""), None);
        assert_eq!(vocabulary.id(b"token number 4999 and more"), None);
    }

    #[test]
    fn an_empty_text_gets_a_name() {
        let vocabulary = Vocabulary::new(&["a", ""], None, None).unwrap();
        assert_eq!(vocabulary.text(1), b"[EMPTY_1]");
    }

    #[test]
    fn byte_tokens_both_ways() {
        let vocabulary = Vocabulary::new(&["<0x0A>", "<0xFF>", "<0xZZ>"], None, None).unwrap();
        assert_eq!(vocabulary.byte_token(0xFF), Some(1));
        assert_eq!(vocabulary.byte_token(0x41), None);
        assert_eq!(vocabulary.byte_of(0), Some(b'\n'));
        assert_eq!(vocabulary.byte_of(2), None);
    }

    #[test]
    fn duplicate_token() {
        let error = Vocabulary::new(&["a", "b", "a"], None, None).unwrap_err();
        assert!(
            matches!(
                error,
                TokenizerError::DuplicateToken {
                    first: 0,
                    second: 2,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn empty_vocabulary() {
        assert!(matches!(
            Vocabulary::new::<&str>(&[], None, None),
            Err(TokenizerError::EmptyVocabulary)
        ));
    }

    #[test]
    fn short_arrays() {
        let tokens = ["a", "b"];
        let error = Vocabulary::new(&tokens, Some(&[1]), None).unwrap_err();
        assert!(
            matches!(
                error,
                TokenizerError::ShortArray {
                    len: 1,
                    tokens: 2,
                    ..
                }
            ),
            "{error}"
        );
        let error = Vocabulary::new(&tokens, None, Some(vec![])).unwrap_err();
        assert!(
            matches!(
                error,
                TokenizerError::ShortArray {
                    len: 0,
                    tokens: 2,
                    ..
                }
            ),
            "{error}"
        );
    }
}
