//! Which tower goes with which text model.

use burn_gguf::gguf::{Gguf, GgufError};

use super::super::processor::ProcessorKind;
use super::{Mmproj, MmprojError};

use ProcessorKind::{DeepSeek4V, Gemma4Uv, Gemma4V, Glm4V, Glm5V, MiniMaxM3, MuseGlimmer, Qwen3Vl};

/// Towers by `general.architecture` of the text model. An architecture that is not here takes text only.
const TOWERS: &[(&str, &[ProcessorKind])] = &[
    ("qwen3vl", &[Qwen3Vl]),
    ("qwen3vlmoe", &[Qwen3Vl]),
    ("qwen35", &[Qwen3Vl]),
    ("qwen35moe", &[Qwen3Vl]),
    ("gemma4", &[Gemma4V, Gemma4Uv]),
    ("glm4", &[Glm4V]),
    ("glm4moe", &[Glm4V]),
    ("glm5-next", &[Glm5V]),
    ("deepseek4", &[DeepSeek4V]),
    ("minimax-m3", &[MiniMaxM3]),
    ("muse-glimmer", &[MuseGlimmer]),
];

/// The towers a text model of this architecture takes; none where it takes no images.
pub fn towers(architecture: &str) -> &'static [ProcessorKind] {
    TOWERS
        .iter()
        .find(|(name, _)| *name == architecture)
        .map_or(&[], |(_, kinds)| kinds)
}

/// The tokens that stand around an image, as the tokenizer spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaTokens {
    /// Before the image.
    pub begin: Option<&'static str>,
    /// After it.
    pub end: Option<&'static str>,
}

impl MediaTokens {
    const fn new(begin: &'static str, end: &'static str) -> Self {
        Self {
            begin: Some(begin),
            end: Some(end),
        }
    }

    /// The tokens of a projector. `deepseek4v` has none: what stands around its images are rows of the mmproj file.
    pub const fn of(kind: ProcessorKind) -> Self {
        match kind {
            Qwen3Vl => Self::new("<|vision_start|>", "<|vision_end|>"),
            Gemma4V | Gemma4Uv => Self::new("<|image>", "<image|>"),
            Glm4V | Glm5V => Self::new("<|begin_of_image|>", "<|end_of_image|>"),
            MiniMaxM3 => Self::new("]<]start of image[>[", "]<]end of image[>["),
            MuseGlimmer => Self::new("<|image_start|>", "<|image_end|>"),
            DeepSeek4V => Self {
                begin: None,
                end: None,
            },
        }
    }
}

/// What a tower must fit to.
#[derive(Clone, Copy)]
pub struct TextFacts<'a> {
    /// `general.architecture` of the text model.
    pub architecture: &'a str,
    /// Width of an image row: the model's width, times 1 more than its DeepStack layers. See [`image_width`].
    pub image_width: usize,
    /// Whether the tokenizer has a token of this text.
    pub has_token: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for TextFacts<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TextFacts")
            .field("architecture", &self.architecture)
            .field("image_width", &self.image_width)
            .finish_non_exhaustive()
    }
}

/// The width of an image row of a text model: `embedding_length * (1 + n_deepstack_layers)`.
///
/// # Errors
/// A key that is missing or of another kind.
pub fn image_width(text: &Gguf) -> Result<usize, GgufError> {
    let metadata = text.metadata();
    let architecture = metadata.architecture()?;
    let key = |name: &str| format!("{architecture}.{name}");
    let hidden: usize = metadata.get(&key("embedding_length"))?;
    // Files of Ollama list the layers of the tower instead.
    let listed = metadata
        .get_optional::<Vec<i64>>(&key("vision.deepstack_visual_indexes"))?
        .map_or(0, |layers| layers.len());
    let layers: usize = metadata.get_or(&key("n_deepstack_layers"), listed)?;
    Ok(hidden.saturating_mul(layers.saturating_add(1)))
}

impl Mmproj {
    /// Whether this tower belongs to a text model.
    ///
    /// # Errors
    /// [`TextOnly`](MmprojError::TextOnly), [`Family`](MmprojError::Family), [`Width`](MmprojError::Width),
    /// [`Tokens`](MmprojError::Tokens).
    pub fn fits(&self, text: &TextFacts<'_>) -> Result<(), MmprojError> {
        let file = || self.gguf.file().clone();
        let takes = towers(text.architecture);
        if takes.is_empty() {
            return Err(MmprojError::TextOnly {
                file: file(),
                architecture: text.architecture.to_owned(),
            });
        }
        if !takes.contains(&self.kind) {
            return Err(MmprojError::Family {
                file: file(),
                projector: self.kind,
                architecture: text.architecture.to_owned(),
                takes,
            });
        }
        if self.output_width() != text.image_width {
            return Err(MmprojError::Width {
                file: file(),
                width: self.output_width(),
                parts: 1 + self.config.deepstack_layers.len(),
                projection: self.config.projection_dim,
                expected: text.image_width,
            });
        }
        let tokens = self.media_tokens();
        let missing: Vec<_> = [tokens.begin, tokens.end]
            .into_iter()
            .flatten()
            .filter(|token| !(text.has_token)(token))
            .collect();
        if !missing.is_empty() {
            return Err(MmprojError::Tokens {
                file: file(),
                projector: self.kind,
                missing,
            });
        }
        Ok(())
    }

    /// Whether the text model has the positions that this tower's images take: GLM-4 text files are also converted
    /// without, and then read images as if all rows were in one line.
    pub(crate) fn has_positions(&self, text: &Gguf) -> Result<(), MmprojError> {
        if self.kind != Glm4V {
            return Ok(());
        }
        let key = format!(
            "{}.rope.dimension_sections",
            text.metadata().architecture()?
        );
        let sections: Option<Vec<i64>> = text.metadata().get_optional(&key)?;
        match sections {
            Some(sections) if sections.iter().any(|&n| n > 0) => Ok(()),
            _ => Err(MmprojError::Positions {
                file: self.gguf.file().clone(),
                projector: self.kind,
                key,
            }),
        }
    }
}
