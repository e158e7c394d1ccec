//! GGML block types and the kernels that compute on them.
//!
//! - [`GgmlType`]: the table of all ggml tensor types.
//! - [`blocks`]: one file per block type (layout, scalar code, CubeCL unpacking).
//! - [`cpu`]: SIMD operations on the CPU.
//! - [`quantize`]: packing values into blocks.
//! - `cube`: CubeCL operations, one source for every GPU runtime (feature `cube`).
//!
//! This crate knows neither files nor models.

pub mod blocks;
pub mod cpu;
#[cfg(feature = "cube")]
pub mod cube;
mod ggml_type;
pub mod quantize;

pub use ggml_type::GgmlType;
