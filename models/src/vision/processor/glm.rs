//! `glm4v` (GLM-4.1V to 4.6V) and `glm5v` (GLM-5).

use super::size::{Placement, dynamic_size, smart_resize};
use super::{ProcessorConfig, ProcessorStyle};

/// Stretched; a side below one token is first enlarged to it.
pub(super) fn place_4v(config: &ProcessorConfig, width: u32, height: u32) -> Placement {
    let bounds = config.bounds();
    if config.style == ProcessorStyle::LlamaCpp {
        return Placement::letterboxed(width, height, dynamic_size(width, height, bounds));
    }
    let factor = f64::from(bounds.factor);
    let scale = (factor / f64::from(width)).max(factor / f64::from(height));
    let enlarge = |side: u32| {
        if scale > 1.0 {
            (f64::from(side) * scale) as u32
        } else {
            side
        }
    };
    let (width, height) = smart_resize(enlarge(width), enlarge(height), 1.0, 1.0, bounds);
    Placement::stretched(width, height)
}

/// The canvas is aligned upwards within the budget; the picture sits at its top left on black, and is enlarged only
/// where it is below the minimum.
pub(super) fn place_5v(config: &ProcessorConfig, width: u32, height: u32) -> Placement {
    let bounds = config.bounds();
    let factor = u64::from(bounds.factor);
    let (width, height) = (u64::from(width), u64::from(height));
    let align = |side: u64| side.next_multiple_of(factor);
    let (mut canvas_width, mut canvas_height) = (align(width), align(height));
    if canvas_height * canvas_width < bounds.min {
        let scale = (bounds.min as f64 / (height * width) as f64).sqrt();
        let enlarge = |side: u64| align(((side as f64 * scale).ceil() as u64).max(1));
        (canvas_width, canvas_height) = (enlarge(width), enlarge(height));
    }
    if canvas_height * canvas_width > bounds.max {
        (canvas_width, canvas_height) = (factor, factor);
        let (mut low, mut high) = (1, height);
        while low <= high {
            let middle = (low + high) / 2;
            let candidate = (align((width * middle / height).max(1)), align(middle));
            if candidate.0 * candidate.1 <= bounds.max {
                (canvas_width, canvas_height) = candidate;
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
    }
    let mut scale = (canvas_height as f64 / height as f64).min(canvas_width as f64 / width as f64);
    if height * width >= bounds.min {
        scale = scale.min(1.0);
    }
    let content =
        |side: u64, limit: u64| ((side as f64 * scale).floor() as u64).min(limit).max(1) as u32;
    Placement {
        canvas: (canvas_width as u32, canvas_height as u32),
        content: (content(width, canvas_width), content(height, canvas_height)),
        offset: (0, 0),
        fill: [0; 3],
    }
}
