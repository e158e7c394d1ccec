//! `gemma4v` and `gemma4uv`: a budget of soft tokens that every picture fills, small ones enlarged.

use super::size::{Placement, dynamic_size};
use super::{ProcessorConfig, ProcessorStyle};

/// Budgets the family was trained with.
pub(super) const BUDGETS: [u64; 5] = [70, 140, 280, 560, 1120];

pub(super) fn place(config: &ProcessorConfig, width: u32, height: u32) -> Placement {
    match config.style {
        ProcessorStyle::Transformers => {
            let (width, height) = fill(
                config.max_tokens(),
                config.patch_size,
                config.merge_size,
                width,
                height,
            );
            Placement::stretched(width, height)
        }
        ProcessorStyle::LlamaCpp => {
            Placement::letterboxed(width, height, dynamic_size(width, height, config.bounds()))
        }
    }
}

/// The largest size of the same shape whose patches fit the budget, in whole tokens.
fn fill(budget: u64, patch: u32, pool: u32, width: u32, height: u32) -> (u32, u32) {
    let side = patch * pool;
    let pixels = (budget * u64::from(pool * pool) * u64::from(patch * patch)) as f64;
    let factor = (pixels / (f64::from(height) * f64::from(width))).sqrt();
    let floor =
        |length: u32| ((factor * f64::from(length)) / f64::from(side)).floor() as u32 * side;
    // A strip too thin for one token keeps one, and its length follows from the shape.
    let strip = |long: u32, short: u32| (u64::from(long / short).min(budget).max(1) as u32) * side;
    match (floor(width), floor(height)) {
        (0, 0) => (side, side),
        (0, _) => (side, strip(height, width)),
        (_, 0) => (strip(width, height), side),
        size => size,
    }
}
