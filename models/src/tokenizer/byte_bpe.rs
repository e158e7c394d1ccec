//! Byte-level BPE (`tokenizer.ggml.model = gpt2`): words split by the pre-tokenizer, bytes
//! merged by rank. Tokens are written in an alphabet of printable characters, one per byte.

use super::TokenizerError;
use super::merge::{MergeTable, Merger};
use super::pretokenizer::PreTokenizer;
use super::text::Text;
use super::vocabulary::Vocabulary;

/// Merges and the rule that splits words.
#[derive(Debug)]
pub(crate) struct ByteBpe {
    merges: MergeTable,
    pre: PreTokenizer,
    /// The token of each single byte.
    bytes: [Option<u32>; 256],
}

impl ByteBpe {
    /// `merges` are lines of `left right`, lowest rank first.
    pub(crate) fn new<T: AsRef<[u8]>>(
        merges: &[T],
        pre: PreTokenizer,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TokenizerError> {
        let bytes = ALPHABET
            .characters
            .map(|c| vocabulary.id(c.encode_utf8(&mut [0; 4]).as_bytes()));
        Ok(Self {
            merges: MergeTable::new(merges, vocabulary)?,
            pre,
            bytes,
        })
    }

    /// Appends the ids of one fragment of text. A byte without a token is dropped, and nothing
    /// merges across it.
    pub(crate) fn encode(&self, text: &[u8], vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let text = Text::new(text);
        let mut merger = Merger::default();
        let mut spelled = String::new();
        for piece in self.pre.split(text.as_str()) {
            let word = text.bytes(piece);
            if self.pre.ignore_merges() {
                spelled.clear();
                spelled.extend(
                    word.iter()
                        .map(|&byte| ALPHABET.characters[usize::from(byte)]),
                );
                if let Some(id) = vocabulary.id(spelled.as_bytes()) {
                    out.push(id);
                    continue;
                }
            }
            let symbols = word.iter().map(|&byte| (1, self.bytes[usize::from(byte)]));
            merger.merge(&word, symbols, &self.merges, |id, _| out.extend(id));
        }
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
        let mut alphabet = Self {
            characters: ['\0'; 256],
            bytes: [None; 0x144],
        };
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
            assert_eq!(
                ALPHABET.byte(ALPHABET.characters[usize::from(byte)]),
                Some(byte)
            );
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
        bpe.encode("abaèb".as_bytes(), &vocabulary, &mut out);
        assert_eq!(out, [2, 0, 1]);
    }

    #[test]
    fn a_word_in_the_vocabulary_needs_no_merges_if_they_are_ignored() {
        let tokens = ["a", "b", "c", "ab", "abc"];
        let vocabulary = Vocabulary::new(&tokens, None, None).unwrap();
        for (pre, expected) in [("glm4", vec![4]), ("qwen2", vec![3, 2])] {
            let bpe = ByteBpe::new(&["a b"], PreTokenizer::new(pre).unwrap(), &vocabulary).unwrap();
            let mut out = Vec::new();
            bpe.encode(b"abc", &vocabulary, &mut out);
            assert_eq!(out, expected, "{pre}");
        }
    }
}
