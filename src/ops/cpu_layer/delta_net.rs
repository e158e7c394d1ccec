//! Linear attention on host slices.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn_gguf_kernels::cpu::{self, GatedDeltaInput, GatedDeltaShape, KvViewMut, ShortConvShape};

use super::{all_f32, checked, dims4, with_all};
use crate::ops::cpu::{HostBackend, float};
use crate::ops::layer::DeltaParams;
use crate::ops::reference::{self, DeltaTensors};

/// The tensor after `f` has edited its values: in place, or a copy where its storage is shared.
fn edited<B: HostBackend>(tensor: FloatTensor<B>, f: impl FnOnce(&mut [f32])) -> FloatTensor<B> {
    let mut f = Some(f);
    let (shape, device) = (tensor.shape(), tensor.device());
    let edited = B::edit_cache(tensor, |view| {
        if let (KvViewMut::F32(values), Some(f)) = (view, f.take()) {
            f(values);
        }
    });
    match (edited, f) {
        (Ok(tensor) | Err(tensor), None) => tensor,
        (Ok(tensor) | Err(tensor), Some(f)) => {
            let mut values = B::into_vec(tensor);
            f(&mut values);
            float::<B>(values, shape, &device)
        }
    }
}

pub(in crate::ops) fn short_conv<B: HostBackend>(
    x: FloatTensor<B>,
    taps: FloatTensor<B>,
    state: FloatTensor<B>,
) -> (FloatTensor<B>, FloatTensor<B>) {
    if !all_f32::<B>(&[&x, &taps, &state]) {
        return reference::short_conv::<B>(x, taps, state);
    }
    let (shape, device) = (x.shape(), x.device());
    let sizes = ShortConvShape {
        batch: shape[0],
        tokens: shape[1],
        channels: shape[2],
        kernel: taps.shape()[1],
    };
    let mut out = vec![0f32; shape.num_elements()];
    let state = edited::<B>(state, |state| {
        with_all::<B>(&[&x, &taps], |slices| {
            checked(cpu::short_conv(
                slices[0], slices[1], &sizes, state, &mut out,
            ));
        });
    });
    (float::<B>(out, shape, &device), state)
}

pub(in crate::ops) fn gated_delta<B: HostBackend>(
    input: DeltaTensors<B>,
    state: FloatTensor<B>,
    params: DeltaParams,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let tensors = [
        &input.mixed,
        &input.gate,
        &input.beta,
        &input.alpha,
        &input.a,
        &input.dt,
        &input.norm,
    ];
    if !all_f32::<B>(&tensors) || !all_f32::<B>(&[&state]) {
        return reference::gated_delta::<B>(input, state, params);
    }
    let (shape, device) = (input.gate.shape(), input.gate.device());
    let [batch, value_heads, head_dim, _] = dims4(&state.shape());
    let sizes = GatedDeltaShape {
        batch,
        tokens: shape[1],
        key_heads: params.key_heads,
        value_heads,
        head_dim,
        grouped: params.grouped,
        eps: params.eps,
    };
    let mut out = vec![0f32; shape.num_elements()];
    let state = edited::<B>(state, |state| {
        with_all::<B>(&tensors, |slices| {
            let input = GatedDeltaInput {
                mixed: slices[0],
                gate: slices[1],
                beta: slices[2],
                alpha: slices[3],
                a: slices[4],
                dt: slices[5],
                norm: slices[6],
            };
            checked(cpu::gated_delta(input, &sizes, state, &mut out));
        });
    });
    (float::<B>(out, shape, &device), state)
}
