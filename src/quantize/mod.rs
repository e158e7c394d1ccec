//! Quantizing models: names of quantizations, recipes for whole models, and files.
//!
//! - [`QuantSpec`] names a quantization of one tensor, [`QuantConfig`] adds rules by name; both are what the modules of
//!   this crate and files are quantized by.
//! - [`Recipe`] is a mix of types for a whole model, as llama.cpp's `llama-quantize` makes them.
//! - [`quantize_file`] writes a GGUF quantized by a recipe, rules and an [`ImportanceMatrix`]; [`QuantizePlan`] says
//!   beforehand what would become of each tensor.
//! - [`quantize_module`] turns a dense burn module into one over packed weights.
//!
//! The quantizers of single types are in `burn_gguf_kernels::quantize`.

mod config;
mod eligible;
mod error;
mod file;
mod importance;
mod mix;
mod module;
mod plan;
mod recipe;
mod spec;

pub use config::{QuantConfig, QuantRule, RuleAction};
pub use error::{ImportanceError, QuantError, QuantizeFileError};
pub use file::{Progress, QuantizeReport, quantize_file};
pub use importance::ImportanceMatrix;
pub use module::{ModuleReport, QuantizeModuleError, QuantizedWeight, quantize_module};
pub use plan::{Note, QuantizeOptions, QuantizePlan, TensorPlan};
pub use recipe::Recipe;
pub use spec::QuantSpec;
