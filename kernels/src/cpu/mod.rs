//! SIMD operations on the CPU, one file per operation.
//!
//! Everything is `f32`, row-major and contiguous; an operation is spread over rayon's current pool when it is large
//! enough to pay for that.

mod exp;
mod isa;
mod shape_error;
mod split;
#[cfg(test)]
mod testing;
mod vector;

mod attention;
mod glu;
mod kv_cache;
mod rms_norm;
mod rope;

pub use attention::{AttentionParams, AttentionShape, attention};
pub use glu::{geglu_tanh, swiglu};
pub use isa::Isa;
pub use kv_cache::{KvView, KvViewMut, append_kv};
pub use rms_norm::{add_rms_norm, rms_norm};
pub use rope::{RopePairing, RopeTable};
pub use shape_error::ShapeError;
