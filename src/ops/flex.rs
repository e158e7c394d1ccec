//! The operations on burn-flex, the default CPU backend.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::FloatDType;
use burn_gguf_kernels::Arithmetic;

use super::cpu::{self, HostBackend, impl_cpu_ops};
use super::layer::LayerOps;
use crate::tensor::GgmlPrimitive;

impl HostBackend for Flex {
    fn with_words<R>(words: &FlexTensor, f: impl FnOnce(&[u32]) -> R) -> R {
        match words.as_slice::<u32>() {
            Some(slice) => f(slice),
            None => panic!("GGML words must be a contiguous U32 tensor, found {words:?}"),
        }
    }

    fn with_f32<R>(tensor: &FlexTensor, f: impl FnOnce(&[f32]) -> R) -> R {
        match tensor.as_slice::<f32>() {
            Some(slice) => f(slice),
            None => f(tensor.to_contiguous().storage::<f32>()),
        }
    }
}

impl_cpu_ops!(Flex);

impl LayerOps for Flex {}
