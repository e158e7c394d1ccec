//! Text to token ids and back, from the GGUF file alone.
//!
//! | `tokenizer.ggml.model` | algorithm | families |
//! |---|---|---|
//! | `gpt2` | byte-level BPE, words split by `tokenizer.ggml.pre` | Qwen, GLM, DeepSeek, MiniMax, Llama 3 |
//! | `llama` | SentencePiece BPE by scores, with byte fallback | Gemma 3, Llama 2 |
//! | `gemma4` | BPE over characters, with byte fallback | Gemma 4 |
//!
//! Ids equal llama.cpp's. Where a file's own rules are not known (`tokenizer.ggml.pre` absent or
//! unheard of) there is an error rather than a guess; [`Tokenizer::from_metadata_with_pre`] and
//! [`Tokenizer::from_json`] are the ways out.

mod byte_bpe;
mod error;
mod json;
mod merge;
mod partition;
mod pretokenizer;
mod raw_bpe;
mod special;
mod spm;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod vocabulary;

use burn_gguf::gguf::Metadata;

use byte_bpe::ByteBpe;
use partition::{Fragment, Partition};
use pretokenizer::PreTokenizer;
use raw_bpe::RawBpe;
use vocabulary::{HIDDEN, SPECIAL, TokenKind, Vocabulary};

pub use error::TokenizerError;
pub use special::SpecialTokens;
pub use stream::DecodeStream;

/// Values of `tokenizer.ggml.model` that can be read.
pub(crate) const SUPPORTED_MODELS: &[&str] = &["gpt2", "llama", "gemma4"];

/// A tokenizer. See the [module](self) for where it comes from.
///
/// ```no_run
/// # use burn_gguf::gguf::Gguf;
/// # use burn_gguf_models::tokenizer::Tokenizer;
/// let gguf = Gguf::open("model.gguf")?;
/// let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
/// let ids = tokenizer.encode("Hello", true, false)?;
/// assert_eq!(tokenizer.decode(&ids, false)?, "Hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    algorithm: Algorithm,
    partition: Partition,
    special: SpecialTokens,
    add_bos: bool,
    add_eos: bool,
    /// Whether a space is put before text at the start and after special tokens.
    space_prefix: bool,
}

#[derive(Debug)]
enum Algorithm {
    ByteBpe(Box<ByteBpe>),
    Spm,
    RawBpe(RawBpe),
    /// The algorithm of a tokenizer.json, and how the texts of tokens are to be read.
    Json(Box<tokenizers::Tokenizer>, json::Alphabet),
}

impl Tokenizer {
    /// Builds the tokenizer that the keys `tokenizer.ggml.*` describe.
    ///
    /// # Errors
    /// [`TokenizerError::MissingPre`] and [`TokenizerError::UnknownPre`] for a BPE vocabulary
    /// whose splitting rule is not known, [`TokenizerError::UnsupportedModel`] for another
    /// algorithm, [`TokenizerError::NoTokenizer`] for a file without a vocabulary, and others for
    /// keys that contradict each other.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        Self::build(metadata, metadata.get_optional("tokenizer.ggml.pre")?)
    }

    /// Like [`Self::from_metadata`], with `pre` in place of the file's `tokenizer.ggml.pre`: for
    /// files that leave it out or have a name of their own for a known rule.
    ///
    /// # Errors
    /// Those of [`Self::from_metadata`].
    pub fn from_metadata_with_pre(metadata: &Metadata, pre: &str) -> Result<Self, TokenizerError> {
        Self::build(metadata, Some(pre))
    }

    fn build(metadata: &Metadata, pre: Option<&str>) -> Result<Self, TokenizerError> {
        let model = model_name(metadata)?;
        if !SUPPORTED_MODELS.contains(&model) {
            return Err(TokenizerError::UnsupportedModel(model.to_owned()));
        }
        let mut vocabulary = read_vocabulary(metadata)?;
        let merges = || metadata.get::<Vec<&[u8]>>("tokenizer.ggml.merges");

        let (algorithm, defaults) = match model {
            "gpt2" => {
                let pre = PreTokenizer::new(pre.ok_or(TokenizerError::MissingPre)?)?;
                let add_bos = pre.add_bos();
                let bpe = ByteBpe::new(&merges()?, pre, &vocabulary)?;
                (
                    Algorithm::ByteBpe(Box::new(bpe)),
                    Defaults {
                        add_bos,
                        ..Defaults::default()
                    },
                )
            }
            "gemma4" => {
                let bpe = RawBpe::new(&merges()?, &vocabulary)?;
                (
                    Algorithm::RawBpe(bpe),
                    Defaults {
                        add_bos: true,
                        force_bos: true,
                        ..Defaults::default()
                    },
                )
            }
            _ => (Algorithm::Spm, Defaults::SPM),
        };
        let ids = SpecialTokens {
            bos: defaults.bos,
            eos: defaults.eos,
            unknown: defaults.unknown,
            ..SpecialTokens::default()
        };
        let special = SpecialTokens::read(metadata, &mut vocabulary, ids)?;
        let flag = |key: &str, default| metadata.get_or(&format!("tokenizer.ggml.{key}"), default);
        Ok(Self {
            partition: Partition::new(&vocabulary)?,
            add_bos: flag("add_bos_token", defaults.add_bos)? || defaults.force_bos,
            add_eos: flag("add_eos_token", false)?,
            space_prefix: flag("add_space_prefix", defaults.space_prefix)?
                && matches!(algorithm, Algorithm::Spm),
            vocabulary,
            algorithm,
            special,
        })
    }

    /// The ids of `text`, which may be any bytes: what is not UTF-8 becomes U+FFFD or byte tokens,
    /// depending on the vocabulary.
    ///
    /// `add_special` adds BOS and EOS as the file asks for. `parse_special` reads control tokens
    /// written in the text, such as `<|im_start|>`; without it they are ordinary text, as they
    /// should be in text from a user.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`] if a tokenizer.json refuses the text; never for a GGUF tokenizer.
    pub fn encode(
        &self,
        text: impl AsRef<[u8]>,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let text = text.as_ref();
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if add_special && self.add_bos {
            ids.extend(self.special.bos);
        }
        let mut after_special = true;
        for fragment in self.partition.split(text, &self.vocabulary, parse_special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => self.encode_fragment(text, after_special, &mut ids)?,
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if add_special && self.add_eos {
            ids.extend(self.special.eos);
        }
        Ok(ids)
    }

    fn encode_fragment(
        &self,
        text: &[u8],
        after_special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        match &self.algorithm {
            Algorithm::ByteBpe(bpe) => bpe.encode(text, &self.vocabulary, ids),
            Algorithm::RawBpe(bpe) => bpe.encode(text, &self.vocabulary, ids),
            Algorithm::Spm => {
                let prefix = self.space_prefix && after_special;
                spm::encode(text, prefix, &self.vocabulary, self.special.unknown, ids);
            }
            Algorithm::Json(json, _) => json::encode(json, text, ids)?,
        }
        Ok(())
    }

    /// The ids of a whole prompt, such as a rendered chat template: control tokens are read, and
    /// BOS stands in front exactly once if the file asks for it, whether or not the text already
    /// begins with it.
    ///
    /// # Errors
    /// Those of [`Self::encode`].
    pub fn encode_prompt(&self, text: impl AsRef<[u8]>) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text, true, true)?;
        if self.add_bos && ids.len() > 1 && self.special.bos == Some(ids[0]) {
            let repeated = ids[1..].iter().take_while(|&&id| id == ids[0]).count();
            ids.drain(..repeated);
        }
        Ok(ids)
    }

    /// The text of `ids`; what is not UTF-8 becomes U+FFFD. See [`Self::decode_bytes`].
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn decode(&self, ids: &[u32], special: bool) -> Result<String, TokenizerError> {
        let bytes = self.decode_bytes(ids, special)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The bytes of `ids`. Control tokens are written out with `special` and skipped without it.
    ///
    /// Nothing is cleaned up: llama.cpp's detokenizer additionally removes spaces before
    /// punctuation in some BPE vocabularies, which loses text.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn decode_bytes(&self, ids: &[u32], special: bool) -> Result<Vec<u8>, TokenizerError> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for (index, &id) in ids.iter().enumerate() {
            let mut piece = self.piece(id, special)?;
            if index == 0 {
                self.trim_prefix(&mut piece);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The bytes that one token stands for: often not whole characters. Empty for a control token
    /// unless `special` is set, and for entries that are not in use.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn piece(&self, id: u32, special: bool) -> Result<Vec<u8>, TokenizerError> {
        self.check(id)?;
        let (text, kind) = (self.vocabulary.text(id), self.vocabulary.kind(id));
        Ok(if kind.is(HIDDEN) && !special {
            Vec::new()
        } else if kind.is(SPECIAL) {
            text.to_vec()
        } else if kind.is(TokenKind::NORMAL) {
            match &self.algorithm {
                Algorithm::ByteBpe(_) | Algorithm::Json(_, json::Alphabet::Bytes) => {
                    byte_bpe::decode(text)
                }
                _ => spm::unmark_spaces(text),
            }
        } else if kind.is(TokenKind::BYTE) {
            self.vocabulary.byte_of(id).into_iter().collect()
        } else {
            Vec::new()
        })
    }

    /// Removes the space that encoding put before the first word.
    pub(crate) fn trim_prefix(&self, piece: &mut Vec<u8>) {
        if self.space_prefix && piece.first() == Some(&b' ') {
            piece.remove(0);
        }
    }

    fn check(&self, id: u32) -> Result<(), TokenizerError> {
        let size = self.vocabulary.len();
        if (id as usize) < size {
            Ok(())
        } else {
            Err(TokenizerError::UnknownId { id, size })
        }
    }

    /// The id of the token whose text in the file is `text`.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocabulary.id(text.as_bytes())
    }

    /// The text of `id` as it stands in the file (`Ġthe`, `▁the`), U+FFFD where it is not UTF-8.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn token_text(&self, id: u32) -> Result<String, TokenizerError> {
        self.check(id)?;
        Ok(String::from_utf8_lossy(self.vocabulary.text(id)).into_owned())
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Ids with a meaning of their own.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// Begin of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// End of sequence.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// End of turn.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// Whether `encode` with `add_special` puts BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether `encode` with `add_special` puts EOS at the end.
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether `id` ends generation.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.special.end_of_generation.binary_search(&id).is_ok()
    }
}

/// What holds where the file has no key.
#[derive(Debug, Default)]
struct Defaults {
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    add_bos: bool,
    /// Gemma 4 files say `add_bos_token = false` by mistake.
    force_bos: bool,
    space_prefix: bool,
}

impl Defaults {
    const SPM: Self = Self {
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        add_bos: true,
        force_bos: false,
        space_prefix: true,
    };
}

fn model_name(metadata: &Metadata) -> Result<&str, TokenizerError> {
    match metadata.get_optional("tokenizer.ggml.model")? {
        Some(name @ ("no_vocab" | "none")) => Err(TokenizerError::NoTokenizer(format!("`{name}`"))),
        Some(name) => Ok(name),
        None => Err(TokenizerError::NoTokenizer("absent".to_owned())),
    }
}

fn read_vocabulary(metadata: &Metadata) -> Result<Vocabulary, TokenizerError> {
    let types: Option<Vec<i32>> = metadata.get_optional("tokenizer.ggml.token_type")?;
    let scores = metadata.get_optional("tokenizer.ggml.scores")?;
    Vocabulary::new(
        &metadata.get::<Vec<&[u8]>>("tokenizer.ggml.tokens")?,
        types.as_deref(),
        scores,
    )
}
