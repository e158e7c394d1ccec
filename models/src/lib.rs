//! Text model families as Burn modules fed from GGUF files.

pub mod chat;
pub mod generation;
pub mod tokenizer;
