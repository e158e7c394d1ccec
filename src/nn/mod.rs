//! Layers over block-quantized weights, as burn modules.

mod embedding;
mod experts;
pub mod functional;
mod linear;
mod observe;
mod param;
mod thaw;

pub use embedding::GgmlEmbedding;
pub use experts::GgmlExperts;
pub use linear::GgmlLinear;
pub use observe::{InputObserver, observe};
pub use param::GgmlParam;
pub(crate) use param::{Description, GGML_PARAM, LAYOUT_FIELD, WORDS_FIELD};
pub use thaw::thaw;
