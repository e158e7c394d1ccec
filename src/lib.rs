//! GGUF as a native tensor type of the [Burn](https://burn.dev) deep-learning framework.
#![cfg_attr(feature = "ndarray", allow(deprecated))] // burn deprecates NdArray; the backend is still offered.

pub mod device;
mod error;
pub mod gguf;
mod layout;
pub mod nn;
pub mod ops;
pub mod quantize;
mod scales;
pub mod store;
mod tensor;

pub use burn_gguf_kernels::GgmlType;
pub use burn_gguf_kernels::cpu::Arithmetic;
pub use error::{LoadError, TensorError};
pub use layout::GgmlLayout;
pub use tensor::{GgmlPrimitive, GgmlTensor, computable_types};
