//! A Hugging Face tokenizer.json in place of the GGUF's own rules.

use std::path::Path;

use burn_gguf::gguf::Metadata;

use super::partition::Partition;
use super::special::SpecialTokens;
use super::{Algorithm, Tokenizer, TokenizerError, read_vocabulary};

/// How the texts of ordinary tokens are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// GPT-2's printable bytes.
    Bytes,
    /// UTF-8 with U+2581 for a space.
    Marked,
}

impl Tokenizer {
    /// A tokenizer that encodes as the tokenizer.json at `path` says, for GGUF files whose own
    /// rules are unknown. The vocabulary, special tokens and the end-of-generation set stay those
    /// of the file, so both must belong to the same model.
    ///
    /// # Errors
    /// [`TokenizerError::Json`] if the file cannot be read, [`TokenizerError::JsonMismatch`] if
    /// it belongs to another model, or what is wrong with the GGUF's vocabulary.
    pub fn from_json(metadata: &Metadata, path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let json = tokenizers::Tokenizer::from_file(path)
            .map_err(|error| TokenizerError::Json(error.to_string()))?;
        let mut vocabulary = read_vocabulary(metadata)?;
        for id in 0..vocabulary.len() as u32 {
            let gguf = vocabulary.text(id);
            // Ids past the end of tokenizer.json are padding of the embedding table.
            if let Some(token) = json
                .id_to_token(id)
                .filter(|token| token.as_bytes() != gguf)
            {
                let gguf = String::from_utf8_lossy(gguf).into_owned();
                return Err(TokenizerError::JsonMismatch {
                    id,
                    json: token,
                    gguf,
                });
            }
        }
        let alphabet = if vocabulary.id("Ġ".as_bytes()).is_some() {
            Alphabet::Bytes
        } else {
            Alphabet::Marked
        };
        let special = SpecialTokens::read(metadata, &mut vocabulary, SpecialTokens::default())?;
        Ok(Self {
            partition: Partition::new(&vocabulary)?,
            add_bos: metadata.get_or("tokenizer.ggml.add_bos_token", false)?,
            add_eos: metadata.get_or("tokenizer.ggml.add_eos_token", false)?,
            space_prefix: false,
            vocabulary,
            algorithm: Algorithm::Json(Box::new(json), alphabet),
            special,
        })
    }
}

/// Appends the ids of one fragment of text, U+FFFD for what is not UTF-8.
pub(crate) fn encode(
    json: &tokenizers::Tokenizer,
    text: &[u8],
    out: &mut Vec<u32>,
) -> Result<(), TokenizerError> {
    let text = String::from_utf8_lossy(text);
    let encoding = json
        .encode_fast(&*text, false)
        .map_err(|error| TokenizerError::Encode(error.to_string()))?;
    out.extend_from_slice(encoding.get_ids());
    Ok(())
}
