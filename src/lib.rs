//! x

pub mod gguf;
