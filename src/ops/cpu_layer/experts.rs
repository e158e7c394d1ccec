//! The choice of experts and their sum on host slices.

use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{Shape, TensorData};
use burn_gguf_kernels::cpu::{self, ChoiceShape, ExpertSumShape};

use super::{all_f32, checked, with_all};
use crate::ops::cpu::{HostBackend, float};
use crate::ops::layer::ChoiceParams;
use crate::ops::reference;

pub(in crate::ops) fn choose_experts<B: HostBackend>(
    logits: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    params: ChoiceParams,
) -> (IntTensor<B>, FloatTensor<B>) {
    if !all_f32::<B>(&[&logits]) || bias.as_ref().is_some_and(|b| !all_f32::<B>(&[b])) {
        return reference::choose_experts::<B>(logits, bias, params);
    }
    let (shape, device) = (logits.shape(), logits.device());
    let sizes = ChoiceShape {
        tokens: shape[0],
        experts: shape[1],
        used: params.used,
        gating: params.gating,
        normalize: params.normalize,
        least_sum: params.least_sum,
        scale: params.scale,
    };
    let slots = Shape::new([shape[0], params.used]);
    let mut ids = vec![0i32; slots.num_elements()];
    let mut shares = vec![0f32; slots.num_elements()];
    let tensors: Vec<_> = [Some(&logits), bias.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    with_all::<B>(&tensors, |slices| {
        let bias = slices.get(1).copied();
        checked(cpu::choose_experts(
            slices[0],
            bias,
            &sizes,
            &mut ids,
            &mut shares,
        ));
    });
    let ids = B::int_from_data(TensorData::new(ids, slots.clone()), &device);
    (ids, float::<B>(shares, slots, &device))
}

pub(in crate::ops) fn expert_sum<B: HostBackend>(
    y: FloatTensor<B>,
    shares: FloatTensor<B>,
    shared: Option<(FloatTensor<B>, FloatTensor<B>)>,
) -> FloatTensor<B> {
    let mut tensors = vec![&y, &shares];
    if let Some((shared, gate)) = &shared {
        tensors.extend([shared, gate]);
    }
    if !all_f32::<B>(&tensors) {
        return reference::expert_sum::<B>(y, shares, shared);
    }
    let (shape, device) = (y.shape(), y.device());
    let sizes = ExpertSumShape {
        tokens: shape[0],
        used: shape[1],
        width: shape[2],
    };
    let mut out = vec![0f32; shape[0] * shape[2]];
    with_all::<B>(&tensors, |slices| {
        let shared = slices.get(2).copied().zip(slices.get(3).copied());
        checked(cpu::expert_sum(
            slices[0], slices[1], shared, &sizes, &mut out,
        ));
    });
    float::<B>(out, Shape::new([shape[0], shape[2]]), &device)
}
