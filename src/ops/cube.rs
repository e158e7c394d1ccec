//! The operations on CubeCL devices: Vulkan, WebGPU, Metal, CUDA and ROCm from one source.

use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, FloatDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::cpu::{
    Arithmetic, ChoiceShape, ExpertSumShape, GatedDeltaShape, RopePairing, ShortConvShape,
};
use burn_gguf_kernels::cube::{
    self, CubeError, CubeMatrix, DeltaHandles, ExpertsShape, FloatKind, GluKind, LinearOptions,
    RopeShape,
};
use cubecl::ir::{ElemType, IntKind, UIntKind};
use cubecl::server::Handle;

use super::ggml::{GgmlOps, check_dequantize_dtype, input_rows, linear_shape, to_f32};
use super::layer::{
    AttentionParams, BlockChoice, ChoiceParams, DeltaParams, GluActivation, LayerOps, RopeStyle,
};
use super::reference::{self, DeltaTensors};
use crate::layout::GgmlLayout;
use crate::tensor::GgmlPrimitive;

/// The blocks as the kernels take them, cut by rows where the device's bindings are too small for all of them.
fn matrix(weight: &GgmlPrimitive<CubeBackend>) -> CubeMatrix {
    let GgmlPrimitive { words, layout } = weight;
    let limit = cube::binding_limit(&words.client);
    checked(
        CubeMatrix::from_handle(
            &words.client,
            words.handle.clone(),
            layout.ggml_type(),
            layout.total_rows(),
            layout.cols(),
            limit,
        ),
        layout,
    )
}

/// Sizes and types were checked when the tensor was made; what is left is a device that cannot hold an operand,
/// which burn's operations report by panicking too.
fn checked<T>(result: Result<T, CubeError>, layout: &GgmlLayout) -> T {
    result.unwrap_or_else(|e| panic!("{} weight {layout:?}: {e}", layout.ggml_type()))
}

/// A result next to the weight.
fn tensor(words: &CubeTensor, handle: Handle, shape: Shape, dtype: DType) -> CubeTensor {
    CubeTensor::new_contiguous(
        words.client.clone(),
        words.device.clone(),
        shape,
        handle,
        dtype,
    )
}

impl GgmlOps for CubeBackend {
    fn ggml_dequantize(weight: GgmlPrimitive<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        check_dequantize_dtype(dtype);
        let layout = weight.layout;
        let kind = match dtype {
            FloatDType::F16 => FloatKind::F16,
            FloatDType::BF16 => FloatKind::BF16,
            _ => FloatKind::F32,
        };
        let values = cube::dequantize(&weight.words.client, &matrix(&weight), kind);
        let shape = Shape::new([layout.total_rows(), layout.cols()]);
        tensor(
            &weight.words,
            checked(values, &layout),
            shape,
            DType::from(dtype),
        )
    }

    fn ggml_linear(
        x: FloatTensor<Self>,
        weight: GgmlPrimitive<Self>,
        arithmetic: Arithmetic,
    ) -> FloatTensor<Self> {
        let layout = weight.layout;
        let (dtype, shape) = (x.dtype(), x.shape());
        let x = into_contiguous(to_f32::<Self>(x));
        let options = LinearOptions {
            arithmetic: Some(arithmetic),
            ..LinearOptions::default()
        };
        let y = cube::linear_with(
            &x.client,
            &matrix(&weight),
            x.handle.clone(),
            input_rows(&shape),
            options,
        );
        let y = tensor(
            &weight.words,
            checked(y, &layout),
            linear_shape(&shape, layout.total_rows()),
            DType::F32,
        );
        match dtype {
            DType::F32 => y,
            other => burn_cubecl::kernel::cast(y, other),
        }
    }

    fn ggml_linear_experts(
        x: FloatTensor<Self>,
        weight: GgmlPrimitive<Self>,
        ids: IntTensor<Self>,
        _arithmetic: Arithmetic,
    ) -> FloatTensor<Self> {
        let layout = weight.layout;
        let dtype = x.dtype();
        let [tokens, chosen] = [ids.shape()[0], ids.shape()[1]];
        let shape = ExpertsShape {
            experts: layout.matrices(),
            tokens,
            chosen,
            x_per_choice: x.shape()[1] != 1,
        };
        let ids = match ids.dtype {
            DType::I32 => ids,
            _ => burn_cubecl::kernel::cast(ids, DType::I32),
        };
        let (x, ids) = (into_contiguous(to_f32::<Self>(x)), into_contiguous(ids));
        let y = cube::linear_experts(
            &x.client,
            &matrix(&weight),
            ids.handle,
            x.handle.clone(),
            &shape,
        );
        let y = tensor(
            &weight.words,
            checked(y, &layout),
            Shape::new([tokens, chosen, layout.rows()]),
            DType::F32,
        );
        match dtype {
            DType::F32 => y,
            other => burn_cubecl::kernel::cast(y, other),
        }
    }

    fn ggml_gather_rows(weight: GgmlPrimitive<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        let layout = weight.layout;
        let (ids, id_type) = match ids.dtype {
            DType::I32 => (ids, ElemType::Int(IntKind::I32)),
            DType::U32 => (ids, ElemType::UInt(UIntKind::U32)),
            DType::I64 => (ids, ElemType::Int(IntKind::I64)),
            _ => (
                burn_cubecl::kernel::cast(ids, DType::I32),
                ElemType::Int(IntKind::I32),
            ),
        };
        let ids = into_contiguous(ids);
        let n = ids.shape().num_elements();
        let rows = cube::gather_rows(
            &ids.client,
            &matrix(&weight),
            ids.handle.clone(),
            n,
            id_type,
        );
        tensor(
            &weight.words,
            checked(rows, &layout),
            Shape::new([n, layout.cols()]),
            DType::F32,
        )
    }
}

/// A result of the layer kernels: sizes were checked by the callers, see [`checked`].
fn done(like: &CubeTensor, result: Result<Handle, CubeError>) -> CubeTensor {
    let handle = result.unwrap_or_else(|e| panic!("{e}"));
    tensor(like, handle, like.shape(), DType::F32)
}

/// Whether the kernels serve these operands: they compute in f32.
fn all_f32(tensors: &[&CubeTensor]) -> bool {
    tensors.iter().all(|t| t.dtype == DType::F32)
}

impl LayerOps for CubeBackend {
    fn layer_rms_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        eps: f32,
    ) -> FloatTensor<Self> {
        if !all_f32(&[&x, &weight]) {
            return reference::rms_norm::<Self>(x, weight, eps);
        }
        let (x, weight) = (into_contiguous(x), into_contiguous(weight));
        let dim = weight.shape().num_elements();
        let rows = x.shape().num_elements() / dim.max(1);
        let (input, weight) = (x.handle.clone(), weight.handle);
        let out = cube::rms_norm(&x.client, input, weight, rows, dim, eps, None);
        done(&x, out)
    }

    fn layer_layer_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        eps: f32,
    ) -> FloatTensor<Self> {
        if !all_f32(&[&x, &weight, &bias]) {
            return reference::layer_norm::<Self>(x, weight, bias, eps);
        }
        let [x, weight, bias] = [x, weight, bias].map(into_contiguous);
        let dim = weight.shape().num_elements();
        let rows = x.shape().num_elements() / dim.max(1);
        let (input, weight, bias) = (x.handle.clone(), weight.handle, bias.handle);
        let out = cube::layer_norm(&x.client, input, weight, bias, rows, dim, eps, None);
        done(&x, out)
    }

    fn layer_rope(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        style: RopeStyle,
    ) -> FloatTensor<Self> {
        if !all_f32(&[&x, &cos, &sin]) {
            return reference::rope::<Self>(x, cos, sin, style);
        }
        let [x, cos, sin] = [x, cos, sin].map(into_contiguous);
        let [batch, seq, heads, dim] = dims4(&x.shape());
        let shape = RopeShape {
            batch,
            seq,
            heads,
            dim,
            pairs: cos.shape()[1],
        };
        let pairing = match style {
            RopeStyle::Neox => RopePairing::Neox,
            RopeStyle::Norm => RopePairing::Norm,
        };
        let input = x.handle.clone();
        let out = cube::rope(&x.client, input, cos.handle, sin.handle, &shape, pairing);
        done(&x, out)
    }

    fn layer_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        if !all_f32(&[&x, &weight]) {
            return reference::linear::<Self>(x, weight);
        }
        let (x, weight) = (into_contiguous(x), into_contiguous(weight));
        let [rows, cols] = [weight.shape()[0], weight.shape()[1]];
        let n = x.shape()[0];
        let limit = cube::binding_limit(&weight.client);
        let options = LinearOptions {
            arithmetic: Some(Arithmetic::Exact),
            ..LinearOptions::default()
        };
        let handle = weight.handle.clone();
        let y = CubeMatrix::from_handle(&weight.client, handle, GgmlType::F32, rows, cols, limit)
            .and_then(|matrix| cube::linear_with(&x.client, &matrix, x.handle.clone(), n, options));
        let y = y.unwrap_or_else(|e| panic!("{e}"));
        tensor(&weight, y, Shape::new([n, rows]), DType::F32)
    }

    fn layer_glu(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        activation: GluActivation,
    ) -> FloatTensor<Self> {
        if !all_f32(&[&gate, &up]) {
            return reference::glu::<Self>(gate, up, activation);
        }
        let (gate, up) = (into_contiguous(gate), into_contiguous(up));
        let kind = match activation {
            GluActivation::Silu => GluKind::Silu,
            GluActivation::GeluTanh => GluKind::GeluTanh,
            GluActivation::SwigluOai => GluKind::SwigluOai,
        };
        let values = gate.shape().num_elements();
        let out = cube::glu(&gate.client, gate.handle.clone(), up.handle, values, kind);
        done(&gate, out)
    }

    fn layer_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        params: AttentionParams,
    ) -> FloatTensor<Self> {
        match served_cache(&q, &k, &v) {
            Some(kind) => attend(q, k, v, kind, None, params),
            None => reference::attention::<Self>(q, k, v, params),
        }
    }

    fn layer_attention_blocks(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        blocks: IntTensor<Self>,
        block_size: usize,
        params: AttentionParams,
    ) -> FloatTensor<Self> {
        match served_cache(&q, &k, &v).filter(|_| blocks.dtype == DType::U32) {
            Some(kind) => {
                let blocks = cube::KeyBlocks {
                    bits: into_contiguous(blocks).handle,
                    size: block_size,
                };
                attend(q, k, v, kind, Some(blocks), params)
            }
            None => reference::attention_blocks::<Self>(q, k, v, blocks, block_size, params),
        }
    }

    fn layer_choose_blocks(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        choice: BlockChoice,
    ) -> IntTensor<Self> {
        if !all_f32(&[&q, &k]) {
            return reference::choose_blocks::<Self>(q, k, choice);
        }
        let (q, k) = (into_contiguous(q), into_contiguous(k));
        let [batch, seq, heads, dim] = dims4(&q.shape());
        let shape = cube::BlockChoiceShape {
            batch,
            seq,
            heads,
            dim,
            capacity: k.shape()[2],
            len: choice.len,
            size: choice.size,
            top: choice.top,
            local: choice.local,
        };
        let bits = cube::choose_blocks(&q.client, q.handle.clone(), k.handle, &shape, None);
        let bits = bits.unwrap_or_else(|e| panic!("{e}"));
        let words = BlockChoice::words(choice.len, choice.size);
        let shape = Shape::new([batch, seq, heads, words]);
        tensor(&q, bits, shape, DType::U32)
    }

    fn layer_short_conv(
        x: FloatTensor<Self>,
        taps: FloatTensor<Self>,
        state: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        if !all_f32(&[&x, &taps, &state]) {
            return reference::short_conv::<Self>(x, taps, state);
        }
        let [x, taps, state] = [x, taps, state].map(into_contiguous);
        let (sizes, kept) = (x.shape(), state.shape());
        let shape = ShortConvShape {
            batch: sizes[0],
            tokens: sizes[1],
            channels: sizes[2],
            kernel: taps.shape()[1],
        };
        let (input, past) = (x.handle.clone(), state.handle);
        let out = cube::short_conv(&x.client, input, taps.handle, past, &shape);
        let (out, past) = out.unwrap_or_else(|e| panic!("{e}"));
        (
            tensor(&x, out, sizes, DType::F32),
            tensor(&x, past, kept, DType::F32),
        )
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
        let inputs = [mixed, gate, beta, alpha, a, dt, norm];
        if !all_f32(&inputs.each_ref()) || !all_f32(&[&state]) {
            let [mixed, gate, beta, alpha, a, dt, norm] = inputs;
            let input = DeltaTensors {
                mixed,
                gate,
                beta,
                alpha,
                a,
                dt,
                norm,
            };
            return reference::gated_delta::<Self>(input, state, params);
        }
        let [mixed, gate, beta, alpha, a, dt, norm] = inputs.map(into_contiguous);
        let state = into_contiguous(state);
        // The kernel writes into it: never into what another tensor reads.
        let state = if state.can_mut() { state } else { state.copy() };
        let [batch, value_heads, head_dim, _] = dims4(&state.shape());
        let shape = GatedDeltaShape {
            batch,
            tokens: gate.shape()[1],
            key_heads: params.key_heads,
            value_heads,
            head_dim,
            grouped: params.grouped,
            eps: params.eps,
        };
        let handles = DeltaHandles {
            mixed: mixed.handle,
            gate: gate.handle.clone(),
            beta: beta.handle,
            alpha: alpha.handle,
            a: a.handle,
            dt: dt.handle,
            norm: norm.handle,
            state: state.handle.clone(),
        };
        let out = cube::gated_delta(&gate.client, handles, &shape, None);
        (done(&gate, out), state)
    }

    fn layer_choose_experts(
        logits: FloatTensor<Self>,
        params: ChoiceParams,
    ) -> (IntTensor<Self>, FloatTensor<Self>) {
        choose_experts(logits, None, params)
    }

    fn layer_choose_experts_biased(
        logits: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: ChoiceParams,
    ) -> (IntTensor<Self>, FloatTensor<Self>) {
        choose_experts(logits, Some(bias), params)
    }

    fn layer_expert_sum(y: FloatTensor<Self>, shares: FloatTensor<Self>) -> FloatTensor<Self> {
        expert_sum(y, shares, None)
    }

    fn layer_expert_sum_shared(
        y: FloatTensor<Self>,
        shares: FloatTensor<Self>,
        shared: FloatTensor<Self>,
        gate: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        expert_sum(y, shares, Some((shared, gate)))
    }
}

fn choose_experts(
    logits: CubeTensor,
    bias: Option<CubeTensor>,
    params: ChoiceParams,
) -> (CubeTensor, CubeTensor) {
    if !all_f32(&[&logits]) || bias.as_ref().is_some_and(|bias| !all_f32(&[bias])) {
        return reference::choose_experts::<CubeBackend>(logits, bias, params);
    }
    let logits = into_contiguous(logits);
    let sizes = logits.shape();
    let shape = ChoiceShape {
        tokens: sizes[0],
        experts: sizes[1],
        used: params.used,
        gating: params.gating,
        normalize: params.normalize,
        least_sum: params.least_sum,
        scale: params.scale,
    };
    let bias = bias.map(|bias| into_contiguous(bias).handle);
    let chosen = cube::choose_experts(&logits.client, logits.handle.clone(), bias, &shape, None);
    let (ids, shares) = chosen.unwrap_or_else(|e| panic!("{e}"));
    let slots = Shape::new([shape.tokens, shape.used]);
    (
        tensor(&logits, ids, slots.clone(), DType::I32),
        tensor(&logits, shares, slots, DType::F32),
    )
}

fn expert_sum(
    y: CubeTensor,
    shares: CubeTensor,
    shared: Option<(CubeTensor, CubeTensor)>,
) -> CubeTensor {
    let plain = shared
        .as_ref()
        .is_none_or(|(shared, gate)| all_f32(&[shared, gate]));
    if !plain || !all_f32(&[&y, &shares]) {
        return reference::expert_sum::<CubeBackend>(y, shares, shared);
    }
    let (y, shares) = (into_contiguous(y), into_contiguous(shares));
    let sizes = y.shape();
    let shape = ExpertSumShape {
        tokens: sizes[0],
        used: sizes[1],
        width: sizes[2],
    };
    let shared = shared.map(|(s, gate)| (into_contiguous(s).handle, into_contiguous(gate).handle));
    let out = cube::expert_sum(&y.client, y.handle.clone(), shares.handle, shared, &shape);
    let out = out.unwrap_or_else(|e| panic!("{e}"));
    tensor(&y, out, Shape::new([shape.tokens, shape.width]), DType::F32)
}

/// The type of the caches, if the kernel takes these operands.
fn served_cache(q: &CubeTensor, k: &CubeTensor, v: &CubeTensor) -> Option<FloatKind> {
    let cache = match (k.dtype, v.dtype) {
        (DType::F32, DType::F32) => Some(FloatKind::F32),
        (DType::F16, DType::F16) => Some(FloatKind::F16),
        _ => None,
    };
    cache.filter(|&kind| all_f32(&[q]) && cube::takes_cache(&q.client, kind))
}

fn attend(
    q: CubeTensor,
    k: CubeTensor,
    v: CubeTensor,
    cache: FloatKind,
    blocks: Option<cube::KeyBlocks>,
    params: AttentionParams,
) -> CubeTensor {
    let [q, k, v] = [q, k, v].map(into_contiguous);
    let [batch, seq, heads, dim] = dims4(&q.shape());
    let [_, kv_heads, capacity, _] = dims4(&k.shape());
    let shape = cube::AttentionShape {
        batch,
        seq,
        heads,
        kv_heads,
        dim,
        capacity,
        len: params.len,
    };
    let kernel = cube::AttentionParams {
        scale: params.scale,
        causal: params.causal,
        window: params.window,
        softcap: params.softcap,
    };
    let input = q.handle.clone();
    let out = cube::attention(
        &q.client, input, k.handle, v.handle, cache, &shape, &kernel, blocks, None,
    );
    done(&q, out)
}

fn dims4(shape: &Shape) -> [usize; 4] {
    shape
        .as_slice()
        .try_into()
        .unwrap_or_else(|_| panic!("expected 4 dimensions, found {shape:?}"))
}
