//! The model families: configuration, binding table and loader of each architecture.

mod dense;
pub mod gemma3;
pub mod qwen;
mod registry;

pub use registry::{Family, families, family};
