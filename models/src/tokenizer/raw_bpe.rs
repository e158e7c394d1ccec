//! BPE over raw UTF-8 characters (`tokenizer.ggml.model = gemma4`): spaces become U+2581, text
//! is only split at runs of newlines, and characters without a token become byte tokens.

use super::TokenizerError;
use super::merge::{MergeTable, Merger};
use super::spm::mark_spaces;
use super::text::{Text, characters};
use super::vocabulary::Vocabulary;

/// Merges by rank.
#[derive(Debug)]
pub(crate) struct RawBpe {
    merges: MergeTable,
}

impl RawBpe {
    /// `merges` are lines of `left right`, lowest rank first.
    pub(crate) fn new<T: AsRef<[u8]>>(
        merges: &[T],
        vocabulary: &Vocabulary,
    ) -> Result<Self, TokenizerError> {
        Ok(Self {
            merges: MergeTable::new(merges, vocabulary)?,
        })
    }

    /// Appends the ids of one fragment of text.
    pub(crate) fn encode(&self, text: &[u8], vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let marked = mark_spaces(text, false);
        let text = Text::new(&marked);
        let mut merger = Merger::default();
        for piece in newline_runs(text.as_str()) {
            let bytes = text.bytes(piece);
            // A run of newlines is one token where the vocabulary has it, merges or not.
            if bytes.starts_with(b"\n")
                && let Some(id) = vocabulary.id(&bytes)
            {
                out.push(id);
                continue;
            }
            merger.merge(
                &bytes,
                characters(&bytes, vocabulary),
                &self.merges,
                |id, bytes| match id {
                    Some(id) => out.push(id),
                    None => {
                        out.extend(bytes.iter().filter_map(|&byte| vocabulary.byte_token(byte)))
                    }
                },
            );
        }
    }
}

/// Ranges of `text` that are all newlines or contain none.
fn newline_runs(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let mut start = 0;
    std::iter::from_fn(move || {
        let newline = *bytes.get(start)? == b'\n';
        let length = bytes[start..]
            .iter()
            .take_while(|&&byte| (byte == b'\n') == newline)
            .count();
        let run = start..start + length;
        start = run.end;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_by_rank_with_byte_fallback() {
        let tokens = [
            "a", "b", "c", "ab", "bc", "▁", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>",
        ];
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
}
