//! The operations on burn-flex, the default CPU backend.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, FloatDType};
use burn_gguf_kernels::cpu::{Arithmetic, KvView, KvViewMut};

use super::cpu::{self, HostBackend, impl_cpu_ops};
use super::cpu_layer;
use super::layer::{
    AttentionParams, BlockChoice, ChoiceParams, DeltaParams, GeluKind, GluActivation, RopeStyle,
};
use super::reference::DeltaTensors;
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

    fn with_cache<R>(cache: &FlexTensor, f: impl FnOnce(KvView<'_>) -> R) -> R {
        match cache.dtype() {
            DType::F16 => match cache.as_slice::<half::f16>() {
                Some(slice) => f(KvView::F16(slice)),
                None => f(KvView::F16(cache.to_contiguous().storage())),
            },
            _ => Self::with_f32(cache, |slice| f(KvView::F32(slice))),
        }
    }

    fn edit_cache(
        mut cache: FlexTensor,
        f: impl FnOnce(KvViewMut<'_>),
    ) -> Result<FlexTensor, FlexTensor> {
        let whole = cache.layout().is_contiguous()
            && cache.layout().start_offset() == 0
            && cache.bytes().len() == cache.layout().num_elements() * cache.dtype().size();
        if !whole || !cache.is_unique() {
            return Err(cache);
        }
        match cache.dtype() {
            DType::F32 => f(KvViewMut::F32(cache.storage_mut::<f32>())),
            DType::F16 => f(KvViewMut::F16(cache.storage_mut::<half::f16>())),
            _ => return Err(cache),
        }
        Ok(cache)
    }
}

impl_cpu_ops!(Flex);
