//! Layers shared by the model families.

mod attention;
mod cache;
mod decoder_layer;
mod delta_net;
mod indexer;
mod mlp;
mod moe;
mod norm;
mod positions;
mod rope;

pub use attention::{Attention, AttentionConfig, AttentionGate, KvSource, QkNorm};
pub use cache::{CacheDtype, CacheLimits, CachedRows, KvCache, LayerCache};
pub(crate) use cache::{LayerParts, PART_NAMES, PartError};
pub use decoder_layer::{DecoderLayer, DecoderLayerConfig};
pub use delta_net::{DeltaNetConfig, DeltaState, GatedDeltaNet};
pub use indexer::{Indexer, IndexerConfig};
pub use mlp::GatedMlp;
pub use moe::{Gating, Moe, MoeConfig};
pub(crate) use norm::weightless_rms_norm;
pub use norm::{LayerNorm, RmsNorm};
pub use positions::Positions;
pub use rope::{Rope, RopeConfig, RopeTable, RopeTables, Yarn};
