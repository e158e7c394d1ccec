//! CPU operations on ggml blocks: [`dequantize`], [`gather_rows`], [`linear`] and [`linear_many`].
//!
//! Each operation is written once, generic over the block type and over the [`Isa`] level it runs at:
//!
//! - `isa.rs` finds the level of this CPU, once; `level/` holds what differs between levels.
//! - `types.rs` is the table of types; `gemv/` adds the hand-written inner loops of single types.
//! - `input.rs` quantizes activations, `gemm.rs`, `gemv/` and `float.rs` multiply, `linear.rs` checks and divides the
//!   work, `parallel.rs` runs it on rayon's pool.
//!
//! Weights are read in place, at any alignment, and never kept in another form.

mod dequantize;
mod error;
mod float;
mod gather;
mod gemm;
mod gemv;
mod input;
mod isa;
mod level;
mod linear;
mod parallel;
mod types;

#[cfg(test)]
mod tests;

pub use dequantize::{dequantize, dequantize_bf16, dequantize_f16};
pub use error::CpuError;
pub use gather::gather_rows;
pub use isa::Isa;
pub use linear::{Arithmetic, Matrix, linear, linear_many, linear_many_at};
pub use types::is_supported;
