//! A file's tensors as dense values.

use burn::tensor::{AllocationProperty, Bytes, DType, FloatDType, Shape};
use burn_gguf_kernels::{GgmlType, cpu};
use burn_store::burn_pack::{Error as PackError, Tensor as PackTensor};
use half::{bf16, f16};

use crate::device::Backend;
use crate::error::TensorError;
use crate::gguf::TensorInfo;
use crate::layout::GgmlLayout;
use crate::tensor::{ensure_computable, layout_of};

/// The tensor under its module path, its values produced when asked for: numbers as they are, floats and blocks as
/// `f32`. The shape is row-major: GGUF's, reversed.
pub(super) fn lazy_tensor(info: &TensorInfo, path: String) -> PackTensor {
    let shape = row_major(info);
    let dtype = dense_dtype(info);
    let byte_len = shape.num_elements() * dtype.size();
    let info = info.clone();
    PackTensor::deferred(path, dtype, shape, None, byte_len, move || {
        values(&info).map_err(|e| PackError::ValidationError(format!("{}: {e}", info.name())))
    })
}

/// The shape as burn spells it: contiguous axis last. A tensor without dimensions is one value.
pub(super) fn row_major(info: &TensorInfo) -> Shape {
    let dims: Vec<usize> = info.shape().iter().rev().map(|&n| n as usize).collect();
    match dims.is_empty() {
        true => Shape::new([1]),
        false => Shape::from(dims),
    }
}

fn dense_dtype(info: &TensorInfo) -> DType {
    match info.ggml_type() {
        Some(GgmlType::I8) => DType::I8,
        Some(GgmlType::I16) => DType::I16,
        Some(GgmlType::I32) => DType::I32,
        Some(GgmlType::I64) => DType::I64,
        _ => DType::F32,
    }
}

fn values(info: &TensorInfo) -> Result<Bytes, Box<dyn std::error::Error>> {
    let ggml_type = info.usable_type()?;
    match ggml_type {
        GgmlType::F32 | GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64 => {
            Ok(Bytes::from_shared(info.bytes(), AllocationProperty::File))
        }
        GgmlType::F64 => Ok(Bytes::from_elems(
            info.data()
                .chunks_exact(8)
                .map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default()) as f32)
                .collect::<Vec<f32>>(),
        )),
        _ => Ok(Bytes::from_elems(dequantize(ggml_type, info.data())?)),
    }
}

/// All values of blocks of a computable type.
pub(crate) fn dequantize(ggml_type: GgmlType, blocks: &[u8]) -> Result<Vec<f32>, TensorError> {
    // Dequantized on the host, whatever device the values go to.
    ensure_computable(ggml_type, Backend::Flex)?;
    let count = blocks.len() / ggml_type.block_bytes() * ggml_type.block_len();
    let mut out = vec![0f32; count];
    cpu::dequantize(ggml_type, blocks, &mut out).map_err(|_| TensorError::ByteLength {
        ggml_type,
        expected: count / ggml_type.block_len() * ggml_type.block_bytes(),
        found: blocks.len(),
    })?;
    Ok(out)
}

/// The ggml type of a [`LoadProfile::Dense`](super::LoadProfile)'s values.
pub(super) fn plain_type(dtype: FloatDType) -> GgmlType {
    match dtype {
        FloatDType::F16 => GgmlType::F16,
        FloatDType::BF16 => GgmlType::BF16,
        _ => GgmlType::F32,
    }
}

/// The tensor's values as blocks of a plain float type, for [`LoadProfile::Dense`](super::LoadProfile).
pub(super) fn dense_blocks(
    info: &TensorInfo,
    ggml_type: GgmlType,
    dtype: FloatDType,
) -> Result<(GgmlLayout, bytes::Bytes), TensorError> {
    let values = dequantize(ggml_type, info.data())?;
    let dense = plain_type(dtype);
    let mut blocks = Vec::with_capacity(values.len() * dense.block_bytes());
    match dense {
        GgmlType::F16 => blocks.extend(values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes())),
        GgmlType::BF16 => {
            blocks.extend(values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()));
        }
        _ => blocks.extend(values.iter().flat_map(|v| v.to_le_bytes())),
    }
    Ok((layout_of(dense, info.shape())?, bytes::Bytes::from(blocks)))
}

/// The ggml type of a dense dtype; `None` where GGUF has none.
pub(super) fn encode(dtype: DType) -> Option<GgmlType> {
    match dtype {
        DType::F32 => Some(GgmlType::F32),
        DType::F16 => Some(GgmlType::F16),
        DType::BF16 => Some(GgmlType::BF16),
        DType::F64 => Some(GgmlType::F64),
        DType::I8 => Some(GgmlType::I8),
        DType::I16 => Some(GgmlType::I16),
        DType::I32 => Some(GgmlType::I32),
        DType::I64 => Some(GgmlType::I64),
        _ => None,
    }
}
