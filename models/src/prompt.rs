//! Prompts of tokens and images.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;

use crate::layers::Positions;
use crate::model::ImagePositions;
use crate::vision::image::ContentHash;
use crate::vision::processor::Grid;

/// The rows of an image, as its tower embedded it.
#[derive(Clone, Debug)]
pub struct ImageRows {
    /// `[rows, width]`, the width the text model's [`image_width`](crate::TextModel::image_width).
    pub embeddings: Tensor<2>,
    /// How the rows lie in the picture.
    pub grid: Grid,
    /// What is shown: equal for equal pixels.
    pub hash: ContentHash,
}

/// A piece of a [`Prompt`].
#[derive(Clone, Debug)]
pub enum PromptPart {
    /// Token ids.
    Tokens(Vec<u32>),
    /// An image.
    Image(Arc<ImageRows>),
}

impl PromptPart {
    fn len(&self) -> usize {
        match self {
            Self::Tokens(tokens) => tokens.len(),
            Self::Image(image) => image.grid.len(),
        }
    }
}

/// One row of a prompt: what a cache holds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRow {
    /// A token.
    Token(u32),
    /// A row of an image.
    Image {
        /// Which image.
        hash: ContentHash,
        /// Which of its rows.
        row: u32,
    },
}

/// What a model reads: tokens, and images between them.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    parts: Vec<PromptPart>,
}

impl Prompt {
    /// An empty prompt.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds tokens.
    pub fn push_tokens(&mut self, tokens: impl IntoIterator<Item = u32>) {
        match self.parts.last_mut() {
            Some(PromptPart::Tokens(last)) => last.extend(tokens),
            _ => self
                .parts
                .push(PromptPart::Tokens(tokens.into_iter().collect())),
        }
    }

    /// Adds an image.
    pub fn push_image(&mut self, image: Arc<ImageRows>) {
        self.parts.push(PromptPart::Image(image));
    }

    /// The pieces in order.
    pub fn parts(&self) -> &[PromptPart] {
        &self.parts
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.parts.iter().map(PromptPart::len).sum()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = PromptRow> {
        self.parts.iter().flat_map(|part| {
            (0..part.len()).map(move |row| match part {
                PromptPart::Tokens(tokens) => PromptRow::Token(tokens[row]),
                PromptPart::Image(image) => PromptRow::Image {
                    hash: image.hash,
                    row: row as u32,
                },
            })
        })
    }

    /// The token ids, without the images.
    pub fn tokens(&self) -> impl Iterator<Item = u32> {
        self.rows().filter_map(|row| match row {
            PromptRow::Token(token) => Some(token),
            PromptRow::Image { .. } => None,
        })
    }

    /// Where the rows stand, the first of them at `start`.
    pub fn positions(&self, kind: ImagePositions, start: usize) -> Positions {
        let mut positions = Positions::default();
        for part in &self.parts {
            match (part, kind) {
                (PromptPart::Image(image), ImagePositions::Grid) => {
                    positions.push_grid(start, image.grid.rows, image.grid.columns);
                }
                _ => positions.push_text(start, part.len()),
            }
        }
        positions
    }

    /// The rows of the first image that does not end before row `from`, or at it.
    pub(crate) fn image_from(&self, from: usize) -> Option<Range<usize>> {
        let mut first = 0;
        self.parts.iter().find_map(|part| {
            let rows = first..first + part.len();
            first = rows.end;
            (matches!(part, PromptPart::Image(_)) && rows.end > from).then_some(rows)
        })
    }

    /// The pieces of the rows `from..to`, with the range of each piece's own rows.
    pub(crate) fn pieces(&self, from: usize, to: usize) -> Vec<(&PromptPart, usize, usize)> {
        let mut first = 0;
        let mut pieces = Vec::new();
        for part in &self.parts {
            let end = first + part.len();
            let (a, b) = (from.max(first), to.min(end));
            if a < b {
                pieces.push((part, a - first, b - first));
            }
            first = end;
        }
        pieces
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Self {
        Self {
            parts: vec![PromptPart::Tokens(tokens)],
        }
    }
}

impl From<&[u32]> for Prompt {
    fn from(tokens: &[u32]) -> Self {
        tokens.to_vec().into()
    }
}

impl From<&Vec<u32>> for Prompt {
    fn from(tokens: &Vec<u32>) -> Self {
        tokens.clone().into()
    }
}

impl From<&Prompt> for Prompt {
    fn from(prompt: &Prompt) -> Self {
        prompt.clone()
    }
}
