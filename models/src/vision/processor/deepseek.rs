//! `deepseek4v`: a size whose token block, separators included, fits the budget; and that block.

use super::ProcessorConfig;
use super::size::{Grid, Placement};

/// Colour of the margins.
const GREY: [u8; 3] = [127; 3];
/// A block starts at a position that is 3 modulo 4.
const ALIGN: usize = 4;

/// One row of the block that enters the text model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockRow {
    /// The embedding `v.token_embd.img_pad`.
    Pad,
    /// The embedding `v.token_embd.img_start`.
    Start,
    /// The embedding `v.image_newline`.
    Newline,
    /// The embedding `v.token_embd.img_end`.
    End,
    /// A token of the picture, by its index in raster order.
    Token(usize),
}

/// The rows of a picture of `grid` tokens: pairs of picture rows are interleaved, each ends in a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    grid: Grid,
    lead_pad: usize,
}

/// Padding before a block that follows `past` tokens of its prompt.
pub fn lead_pad(past: usize) -> usize {
    ALIGN - 1 - past % ALIGN
}

impl Block {
    /// A block behind `lead_pad` paddings.
    pub fn new(grid: Grid, lead_pad: usize) -> Self {
        Self { grid, lead_pad }
    }

    fn row_pairs(&self) -> usize {
        self.grid.rows.div_ceil(2)
    }

    fn row_len(&self) -> usize {
        self.grid.columns + 1
    }

    fn tail_pad(&self) -> usize {
        2 * (self.row_pairs() * self.row_len() % 2)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.lead_pad + 1 + 2 * self.row_pairs() * self.row_len() + self.tail_pad() + 1
    }

    /// Never: there are at least start and end.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The rows in order.
    pub fn rows(&self) -> Vec<BlockRow> {
        let mut rows = vec![BlockRow::Pad; self.lead_pad];
        rows.push(BlockRow::Start);
        for pair in 0..self.row_pairs() {
            for column in 0..self.row_len() {
                for row in [2 * pair, 2 * pair + 1] {
                    rows.push(if row >= self.grid.rows {
                        BlockRow::Pad
                    } else if column == self.grid.columns {
                        BlockRow::Newline
                    } else {
                        BlockRow::Token(row * self.grid.columns + column)
                    });
                }
            }
        }
        rows.extend(vec![BlockRow::Pad; self.tail_pad()]);
        rows.push(BlockRow::End);
        rows
    }
}

/// Port of the rules of the model's own `load_image`.
pub(super) fn place(config: &ProcessorConfig, width: u32, height: u32) -> Placement {
    let (patch, merge) = (config.patch_size, config.merge_size);
    let widest = u64::from(config.max_width_ratio) * u64::from(height);
    let squeezed = u64::from(width) >= widest;
    let (mut fit_width, mut fit_height) = (u64::from(width).min(widest) as f64, f64::from(height));
    if fit_width * fit_height < config.min_pixels as f64 {
        let scale = (config.min_pixels as f64 / (fit_width * fit_height)).sqrt();
        (fit_width, fit_height) = (
            (fit_width * scale).floor().max(1.0),
            (fit_height * scale).floor().max(1.0),
        );
    }
    let align = |side: f64| (side as u32).next_multiple_of(patch);
    let mut canvas = (align(fit_width), align(fit_height));
    let limit = config.max_block_tokens as usize - (ALIGN - 1);
    let block = |(width, height): (u32, u32)| {
        let tokens = |side: u32| (side / patch).div_ceil(merge) as usize;
        Block::new(
            Grid {
                rows: tokens(height),
                columns: tokens(width),
            },
            0,
        )
        .len()
    };
    let mut budget = limit;
    while block(canvas) > limit && budget > 4 {
        canvas = solve(fit_width, fit_height, budget, patch, merge);
        budget -= 1;
    }
    if squeezed {
        return Placement {
            fill: GREY,
            ..Placement::stretched(canvas.0, canvas.1)
        };
    }
    contained(width, height, canvas)
}

/// The largest size of the shape for a block of `budget` rows.
fn solve(width: f64, height: f64, budget: usize, patch: u32, merge: u32) -> (u32, u32) {
    let (token, inner) = (patch * merge, budget as u32 - 2);
    let ratio = height / width;
    let columns = (f64::from(inner) / ratio + 0.25).sqrt() - 0.5;
    let rows = columns * ratio;
    if columns < 1.0 {
        return (token, (inner / 2 / 2 * 2).max(1) * token);
    }
    if rows < 2.0 {
        return ((inner / 2).saturating_sub(1).max(2) * token, 2 * token);
    }
    let (columns, rows) = (columns as u32, rows as u32 / 2 * 2);
    let scale = (f64::from(columns * token) / width).min(f64::from(rows * token) / height);
    let floor = |side: f64| ((side * scale / f64::from(patch)).floor() as u32).max(1) * patch;
    (floor(width), floor(height))
}

/// llama.cpp's `PAD_NEAREST` and Pillow's `ImageOps.pad`: rounded sides and margins. In `f32`, as llama.cpp does.
fn contained(width: u32, height: u32, canvas: (u32, u32)) -> Placement {
    if (width, height) == canvas {
        return Placement::stretched(width, height);
    }
    let scale = (canvas.0 as f32 / width as f32).min(canvas.1 as f32 / height as f32);
    let fit = |side: u32, limit: u32| ((side as f32 * scale).round() as u32).clamp(1, limit);
    let content = (fit(width, canvas.0), fit(height, canvas.1));
    let margin = |free: u32| (free as f32 / 2.0).round() as u32;
    Placement {
        canvas,
        content,
        offset: (margin(canvas.0 - content.0), margin(canvas.1 - content.1)),
        fill: GREY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_interleaves_pairs_of_rows() {
        use BlockRow::{End, Newline, Pad, Start, Token};
        let block = Block::new(
            Grid {
                rows: 3,
                columns: 2,
            },
            lead_pad(2),
        );
        let expected = [
            [
                Pad,
                Start,
                Token(0),
                Token(2),
                Token(1),
                Token(3),
                Newline,
                Newline,
            ],
            [Token(4), Pad, Token(5), Pad, Newline, Pad, End, End],
        ];
        assert_eq!(block.rows(), expected.concat()[..15]);
        assert_eq!(block.len(), 15);
        let odd = Block::new(
            Grid {
                rows: 1,
                columns: 2,
            },
            0,
        );
        assert_eq!(odd.rows().len(), odd.len());
        assert_eq!(odd.rows()[7..], [Pad, Pad, End]);
    }
}
