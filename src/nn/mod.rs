//! Layers over block-quantized weights, as burn modules.

mod embedding;
pub mod functional;
mod linear;
mod param;

pub use embedding::GgmlEmbedding;
pub use linear::GgmlLinear;
pub use param::GgmlParam;
pub(crate) use param::{GGML_PARAM, LAYOUT_FIELD, WORDS_FIELD, layout_values, parse_layout};
