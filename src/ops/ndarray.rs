//! The operations on burn-ndarray, the older CPU backend.

#![allow(deprecated)] // The backend is deprecated upstream; people still use it.

use burn::backend::NdArray;
use burn::backend::ndarray::NdArrayTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::FloatDType;
use burn_gguf_kernels::cpu::{Arithmetic, KvView, KvViewMut};

use super::cpu::{self, HostBackend, impl_cpu_ops};
use super::cpu_layer;
use super::layer::{
    AttentionParams, BlockChoice, ChoiceParams, DeltaParams, GeluKind, GluActivation, RopeStyle,
};
use super::reference::DeltaTensors;
use crate::tensor::GgmlPrimitive;

impl HostBackend for NdArray {
    fn with_words<R>(words: &NdArrayTensor, f: impl FnOnce(&[u32]) -> R) -> R {
        match words {
            NdArrayTensor::U32(storage) => {
                let view = storage.view();
                match view.as_slice() {
                    Some(slice) => f(slice),
                    None => panic!("GGML words must be contiguous"),
                }
            }
            other => panic!("GGML words must be a U32 tensor, found {other:?}"),
        }
    }

    fn with_f32<R>(tensor: &NdArrayTensor, f: impl FnOnce(&[f32]) -> R) -> R {
        match tensor {
            NdArrayTensor::F32(storage) => {
                let view = storage.view();
                let rows = view.as_standard_layout();
                f(rows.as_slice().expect("standard layout is contiguous"))
            }
            other => panic!("expected an F32 tensor, found {other:?}"),
        }
    }

    fn with_cache<R>(cache: &NdArrayTensor, f: impl FnOnce(KvView<'_>) -> R) -> R {
        Self::with_f32(cache, |slice| f(KvView::F32(slice)))
    }

    fn edit_cache(
        cache: NdArrayTensor,
        f: impl FnOnce(KvViewMut<'_>),
    ) -> Result<NdArrayTensor, NdArrayTensor> {
        // The storage is private upstream: a shared handle is how to reach it.
        let NdArrayTensor::F32(storage) = cache else {
            return Err(cache);
        };
        if !storage.is_unique() {
            return Err(NdArrayTensor::F32(storage));
        }
        let mut array = storage.into_shared();
        match array.as_slice_mut() {
            Some(slice) => {
                f(KvViewMut::F32(slice));
                Ok(array.into())
            }
            None => Err(array.into()),
        }
    }
}

impl_cpu_ops!(NdArray);
