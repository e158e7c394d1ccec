//! The operations on CubeCL devices: Vulkan, WebGPU, Metal, CUDA and ROCm from one source.

use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, FloatDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_gguf_kernels::cpu::Arithmetic;
use burn_gguf_kernels::cube::{self, CubeError, CubeMatrix, FloatKind};
use cubecl::ir::{ElemType, IntKind, UIntKind};
use cubecl::server::Handle;

use super::ggml::{GgmlOps, check_dequantize_dtype, input_rows, linear_shape, to_f32};
use super::layer::LayerOps;
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
        _arithmetic: Arithmetic,
    ) -> FloatTensor<Self> {
        let layout = weight.layout;
        let (dtype, shape) = (x.dtype(), x.shape());
        let x = into_contiguous(to_f32::<Self>(x));
        let y = cube::linear(
            &x.client,
            &matrix(&weight),
            x.handle.clone(),
            input_rows(&shape),
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

impl LayerOps for CubeBackend {}
