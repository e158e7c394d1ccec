//! Backend extensions: operations on block-quantized weights and the fused operations of a transformer layer.
//!
//! Each operation is declared once, in [`GgmlOps`] or [`LayerOps`], and implemented in one file per backend.

#[cfg(feature = "autodiff")]
mod autodiff;
#[cfg(any(feature = "flex", feature = "ndarray"))]
mod cpu;
#[cfg(any(feature = "flex", feature = "ndarray"))]
mod cpu_layer;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod ggml;
mod layer;
#[cfg(feature = "ndarray")]
mod ndarray;
pub mod reference;

pub use ggml::GgmlOps;
pub use layer::{
    AttentionParams, BlockChoice, ChoiceParams, DeltaParams, Gating, GeluKind, GluActivation,
    LayerOps, RopeStyle,
};
