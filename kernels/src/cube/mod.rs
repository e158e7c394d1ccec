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
//! | the same for the experts each token chose | [`linear_experts`] |
//! | norms, rotary embedding, gated unit | [`rms_norm`], [`layer_norm`], [`rope`], [`glu`] |
//! | attention over a cache, or over some blocks of it | [`attention`] |
//! | the choice of those blocks | [`choose_blocks`] |
//! | a linear attention's convolution and recurrence | [`short_conv`], [`gated_delta`] |
//! | the choice of experts, and the sum of what they say | [`choose_experts`], [`expert_sum`] |
//!
//! The decoding of each type lives beside its scalar code in `blocks/<type>.rs` and hands out 16 values at a time
//! (`part.rs`); the matrix kernels here are generic over it. No kernel needs 8-bit, 16-bit or half types except
//! attention over `f16` caches, and every one has a form for devices without plane (subgroup) operations.

mod attention;
mod choose;
mod choose_blocks;
mod codebook;
mod dequantize;
mod error;
mod expert_sum;
mod experts;
mod gated_delta;
mod gather_rows;
mod gemm;
mod gemm_cmma;
mod gemv;
mod gemv_q8;
mod glu;
mod inventory;
mod layer_norm;
mod linear;
mod matrix;
pub(crate) mod part;
mod rms_norm;
mod rope;
mod route;
mod short_conv;
pub(crate) mod words;

pub use attention::{AttentionParams, AttentionShape, KeyBlocks, attention, takes_cache};
pub use choose::choose_experts;
pub use choose_blocks::{BlockChoiceShape, choose_blocks};
pub use dequantize::{FloatKind, dequantize};
pub use error::CubeError;
pub use expert_sum::expert_sum;
pub use experts::{ExpertsShape, linear_experts, linear_experts_with};
pub use gated_delta::{DeltaHandles, gated_delta};
pub use gather_rows::gather_rows;
pub use gemv::Reduction;
pub use glu::{GluKind, glu};
pub use inventory::{KernelEntry, inventory};
pub use layer_norm::layer_norm;
pub use linear::{LinearKernel, LinearOptions, linear, linear_with};
pub use matrix::{CubeMatrix, Piece, binding_limit};
pub use part::DEVICE_TYPES;
pub use rms_norm::rms_norm;
pub use rope::{RopeShape, rope};
pub use short_conv::short_conv;
