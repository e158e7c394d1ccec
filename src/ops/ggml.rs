//! Operations on block-quantized weights.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, backend_extension, read_sync};
#[cfg(feature = "fusion")]
use burn::tensor::DType;
use burn::tensor::{FloatDType, Shape};
use burn_gguf_kernels::cpu::Arithmetic;

use crate::tensor::GgmlPrimitive;

/// Operations on [`GgmlPrimitive`], implemented by every backend that can hold GGML blocks.
///
/// Use them through [`GgmlTensor`](crate::GgmlTensor), which checks shapes first.
#[backend_extension(
    Cube: cfg(feature = "cube"),
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Autodiff: cfg(feature = "autodiff"),
    Fusion: cfg(feature = "fusion"),
)]
pub trait GgmlOps: Backend {
    /// All values: `[matrices * rows, cols]` of `dtype`.
    #[fusion(
        dtype = (*dtype).into(),
        shape = Shape::new([weight.layout.total_rows(), weight.layout.cols()])
    )]
    fn ggml_dequantize(
        #[extension_type] weight: GgmlPrimitive<Self>,
        dtype: FloatDType,
    ) -> FloatTensor<Self>;

    /// `x . W^T`: `[.., cols] -> [.., rows]`, in the dtype of `x`.
    #[fusion(dtype = x, shape = linear_shape(x, weight.layout.rows()))]
    fn ggml_linear(
        x: FloatTensor<Self>,
        #[extension_type] weight: GgmlPrimitive<Self>,
        arithmetic: Arithmetic,
    ) -> FloatTensor<Self>;

    /// Two products over one input.
    #[fusion(default)]
    fn ggml_linear_pair(
        x: FloatTensor<Self>,
        #[extension_type] first: GgmlPrimitive<Self>,
        #[extension_type] second: GgmlPrimitive<Self>,
        arithmetic: Arithmetic,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        (
            Self::ggml_linear(x.clone(), first, arithmetic),
            Self::ggml_linear(x, second, arithmetic),
        )
    }

    /// Three products over one input.
    #[fusion(default)]
    fn ggml_linear_triple(
        x: FloatTensor<Self>,
        #[extension_type] first: GgmlPrimitive<Self>,
        #[extension_type] second: GgmlPrimitive<Self>,
        #[extension_type] third: GgmlPrimitive<Self>,
        arithmetic: Arithmetic,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        (
            Self::ggml_linear(x.clone(), first, arithmetic),
            Self::ggml_linear(x.clone(), second, arithmetic),
            Self::ggml_linear(x, third, arithmetic),
        )
    }

    /// A mixture of experts: `x` `[tokens, 1 or chosen, cols]`, `ids` `[tokens, chosen]` of the matrices of the stack,
    /// row `[t, s]` of the result `[tokens, chosen, rows]` being `x[t, s] . W[ids[t, s]]^T`, in the dtype of `x`.
    #[fusion(dtype = x, shape = experts_shape(ids, weight.layout.rows()))]
    fn ggml_linear_experts(
        x: FloatTensor<Self>,
        #[extension_type] weight: GgmlPrimitive<Self>,
        ids: IntTensor<Self>,
        arithmetic: Arithmetic,
    ) -> FloatTensor<Self>;

    /// Two stacks of the same experts over one input: gate and up projections.
    #[fusion(default)]
    fn ggml_linear_experts_pair(
        x: FloatTensor<Self>,
        #[extension_type] first: GgmlPrimitive<Self>,
        #[extension_type] second: GgmlPrimitive<Self>,
        ids: IntTensor<Self>,
        arithmetic: Arithmetic,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        (
            Self::ggml_linear_experts(x.clone(), first, ids.clone(), arithmetic),
            Self::ggml_linear_experts(x, second, ids, arithmetic),
        )
    }

    /// Rows `ids` `[n]` of the table as f32 `[n, cols]`.
    #[fusion(
        dtype = DType::F32,
        shape = Shape::new([ids.num_elements(), weight.layout.cols()])
    )]
    fn ggml_gather_rows(
        #[extension_type] weight: GgmlPrimitive<Self>,
        ids: IntTensor<Self>,
    ) -> FloatTensor<Self>;
}

/// The shape of a linear layer's output: `x` with its last dimension replaced by `rows`.
pub(crate) fn linear_shape(x: &Shape, rows: usize) -> Shape {
    let mut dims = x.to_vec();
    if let Some(last) = dims.last_mut() {
        *last = rows;
    }
    Shape::from(dims)
}

/// The shape of the products of chosen experts.
pub(crate) fn experts_shape(ids: &Shape, rows: usize) -> Shape {
    let dims = ids.as_slice();
    Shape::new([dims[0], dims[1], rows])
}

/// Ids on the host, whatever integers the device has.
pub(crate) fn host_ids<B: Backend>(ids: IntTensor<B>) -> Vec<i64> {
    let ids = read_sync(B::int_into_data(ids)).expect("the ids can be read");
    ids.iter::<i64>().collect()
}

/// Number of input rows of a linear layer: the product of all but the last dimension.
pub(crate) fn input_rows(x: &Shape) -> usize {
    let dims = x.as_slice();
    dims[..dims.len().saturating_sub(1)].iter().product()
}

/// Rejects a float dtype other than the three that weights dequantize to.
///
/// # Panics
/// For F64 and quantized dtypes.
pub(crate) fn check_dequantize_dtype(dtype: FloatDType) {
    assert!(
        matches!(dtype, FloatDType::F32 | FloatDType::F16 | FloatDType::BF16),
        "ggml_dequantize: {dtype:?} is not one of F32, F16, BF16",
    );
}

/// `tensor` cast to f32 if it is not already.
pub(crate) fn to_f32<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match tensor.dtype() {
        burn::tensor::DType::F32 => tensor,
        _ => B::float_cast(tensor, FloatDType::F32),
    }
}
