//! Byte-level BPE (`tokenizer.ggml.model = gpt2`): words split by the pre-tokenizer, bytes
//! written as printable characters, merges by rank through the `tokenizers` crate.

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab};

use super::TokenizerError;
use super::pretokenizer::PreTokenizer;
use super::raw_bpe::split_merge;
use super::text::Text;
use super::vocabulary::Vocabulary;

/// Merges and the rule that splits words.
#[derive(Debug)]
pub(crate) struct ByteBpe {
    model: BPE,
    pre: PreTokenizer,
    /// Whether some byte has no token of its own.
    incomplete: bool,
}

impl ByteBpe {
    /// `merges` are lines of `left right`, most important first.
    pub(crate) fn new(
        merges: &[impl AsRef<[u8]>],
        pre: PreTokenizer,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TokenizerError> {
        let merges = merges
            .iter()
            .enumerate()
            .map(|(index, line)| {
                let (left, right) = split_merge(index, line.as_ref())?;
                Ok((string(left), string(right)))
            })
            .collect::<Result<Vec<_>, TokenizerError>>()?;
        let ids: Vocab = (0..vocabulary.len() as u32).map(|id| (string(vocabulary.text(id)), id)).collect();
        let model = BPE::builder()
            .vocab_and_merges(ids, merges)
            .ignore_merges(pre.ignore_merges())
            .build()
            .map_err(|error| TokenizerError::Merges(error.to_string()))?;
        let incomplete = ALPHABET.characters.iter().any(|&c| !has(vocabulary, c));
        Ok(Self { model, pre, incomplete })
    }

    /// Appends the ids of one fragment of text.
    pub(crate) fn encode(
        &self,
        text: &[u8],
        vocabulary: &Vocabulary,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let text = Text::new(text);
        let mut word = String::new();
        for piece in self.pre.split(text.as_str()) {
            word.clear();
            word.extend(text.bytes(piece).iter().map(|&byte| ALPHABET.characters[usize::from(byte)]));
            if self.incomplete {
                // Bytes without a token are dropped, and nothing merges across them.
                for part in word.split(|c| !has(vocabulary, c)).filter(|part| !part.is_empty()) {
                    self.encode_word(part, out)?;
                }
            } else {
                self.encode_word(&word, out)?;
            }
        }
        Ok(())
    }

    fn encode_word(&self, word: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens = self.model.tokenize(word).map_err(|error| TokenizerError::Encode(error.to_string()))?;
        out.extend(tokens.iter().map(|token| token.id));
        Ok(())
    }
}

/// The bytes that the text of an ordinary token stands for.
pub(crate) fn decode(token: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(token.len());
    for character in String::from_utf8_lossy(token).chars() {
        match ALPHABET.byte(character) {
            Some(byte) => bytes.push(byte),
            // Not written in the byte alphabet: the text itself is the best guess.
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// Tokens of the byte alphabet are always UTF-8; others only have to be told apart.
fn string(token: &[u8]) -> String {
    String::from_utf8_lossy(token).into_owned()
}

fn has(vocabulary: &Vocabulary, character: char) -> bool {
    vocabulary.id(character.encode_utf8(&mut [0; 4]).as_bytes()).is_some()
}

/// GPT-2's printable stand-ins for bytes: the printable Latin-1 characters are themselves, the
/// other 68 bytes are numbered from U+0100 on.
#[derive(Debug)]
struct ByteAlphabet {
    characters: [char; 256],
    bytes: [Option<u8>; 0x144],
}

static ALPHABET: ByteAlphabet = ByteAlphabet::new();

impl ByteAlphabet {
    const fn new() -> Self {
        let mut alphabet = Self { characters: ['\0'; 256], bytes: [None; 0x144] };
        let mut byte = 0;
        let mut next = 0x100;
        while byte < 256 {
            let mut code = byte as u32;
            if !matches!(code, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) {
                code = next;
                next += 1;
            }
            if let Some(character) = char::from_u32(code) {
                alphabet.characters[byte] = character;
            }
            alphabet.bytes[code as usize] = Some(byte as u8);
            byte += 1;
        }
        alphabet
    }

    fn byte(&self, character: char) -> Option<u8> {
        self.bytes.get(character as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_alphabet_is_gpt2s() {
        assert_eq!(ALPHABET.characters[usize::from(b' ')], 'Ġ');
        assert_eq!(ALPHABET.characters[usize::from(b'\n')], 'Ċ');
        assert_eq!(ALPHABET.characters[0], 'Ā');
        assert_eq!(ALPHABET.characters[0xAD], 'Ń');
        for byte in 0..=u8::MAX {
            assert_eq!(ALPHABET.byte(ALPHABET.characters[usize::from(byte)]), Some(byte));
        }
        assert_eq!(ALPHABET.byte('東'), None);
    }

    #[test]
    fn bytes_without_a_token_are_dropped_and_block_merges() {
        let tokens = ["a", "b", "ab"];
        let vocabulary = Vocabulary::new(&tokens, None, None).unwrap();
        let pre = PreTokenizer::new("qwen2").unwrap();
        let bpe = ByteBpe::new(&["a b"], pre, &vocabulary).unwrap();
        let mut out = Vec::new();
        bpe.encode("abaèb".as_bytes(), &vocabulary, &mut out).unwrap();
        assert_eq!(out, [2, 0, 1]);
    }

    #[test]
    fn merges_outside_of_the_vocabulary() {
        let tokens = ["a", "b"];
        let vocabulary = Vocabulary::new(&tokens, None, None).unwrap();
        let pre = PreTokenizer::new("qwen2").unwrap();
        let error = ByteBpe::new(&["a b"], pre, &vocabulary).unwrap_err();
        assert!(matches!(error, TokenizerError::Merges(_)), "{error}");
    }
}
