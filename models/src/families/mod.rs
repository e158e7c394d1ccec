//! The model families: configuration, binding table and loader of each architecture.

pub mod dense;
pub mod experts;
pub mod gemma3;
pub mod gemma4;
pub mod minimax_m2;
pub mod minimax_m3;
pub mod muse_glimmer;
pub mod qwen;
pub mod qwen35;
pub mod qwen3vl;
mod registry;

pub use registry::{Family, families, family};
