//! From 8-bit pixels to the values a tower reads.

use image::RgbImage;

use super::{ProcessorConfig, ProcessorKind};

/// Normalised values, a row per patch.
#[derive(Debug, Clone, PartialEq)]
pub struct PixelValues {
    /// `rows * row_len` values.
    pub values: Vec<f32>,
    /// Number of patches.
    pub rows: usize,
    /// Values of a patch.
    pub row_len: usize,
    /// Temporal patches, rows and columns of patches.
    pub grid_thw: [usize; 3],
    /// Row and column of each patch in its frame.
    pub positions: Vec<[u32; 2]>,
}

/// `(value / 255 - mean) / std` of every 8-bit value, computed as transformers fuses it.
pub(super) struct Normalize([[f32; 256]; 3]);

impl Normalize {
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Self {
        Self(std::array::from_fn(|channel| {
            let (mean, std) = (mean[channel] * 255.0, std[channel] * 255.0);
            std::array::from_fn(|value| (value as f32 - mean) / std)
        }))
    }

    pub fn planes(&self, picture: &RgbImage) -> Vec<f32> {
        let pixels = picture.as_raw();
        let plane = |channel: usize| {
            pixels[channel..]
                .iter()
                .step_by(3)
                .map(move |&v| self.0[channel][v as usize])
        };
        (0..3).flat_map(plane).collect()
    }
}

/// Order of the values of one patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Channel, frame, row, column.
    ChannelFirst,
    /// Frame, channel, row, column.
    FrameFirst,
    /// Row, column, channel; one frame.
    ChannelLast,
}

/// Order of patches, and of the values in each.
pub(super) struct Layout {
    patch: usize,
    /// Side of the blocks whose patches are neighbours; 1 is raster order.
    block: usize,
    frames: usize,
    values: Values,
}

impl Layout {
    pub fn of(config: &ProcessorConfig) -> Self {
        let patch = config.patch_size as usize;
        let merge = config.merge_size as usize;
        let frames = config.temporal_patch_size as usize;
        match config.kind {
            ProcessorKind::Qwen3Vl
            | ProcessorKind::Glm4V
            | ProcessorKind::Glm5V
            | ProcessorKind::MiniMaxM3 => Self {
                patch,
                block: merge,
                frames,
                values: Values::ChannelFirst,
            },
            ProcessorKind::MuseGlimmer => Self {
                patch,
                block: 1,
                frames,
                values: Values::FrameFirst,
            },
            ProcessorKind::DeepSeek4V => Self {
                patch,
                block: 1,
                frames,
                values: Values::ChannelFirst,
            },
            ProcessorKind::Gemma4V => Self {
                patch,
                block: 1,
                frames: 1,
                values: Values::ChannelLast,
            },
            ProcessorKind::Gemma4Uv => Self {
                patch: patch * merge,
                block: 1,
                frames: 1,
                values: Values::ChannelLast,
            },
        }
    }

    /// Frames that are missing in the last temporal patch repeat the last one.
    pub fn apply(&self, pictures: &[RgbImage], normalize: &Normalize) -> PixelValues {
        let (width, height) = pictures[0].dimensions();
        let (rows, columns) = (height as usize / self.patch, width as usize / self.patch);
        let times = pictures.len().div_ceil(self.frames);
        let positions = self.positions(rows, columns);
        let row_len = 3 * self.frames * self.patch * self.patch;
        let mut values = Vec::with_capacity(times * positions.len() * row_len);
        for time in 0..times {
            let frame =
                |index: usize| &pictures[(time * self.frames + index).min(pictures.len() - 1)];
            for &[row, column] in &positions {
                let at = [row as usize * self.patch, column as usize * self.patch];
                match self.values {
                    Values::ChannelFirst => (0..3).for_each(|channel| {
                        (0..self.frames).for_each(|i| {
                            self.plane(frame(i), at, channel, normalize, &mut values)
                        });
                    }),
                    Values::FrameFirst => (0..self.frames).for_each(|i| {
                        (0..3).for_each(|channel| {
                            self.plane(frame(i), at, channel, normalize, &mut values)
                        });
                    }),
                    Values::ChannelLast => self.rows_of(frame(0), at).for_each(|row| {
                        let pixels = row
                            .chunks_exact(3)
                            .flat_map(|pixel| pixel.iter().zip(&normalize.0));
                        values.extend(pixels.map(|(&value, table)| table[value as usize]));
                    }),
                }
            }
        }
        let positions = positions.repeat(times);
        PixelValues {
            values,
            rows: positions.len(),
            row_len,
            grid_thw: [times, rows, columns],
            positions,
        }
    }

    fn rows_of<'a>(
        &self,
        picture: &'a RgbImage,
        [top, left]: [usize; 2],
    ) -> impl Iterator<Item = &'a [u8]> {
        let (patch, width) = (self.patch, picture.width() as usize);
        (top..top + patch)
            .map(move |row| &picture.as_raw()[(row * width + left) * 3..][..patch * 3])
    }

    fn plane(
        &self,
        picture: &RgbImage,
        at: [usize; 2],
        channel: usize,
        normalize: &Normalize,
        out: &mut Vec<f32>,
    ) {
        let table = &normalize.0[channel];
        for row in self.rows_of(picture, at) {
            out.extend(
                row[channel..]
                    .iter()
                    .step_by(3)
                    .map(|&value| table[value as usize]),
            );
        }
    }

    /// Rows and columns of the patches in order.
    fn positions(&self, rows: usize, columns: usize) -> Vec<[u32; 2]> {
        let mut positions = Vec::with_capacity(rows * columns);
        for top in (0..rows).step_by(self.block) {
            for left in (0..columns).step_by(self.block) {
                for row in top..rows.min(top + self.block) {
                    positions.extend(
                        (left..columns.min(left + self.block))
                            .map(|column| [row as u32, column as u32]),
                    );
                }
            }
        }
        positions
    }
}
