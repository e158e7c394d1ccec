//! Operations on GGML blocks written in CubeCL: one source for every GPU runtime.
//!
//! A matrix is its GGML blocks, unchanged, as a flat buffer of `u32` words ([`CubeMatrix`]). Where a device limits the
//! bytes one storage binding may hold, the matrix is cut by rows into several pieces and an operation launches once
//! per piece.
//!
//! | operation | function |
//! |---|---|
//! | blocks to `f32`, `f16` or `bf16` | [`dequantize`] |
//! | embedding lookup | [`gather_rows`] |
//! | `y = x . W^T` | [`linear`]: a matrix-vector kernel for up to 8 rows of `x`, a tiled one beyond |
//!
//! The decoding of each type lives beside its scalar code in `blocks/<type>.rs` and hands out 16 values at a time
//! (`part.rs`); the kernels here are generic over it. No kernel needs 8-bit, 16-bit or half types, and every
//! one has a form for devices without plane (subgroup) operations.

mod dequantize;
mod error;
mod gather_rows;
mod gemm;
mod gemv;
mod inventory;
mod linear;
mod matrix;
pub(crate) mod part;
pub(crate) mod words;

pub use dequantize::{FloatKind, dequantize};
pub use error::CubeError;
pub use gather_rows::gather_rows;
pub use gemv::Reduction;
pub use inventory::{KernelEntry, inventory};
pub use linear::{LinearOptions, linear, linear_with};
pub use matrix::{CubeMatrix, Piece, binding_limit};
pub use part::DEVICE_TYPES;
