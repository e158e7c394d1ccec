//! CPU operations on ggml blocks: [`dequantize`], [`gather_rows`], [`linear`] and [`linear_many`], and
//! [`linear_experts`] for a mixture of experts.
//!
//! Each operation is written once, generic over the block type and over the [`Isa`] level it runs at:
//!
//! - `isa.rs` finds the level of this CPU, once; `level/` holds what differs between levels.
//! - `types.rs` is the table of types; `gemv/` adds the hand-written inner loops of single types.
//! - `input.rs` quantizes activations, `gemm.rs` and `gemv/` multiply codes, `float.rs` and `bf16.rs` numbers, many rows
//!   of them by way of `panel.rs`; `linear.rs` and `experts.rs` check and divide the work, `parallel.rs` runs it on
//!   rayon's pool.
//!
//! Weights are read in place, at any alignment, and never kept in another form.
//!
//! Beside them, what else a transformer layer needs, on contiguous `f32`: [`attention`] and [`append_kv`],
//! [`choose_blocks`] and [`attention_blocks`], [`rms_norm`], [`layer_norm`], [`RopeTable`], [`swiglu`], [`swiglu_oai`],
//! [`geglu_tanh`], [`gelu_tanh`] and [`gelu_quick`], the linear attention of [`short_conv`] and [`gated_delta`], and the
//! choice and sum of experts, [`choose_experts`] and [`expert_sum`]. These are generic over `vector::Vector`, the registers
//! of a level, and share themselves among threads through `split.rs`.

mod attention;
mod bf16;
mod buffer;
mod check;
mod choose;
mod choose_blocks;
mod dequantize;
mod error;
mod exp;
mod expert_sum;
mod experts;
mod float;
mod gated_delta;
mod gather;
mod gelu;
mod gemm;
mod gemv;
mod glu;
mod input;
mod isa;
mod kv_cache;
mod layer_norm;
mod level;
mod linear;
mod panel;
mod parallel;
mod rms_norm;
mod rope;
mod shape_error;
mod short_conv;
mod split;
mod types;
mod vector;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use attention::{AttentionParams, AttentionShape, KeyBlocks, attention, attention_blocks};
pub use choose::{ChoiceShape, Gating, choose_experts};
pub use choose_blocks::{BlockChoiceShape, choose_blocks};
pub use dequantize::{dequantize, dequantize_bf16, dequantize_f16};
pub use error::CpuError;
pub use expert_sum::{ExpertSumShape, expert_sum};
pub use experts::{
    ExpertInput, Experts, linear_experts, linear_experts_many, linear_experts_many_at,
};
pub use gated_delta::{GatedDeltaInput, GatedDeltaShape, gated_delta};
pub use gather::gather_rows;
pub use gelu::{gelu_quick, gelu_tanh};
pub use glu::{geglu_tanh, swiglu, swiglu_oai};
pub use isa::Isa;
pub use kv_cache::{KvView, KvViewMut, append_kv};
pub use layer_norm::layer_norm;
pub use linear::{Arithmetic, Matrix, linear, linear_many, linear_many_at};
pub use rms_norm::{add_rms_norm, rms_norm};
pub use rope::{RopePairing, RopeTable};
pub use shape_error::ShapeError;
pub use short_conv::{ShortConvShape, short_conv};
pub use types::is_supported;
