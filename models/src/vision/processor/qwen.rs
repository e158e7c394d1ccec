//! `qwen3vl_merger`: Qwen3-VL and Qwen3.5.

use super::size::{Bounds, Placement, dynamic_size, smart_resize};
use super::{ProcessorConfig, ProcessorStyle};

pub(super) fn place(config: &ProcessorConfig, width: u32, height: u32) -> Placement {
    let bounds = config.bounds();
    match config.style {
        ProcessorStyle::Transformers => {
            let (width, height) = smart_resize(width, height, 1.0, 1.0, bounds);
            Placement::stretched(width, height)
        }
        ProcessorStyle::LlamaCpp => {
            Placement::letterboxed(width, height, dynamic_size(width, height, bounds))
        }
    }
}

/// Bounds count the pixels of all frames, of which whole temporal patches are made.
pub(super) fn place_video(
    config: &ProcessorConfig,
    frames: usize,
    width: u32,
    height: u32,
) -> Placement {
    let bounds = Bounds {
        min: config.video_min_pixels,
        max: config.video_max_pixels,
        ..config.bounds()
    };
    let rounded = frames.next_multiple_of(config.temporal_patch_size as usize);
    let (width, height) = smart_resize(width, height, frames as f64, rounded as f64, bounds);
    Placement::stretched(width, height)
}
