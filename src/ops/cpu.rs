//! What the CPU backends share: the operations on host slices, generic over how a backend lends them.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, read_sync};
use burn::tensor::{DType, FloatDType, Shape, TensorData};
use burn_gguf_kernels::cpu::{self, Arithmetic, ExpertInput, Experts, KvView, KvViewMut, Matrix};
use half::{bf16, f16};

use super::ggml::{
    check_dequantize_dtype, experts_shape, host_ids, input_rows, linear_shape, to_f32,
};
use crate::layout::GgmlLayout;
use crate::tensor::GgmlPrimitive;

/// The kernels refuse only what [`GgmlTensor`](crate::GgmlTensor) has already checked.
const CHECKED: &str = "the tensor's layout was checked when it was made";

/// A backend whose tensors lie in host memory.
pub(super) trait HostBackend: Backend {
    /// Lends the words of a U32 tensor, without a copy.
    fn with_words<R>(words: &IntTensor<Self>, f: impl FnOnce(&[u32]) -> R) -> R;

    /// Lends the values of an F32 tensor in row-major order, copying only if it is not contiguous.
    fn with_f32<R>(tensor: &FloatTensor<Self>, f: impl FnOnce(&[f32]) -> R) -> R;

    /// Lends the values of a contiguous F32 or F16 cache, without a copy.
    fn with_cache<R>(cache: &FloatTensor<Self>, f: impl FnOnce(KvView<'_>) -> R) -> R;

    /// Writes into a cache of one handle in place, or hands it back untouched where it is shared.
    fn edit_cache(
        cache: FloatTensor<Self>,
        f: impl FnOnce(KvViewMut<'_>),
    ) -> Result<FloatTensor<Self>, FloatTensor<Self>>;

    /// The values of an F32 tensor in row-major order, its own storage where it is the only handle to it.
    fn into_vec(tensor: FloatTensor<Self>) -> Vec<f32> {
        read_sync(Self::float_into_data(tensor))
            .expect("host memory can be read")
            .try_into_vec()
            .expect("the caller checked for F32")
    }
}

fn matrix<'a>(layout: &GgmlLayout, words: &'a [u32]) -> Matrix<'a> {
    Matrix {
        ty: layout.ggml_type(),
        bytes: &bytemuck::cast_slice(words)[..layout.byte_len()],
        rows: layout.total_rows(),
        cols: layout.cols(),
    }
}

fn experts<'a>(layout: &GgmlLayout, words: &'a [u32]) -> Experts<'a> {
    Experts {
        ty: layout.ggml_type(),
        bytes: &bytemuck::cast_slice(words)[..layout.byte_len()],
        experts: layout.matrices(),
        rows: layout.rows(),
        cols: layout.cols(),
    }
}

pub(super) fn float<B: Backend>(
    values: Vec<f32>,
    shape: Shape,
    device: &B::Device,
) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape), device)
}

pub(super) fn dequantize<B: HostBackend>(
    weight: GgmlPrimitive<B>,
    dtype: FloatDType,
) -> FloatTensor<B> {
    check_dequantize_dtype(dtype);
    let layout = weight.layout;
    let mut values = vec![0f32; layout.num_values()];
    B::with_words(&weight.words, |words| {
        let m = matrix(&layout, words);
        cpu::dequantize(m.ty, m.bytes, &mut values).expect(CHECKED);
    });
    let shape = Shape::new([layout.total_rows(), layout.cols()]);
    let data = match dtype {
        FloatDType::F16 => TensorData::new(
            values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>(),
            shape,
        ),
        FloatDType::BF16 => TensorData::new(
            values
                .iter()
                .map(|&v| bf16::from_f32(v))
                .collect::<Vec<_>>(),
            shape,
        ),
        _ => TensorData::new(values, shape),
    };
    B::float_from_data(data, &weight.words.device())
}

pub(super) fn linear_many<B: HostBackend, const N: usize>(
    x: FloatTensor<B>,
    weights: [GgmlPrimitive<B>; N],
    arithmetic: Arithmetic,
) -> [FloatTensor<B>; N] {
    let (dtype, device, shape) = (x.dtype(), x.device(), x.shape());
    let n = input_rows(&shape);
    let x = to_f32::<B>(x);
    let mut outs = weights
        .each_ref()
        .map(|w| vec![0f32; n * w.layout.total_rows()]);
    B::with_f32(&x, |x| {
        lend_all::<B, N>(&weights, &mut Vec::with_capacity(N), &mut |words| {
            let matrices: Vec<_> = weights
                .iter()
                .zip(words)
                .map(|(w, words)| matrix(&w.layout, words))
                .collect();
            let mut slices: Vec<_> = outs.iter_mut().map(Vec::as_mut_slice).collect();
            cpu::linear_many(&matrices, x, n, &mut slices, arithmetic).expect(CHECKED);
        });
    });
    let mut rows = weights.iter().map(|w| w.layout.total_rows());
    outs.map(|out| {
        let shape = linear_shape(&shape, rows.next().unwrap_or(0));
        let out = float::<B>(out, shape, &device);
        match dtype {
            DType::F32 => out,
            other => B::float_cast(out, FloatDType::from(other)),
        }
    })
}

/// Borrows the words of every weight at once and hands them to `f`.
fn lend_all<B: HostBackend, const N: usize>(
    weights: &[GgmlPrimitive<B>],
    lent: &mut Vec<&[u32]>,
    f: &mut dyn FnMut(&[&[u32]]),
) {
    match weights.split_first() {
        None => f(lent),
        Some((first, rest)) => B::with_words(&first.words, |words| {
            let mut lent: Vec<&[u32]> = lent.iter().copied().chain([words]).collect();
            lend_all::<B, N>(rest, &mut lent, f);
        }),
    }
}

/// Products with chosen experts.
///
/// # Panics
/// If an id is out of range.
pub(super) fn linear_experts<B: HostBackend, const N: usize>(
    x: FloatTensor<B>,
    weights: [GgmlPrimitive<B>; N],
    ids: IntTensor<B>,
    arithmetic: Arithmetic,
) -> [FloatTensor<B>; N] {
    let (dtype, device) = (x.dtype(), x.device());
    let per_slot = x.shape()[1] != 1;
    let shape = ids.shape();
    let chosen = shape[1];
    let ids = host_ids::<B>(ids);
    let x = to_f32::<B>(x);
    let mut outs = weights
        .each_ref()
        .map(|w| vec![0f32; ids.len() * w.layout.rows()]);
    B::with_f32(&x, |x| {
        let x = match per_slot {
            true => ExpertInput::Slots(x),
            false => ExpertInput::Tokens(x),
        };
        lend_all::<B, N>(&weights, &mut Vec::with_capacity(N), &mut |words| {
            let stacks: Vec<_> = weights
                .iter()
                .zip(words)
                .map(|(w, words)| experts(&w.layout, words))
                .collect();
            let mut slices: Vec<_> = outs.iter_mut().map(Vec::as_mut_slice).collect();
            let done = cpu::linear_experts_many(&stacks, x, &ids, chosen, &mut slices, arithmetic);
            done.unwrap_or_else(|e| panic!("linear_experts: {e}"));
        });
    });
    let mut rows = weights.iter().map(|w| w.layout.rows());
    outs.map(|out| {
        let shape = experts_shape(&shape, rows.next().unwrap_or(0));
        let out = float::<B>(out, shape, &device);
        match dtype {
            DType::F32 => out,
            other => B::float_cast(out, FloatDType::from(other)),
        }
    })
}

/// Rows of the table by index.
///
/// # Panics
/// If an id is out of range, as burn's own embedding does.
pub(super) fn gather_rows<B: HostBackend>(
    weight: GgmlPrimitive<B>,
    ids: IntTensor<B>,
) -> FloatTensor<B> {
    let layout = weight.layout;
    let rows = layout.total_rows();
    let ids = host_ids::<B>(ids);
    if let Some(id) = ids.iter().find(|&&id| id < 0 || id as usize >= rows) {
        panic!("gather_rows: id {id} is not below {rows}");
    }
    let mut out = vec![0f32; ids.len() * layout.cols()];
    B::with_words(&weight.words, |words| {
        let m = matrix(&layout, words);
        cpu::gather_rows(m.ty, m.bytes, layout.cols(), &ids, &mut out).expect(CHECKED);
    });
    float::<B>(
        out,
        Shape::new([ids.len(), layout.cols()]),
        &weight.words.device(),
    )
}

/// Implements the extension traits of a [`HostBackend`] with the shared functions.
macro_rules! impl_cpu_ops {
    ($backend:ty) => {
        impl $crate::ops::LayerOps for $backend {
            fn layer_rms_norm(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                eps: f32,
            ) -> FloatTensor<Self> {
                cpu_layer::rms_norm::<Self>(x, weight, eps)
            }

            fn layer_layer_norm(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                bias: FloatTensor<Self>,
                eps: f32,
            ) -> FloatTensor<Self> {
                cpu_layer::layer_norm::<Self>(x, weight, bias, eps)
            }

            fn layer_gelu(x: FloatTensor<Self>, kind: GeluKind) -> FloatTensor<Self> {
                cpu_layer::gelu::<Self>(x, kind)
            }

            fn layer_rope(
                x: FloatTensor<Self>,
                cos: FloatTensor<Self>,
                sin: FloatTensor<Self>,
                style: RopeStyle,
            ) -> FloatTensor<Self> {
                cpu_layer::rope::<Self>(x, cos, sin, style)
            }

            fn layer_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
                cpu_layer::linear::<Self>(x, weight)
            }

            fn layer_glu(
                gate: FloatTensor<Self>,
                up: FloatTensor<Self>,
                activation: GluActivation,
            ) -> FloatTensor<Self> {
                cpu_layer::glu::<Self>(gate, up, activation)
            }

            fn layer_cache_append(
                cache: FloatTensor<Self>,
                rows: FloatTensor<Self>,
                position: usize,
            ) -> FloatTensor<Self> {
                cpu_layer::cache_append::<Self>(cache, rows, position)
            }

            fn layer_attention(
                q: FloatTensor<Self>,
                k: FloatTensor<Self>,
                v: FloatTensor<Self>,
                params: AttentionParams,
            ) -> FloatTensor<Self> {
                cpu_layer::attention::<Self>(q, k, v, params)
            }

            fn layer_attention_blocks(
                q: FloatTensor<Self>,
                k: FloatTensor<Self>,
                v: FloatTensor<Self>,
                blocks: IntTensor<Self>,
                block_size: usize,
                params: AttentionParams,
            ) -> FloatTensor<Self> {
                cpu_layer::attention_blocks::<Self>(q, k, v, blocks, block_size, params)
            }

            fn layer_choose_blocks(
                q: FloatTensor<Self>,
                k: FloatTensor<Self>,
                choice: BlockChoice,
            ) -> IntTensor<Self> {
                cpu_layer::choose_blocks::<Self>(q, k, choice)
            }

            fn layer_short_conv(
                x: FloatTensor<Self>,
                taps: FloatTensor<Self>,
                state: FloatTensor<Self>,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                cpu_layer::short_conv::<Self>(x, taps, state)
            }

            fn layer_gated_delta(
                mixed: FloatTensor<Self>,
                gate: FloatTensor<Self>,
                beta: FloatTensor<Self>,
                alpha: FloatTensor<Self>,
                a: FloatTensor<Self>,
                dt: FloatTensor<Self>,
                norm: FloatTensor<Self>,
                state: FloatTensor<Self>,
                params: DeltaParams,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                let input = DeltaTensors {
                    mixed,
                    gate,
                    beta,
                    alpha,
                    a,
                    dt,
                    norm,
                };
                cpu_layer::gated_delta::<Self>(input, state, params)
            }

            fn layer_choose_experts(
                logits: FloatTensor<Self>,
                params: ChoiceParams,
            ) -> (IntTensor<Self>, FloatTensor<Self>) {
                cpu_layer::choose_experts::<Self>(logits, None, params)
            }

            fn layer_choose_experts_biased(
                logits: FloatTensor<Self>,
                bias: FloatTensor<Self>,
                params: ChoiceParams,
            ) -> (IntTensor<Self>, FloatTensor<Self>) {
                cpu_layer::choose_experts::<Self>(logits, Some(bias), params)
            }

            fn layer_expert_sum(
                y: FloatTensor<Self>,
                shares: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                cpu_layer::expert_sum::<Self>(y, shares, None)
            }

            fn layer_expert_sum_shared(
                y: FloatTensor<Self>,
                shares: FloatTensor<Self>,
                shared: FloatTensor<Self>,
                gate: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                cpu_layer::expert_sum::<Self>(y, shares, Some((shared, gate)))
            }
        }

        impl $crate::ops::GgmlOps for $backend {
            fn ggml_dequantize(
                weight: GgmlPrimitive<Self>,
                dtype: FloatDType,
            ) -> FloatTensor<Self> {
                cpu::dequantize(weight, dtype)
            }

            fn ggml_linear(
                x: FloatTensor<Self>,
                weight: GgmlPrimitive<Self>,
                arithmetic: Arithmetic,
            ) -> FloatTensor<Self> {
                let [y] = cpu::linear_many(x, [weight], arithmetic);
                y
            }

            fn ggml_linear_pair(
                x: FloatTensor<Self>,
                first: GgmlPrimitive<Self>,
                second: GgmlPrimitive<Self>,
                arithmetic: Arithmetic,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                let [a, b] = cpu::linear_many(x, [first, second], arithmetic);
                (a, b)
            }

            fn ggml_linear_triple(
                x: FloatTensor<Self>,
                first: GgmlPrimitive<Self>,
                second: GgmlPrimitive<Self>,
                third: GgmlPrimitive<Self>,
                arithmetic: Arithmetic,
            ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
                let [a, b, c] = cpu::linear_many(x, [first, second, third], arithmetic);
                (a, b, c)
            }

            fn ggml_linear_experts(
                x: FloatTensor<Self>,
                weight: GgmlPrimitive<Self>,
                ids: IntTensor<Self>,
                arithmetic: Arithmetic,
            ) -> FloatTensor<Self> {
                let [y] = cpu::linear_experts(x, [weight], ids, arithmetic);
                y
            }

            fn ggml_linear_experts_pair(
                x: FloatTensor<Self>,
                first: GgmlPrimitive<Self>,
                second: GgmlPrimitive<Self>,
                ids: IntTensor<Self>,
                arithmetic: Arithmetic,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                let [a, b] = cpu::linear_experts(x, [first, second], ids, arithmetic);
                (a, b)
            }

            fn ggml_gather_rows(
                weight: GgmlPrimitive<Self>,
                ids: IntTensor<Self>,
            ) -> FloatTensor<Self> {
                cpu::gather_rows(weight, ids)
            }
        }
    };
}
pub(super) use impl_cpu_ops;
