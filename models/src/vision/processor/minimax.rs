//! `minimax_m3`: stretched in both styles.

use super::size::{Placement, dynamic_size, smart_resize};
use super::{ProcessorConfig, ProcessorStyle};

pub(super) fn place(config: &ProcessorConfig, width: u32, height: u32) -> Placement {
    let (width, height) = match config.style {
        ProcessorStyle::Transformers => smart_resize(width, height, 1.0, 1.0, config.bounds()),
        ProcessorStyle::LlamaCpp => dynamic_size(width, height, config.bounds()),
    };
    Placement::stretched(width, height)
}
