//! Sizes that respect the aspect ratio, whole tokens and a pixel budget.

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
}

impl Grid {
    /// Number of cells.
    pub fn len(self) -> usize {
        self.rows * self.columns
    }

    /// Whether there are no cells.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// Where on its canvas a resized picture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Width and height of the canvas: what the tower reads.
    pub canvas: (u32, u32),
    /// Width and height the picture is resized to.
    pub content: (u32, u32),
    /// Left and top margin.
    pub offset: (u32, u32),
    /// Colour of the margins.
    pub fill: [u8; 3],
}

impl Placement {
    /// The picture fills the canvas.
    pub(super) fn stretched(width: u32, height: u32) -> Self {
        Self {
            canvas: (width, height),
            content: (width, height),
            offset: (0, 0),
            fill: [0; 3],
        }
    }

    /// llama.cpp's `PAD_CEIL`: the aspect ratio is kept, margins are black and equal. In `f32`, as there.
    pub(super) fn letterboxed(width: u32, height: u32, canvas: (u32, u32)) -> Self {
        if (width, height) == canvas {
            return Self::stretched(width, height);
        }
        let scale = (canvas.0 as f32 / width as f32).min(canvas.1 as f32 / height as f32);
        let fit = |side: u32, limit: u32| ((side as f32 * scale).ceil() as u32).clamp(1, limit);
        let content = (fit(width, canvas.0), fit(height, canvas.1));
        let offset = ((canvas.0 - content.0) / 2, (canvas.1 - content.1) / 2);
        Self {
            canvas,
            content,
            offset,
            fill: [0; 3],
        }
    }
}

/// Limits of a size: sides are multiples of `factor`, their product is between `min` and `max`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub factor: u32,
    pub min: u64,
    pub max: u64,
}

/// The `smart_resize` of transformers for a stack of `frames` pictures whose pixels share the bounds.
/// Gives width and height.
pub(super) fn smart_resize(
    width: u32,
    height: u32,
    frames: f64,
    rounded_frames: f64,
    bounds: Bounds,
) -> (u32, u32) {
    let Bounds { factor, min, max } = bounds;
    let factor = f64::from(factor);
    let (width, height) = (f64::from(width), f64::from(height));
    let (min, max) = (min as f64, max as f64);
    let nearest = |side: f64| (side / factor).round_ties_even() * factor;
    let (mut out_width, mut out_height) = (nearest(width), nearest(height));
    if rounded_frames * out_height * out_width > max {
        let beta = (frames * height * width / max).sqrt();
        out_height = (height / beta / factor).floor() * factor;
        out_width = (width / beta / factor).floor() * factor;
    } else if rounded_frames * out_height * out_width < min {
        let beta = (min / (frames * height * width)).sqrt();
        out_height = (height * beta / factor).ceil() * factor;
        out_width = (width * beta / factor).ceil() * factor;
    }
    (out_width.max(factor) as u32, out_height.max(factor) as u32)
}

/// llama.cpp's counterpart (`calc_size_preserved_ratio`): half away from zero, and in `f32`.
pub(super) fn dynamic_size(width: u32, height: u32, bounds: Bounds) -> (u32, u32) {
    let Bounds { factor, min, max } = bounds;
    let step = factor as f32;
    let (width, height) = (width as f32, height as f32);
    let nearest = |side: f32| ((side / step).round() as u32 * factor).max(factor);
    let (out_width, out_height) = (nearest(width), nearest(height));
    let pixels = u64::from(out_width) * u64::from(out_height);
    if pixels > max {
        let beta = (height * width / max as f32).sqrt();
        let floor = |side: f32| ((side / beta / step).floor() as u32 * factor).max(factor);
        (floor(width), floor(height))
    } else if pixels < min {
        let beta = (min as f32 / (height * width)).sqrt();
        let ceil = |side: f32| (side * beta / step).ceil() as u32 * factor;
        (ceil(width), ceil(height))
    } else {
        (out_width, out_height)
    }
}
