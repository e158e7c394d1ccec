//! Layers shared by the model families.

mod attention;
mod cache;
mod decoder_layer;
mod mlp;
mod norm;
mod rope;

pub use attention::{Attention, AttentionConfig};
pub use cache::{CacheDtype, CacheLimits, KvCache, LayerCache};
pub use decoder_layer::{DecoderLayer, DecoderLayerConfig};
pub use mlp::GatedMlp;
pub use norm::RmsNorm;
pub use rope::{Rope, RopeConfig, RopeTable, Yarn};
