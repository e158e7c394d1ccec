//! Layers over block-quantized weights, as burn modules.

mod count;
mod description;
mod embedding;
mod experts;
pub mod functional;
mod instruction;
mod linear;
mod lora;
mod observe;
mod param;
mod thaw;

pub use count::count_weights;
pub(crate) use description::Description;
pub use embedding::GgmlEmbedding;
pub use experts::GgmlExperts;
pub use linear::GgmlLinear;
pub(crate) use lora::LORA_FIELD;
pub use lora::{
    FoundLora, LoraAdapter, LoraTarget, LoraWeights, attach_lora, lora_adapters, lora_targets,
};
pub use observe::{InputObserver, observe};
pub use param::GgmlParam;
pub(crate) use param::{GGML_PARAM, LAYOUT_FIELD, WORDS_FIELD};
pub use thaw::thaw;
