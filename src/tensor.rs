//! The block-quantized tensor on a burn device.

use burn::backend::tensor::IntTensor;
use burn::backend::{Dispatch, ExtensionType};
use burn::tensor::{
    AllocationProperty, Bytes, DType, Device, FloatDType, Int, Shape, Tensor, TensorData,
};
use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::blocks::IMPLEMENTED;
use burn_gguf_kernels::cpu::Arithmetic;

use crate::device::Backend;
use crate::error::{LoadError, TensorError};
use crate::gguf::TensorInfo;
use crate::layout::GgmlLayout;
use crate::ops::GgmlOps;
use crate::scales::Scales;

/// The backend form of a [`GgmlTensor`]: GGML blocks as u32 words plus their layout.
#[derive(Debug, Clone, ExtensionType)]
#[extension_type(fusion: cfg(feature = "fusion"))]
pub struct GgmlPrimitive<B: burn::backend::Backend> {
    /// The blocks, little endian, `[layout.word_len()]` of dtype U32.
    pub words: IntTensor<B>,
    /// Type and shape.
    pub layout: GgmlLayout,
}

/// A block-quantized matrix (or a stack of matrices) on a burn [`Device`].
///
/// The blocks are stored as the file has them and are never widened; operations read them in place.
/// Cloning is cheap: the storage is shared.
#[derive(Clone, Debug)]
pub struct GgmlTensor {
    words: Tensor<1, Int>,
    layout: GgmlLayout,
    scales: Option<Scales>,
}

impl GgmlTensor {
    /// Wraps `blocks` for `device`.
    ///
    /// On CPU devices (Flex, NdArray) the tensor's storage *is* `blocks` when its address is 4-byte aligned and
    /// its length is a multiple of 4; otherwise the bytes are copied once. On CubeCL devices they are uploaded.
    /// Bytes past [`GgmlLayout::byte_len`] are ignored (padding up to the word length).
    ///
    /// # Errors
    /// Too few bytes, a type without kernels, or a device without GGML operations.
    pub fn from_bytes(
        layout: GgmlLayout,
        blocks: bytes::Bytes,
        device: &Device,
    ) -> Result<Self, TensorError> {
        ensure_computable(layout.ggml_type(), Backend::of(device)?)?;
        if blocks.len() < layout.byte_len() {
            return Err(TensorError::ByteLength {
                ggml_type: layout.ggml_type(),
                expected: layout.byte_len(),
                found: blocks.len(),
            });
        }
        let word_bytes = layout.word_len() * 4;
        let aligned = (blocks.as_ptr() as usize).is_multiple_of(4);
        let bytes = if blocks.len() >= word_bytes && aligned {
            Bytes::from_shared(blocks.slice(..word_bytes), AllocationProperty::File)
        } else {
            let mut words = vec![0u32; layout.word_len()];
            bytemuck::cast_slice_mut::<u32, u8>(&mut words)[..layout.byte_len()]
                .copy_from_slice(&blocks[..layout.byte_len()]);
            Bytes::from_elems(words)
        };
        let data = TensorData::from_bytes(bytes, Shape::new([layout.word_len()]), DType::U32);
        // Persistent memory suits weights, and is not held to the bytes that one binding may have: kernels bind parts.
        let words = device.memory_persistent_allocations(data, |data| {
            Tensor::from_data(data, (device, DType::U32))
        });
        Ok(Self {
            words,
            layout,
            scales: None,
        })
    }

    /// Loads a tensor of a GGUF file: `{cols}` as one row, `{cols, rows}` as a matrix, `{cols, rows, n}` as a stack,
    /// and a convolution kernel `{width, height, channels, n}` as the matrix `[n, channels * height * width]`.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes), or if the tensor has an unusable type.
    pub fn from_gguf(info: &TensorInfo, device: &Device) -> Result<Self, LoadError> {
        let ggml_type = info.usable_type()?;
        let build = || {
            let layout = layout_of(ggml_type, info.shape())?;
            let blocks = info.padded_bytes(4).unwrap_or_else(|| info.bytes());
            Self::from_bytes(layout, blocks, device)
        };
        build().map_err(|source| LoadError::Tensor {
            name: info.name().to_string(),
            source,
        })
    }

    /// Wraps words that already live on a device.
    pub(crate) fn from_words(
        words: Tensor<1, Int>,
        layout: GgmlLayout,
        scales: Option<Scales>,
    ) -> Self {
        Self {
            words,
            layout,
            scales,
        }
    }

    /// The tensor with every value multiplied by a factor outside its blocks: one for all, or one per matrix of a stack,
    /// as the `.scale` tensors beside `NVFP4` weights hold them. Factors of 1 change nothing.
    ///
    /// # Errors
    /// If there are neither one nor as many factors as matrices, or one is not finite.
    pub fn with_scales(mut self, scales: &[f32]) -> Result<Self, TensorError> {
        self.scales = Scales::new(scales, self.layout.matrices())?;
        Ok(self)
    }

    /// As [`scales`](Self::scales), to be shared.
    pub(crate) fn shared_scales(&self) -> Option<Scales> {
        self.scales.clone()
    }

    /// The factors of [`with_scales`](Self::with_scales), if there are any other than 1.
    pub fn scales(&self) -> Option<&[f32]> {
        self.scales.as_ref().map(Scales::factors)
    }

    /// The blocks as u32 words, `[layout.word_len()]`.
    pub fn words(&self) -> &Tensor<1, Int> {
        &self.words
    }

    /// Type and shape.
    pub fn layout(&self) -> &GgmlLayout {
        &self.layout
    }

    /// The block type.
    pub fn ggml_type(&self) -> GgmlType {
        self.layout.ggml_type()
    }

    /// The device the blocks live on.
    pub fn device(&self) -> Device {
        self.words.device()
    }

    /// Moves the blocks to another device.
    ///
    /// # Errors
    /// If `device` has no GGML operations, or none for this type.
    pub fn to_device(self, device: &Device) -> Result<Self, TensorError> {
        ensure_computable(self.layout.ggml_type(), Backend::of(device)?)?;
        Ok(Self {
            words: self.words.to_device(device),
            ..self
        })
    }

    /// The blocks, copied back to the host, `[layout.byte_len()]` bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let data = self.words.to_data();
        data.as_bytes()[..self.layout.byte_len()].to_vec()
    }

    /// The values as a dense tensor `[matrices * rows, cols]` of `dtype` (F32, F16 or BF16 where the device has it).
    pub fn dequantize(&self, dtype: FloatDType) -> Tensor<2> {
        let values = Tensor::from_dispatch(<Dispatch as GgmlOps>::ggml_dequantize(
            self.primitive(),
            dtype,
        ));
        match &self.scales {
            None => values,
            Some(scales) => scales.apply_to_rows(values, &self.layout),
        }
    }

    /// `y = x . W^T`: `[.., cols] -> [.., rows]`, the product of a linear layer whose weight this is.
    ///
    /// # Panics
    /// If the last dimension of `x` is not `cols`, or the tensor is a stack.
    pub fn linear<const D: usize>(&self, x: Tensor<D>, arithmetic: Arithmetic) -> Tensor<D> {
        self.check_input(&x);
        let y = Tensor::from_dispatch(<Dispatch as GgmlOps>::ggml_linear(
            x.into_dispatch(),
            self.primitive(),
            arithmetic,
        ));
        self.scale(y)
    }

    /// Two products over the same input, for example the gate and up projections of a gated MLP.
    /// The activations are read (and quantized) once where the device can.
    ///
    /// # Panics
    /// As [`linear`](Self::linear).
    pub fn linear_pair<const D: usize>(
        weights: [&Self; 2],
        x: Tensor<D>,
        arithmetic: Arithmetic,
    ) -> [Tensor<D>; 2] {
        weights.iter().for_each(|w| w.check_input(&x));
        let (a, b) = <Dispatch as GgmlOps>::ggml_linear_pair(
            x.into_dispatch(),
            weights[0].primitive(),
            weights[1].primitive(),
            arithmetic,
        );
        [
            weights[0].scale(Tensor::from_dispatch(a)),
            weights[1].scale(Tensor::from_dispatch(b)),
        ]
    }

    /// Three products over the same input: the query, key and value projections of an attention layer.
    ///
    /// # Panics
    /// As [`linear`](Self::linear).
    pub fn linear_triple<const D: usize>(
        weights: [&Self; 3],
        x: Tensor<D>,
        arithmetic: Arithmetic,
    ) -> [Tensor<D>; 3] {
        weights.iter().for_each(|w| w.check_input(&x));
        let (a, b, c) = <Dispatch as GgmlOps>::ggml_linear_triple(
            x.into_dispatch(),
            weights[0].primitive(),
            weights[1].primitive(),
            weights[2].primitive(),
            arithmetic,
        );
        [
            weights[0].scale(Tensor::from_dispatch(a)),
            weights[1].scale(Tensor::from_dispatch(b)),
            weights[2].scale(Tensor::from_dispatch(c)),
        ]
    }

    /// A mixture of experts over a stack: for token `t` and chosen slot `s` the product of a row of `x` with matrix
    /// `ids[t, s]`. `x` is `[tokens, 1, cols]`, one row for all chosen experts of a token, or `[tokens, chosen, cols]`;
    /// `ids` is `[tokens, chosen]`; the result is `[tokens, chosen, rows]`.
    ///
    /// Ids out of range panic on CPU devices; on CubeCL devices, which cannot report an error, their rows are NaN.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn linear_experts(
        &self,
        x: Tensor<3>,
        ids: Tensor<2, Int>,
        arithmetic: Arithmetic,
    ) -> Tensor<3> {
        self.check_experts(&x, &ids);
        let y = Tensor::from_dispatch(<Dispatch as GgmlOps>::ggml_linear_experts(
            x.into_dispatch(),
            self.primitive(),
            ids.clone().into_dispatch(),
            arithmetic,
        ));
        self.scale_experts(y, ids)
    }

    /// Two stacks over the same input and choice, for example the gate and up projections of the experts.
    ///
    /// # Panics
    /// As [`linear_experts`](Self::linear_experts), or if the stacks differ in their number of matrices.
    pub fn linear_experts_pair(
        stacks: [&Self; 2],
        x: Tensor<3>,
        ids: Tensor<2, Int>,
        arithmetic: Arithmetic,
    ) -> [Tensor<3>; 2] {
        stacks.iter().for_each(|w| w.check_experts(&x, &ids));
        let [first, second] = stacks.map(|w| w.layout.matrices());
        assert_eq!(
            first, second,
            "linear_experts_pair: stacks of different experts"
        );
        let (a, b) = <Dispatch as GgmlOps>::ggml_linear_experts_pair(
            x.into_dispatch(),
            stacks[0].primitive(),
            stacks[1].primitive(),
            ids.clone().into_dispatch(),
            arithmetic,
        );
        [
            stacks[0].scale_experts(Tensor::from_dispatch(a), ids.clone()),
            stacks[1].scale_experts(Tensor::from_dispatch(b), ids),
        ]
    }

    /// Rows by index without widening the table: ids `[n]` (each below `matrices * rows`) to f32 `[n, cols]`.
    ///
    /// Ids out of range panic on CPU devices, as burn's embedding does; on CubeCL devices, which
    /// cannot report an error, their rows are NaN.
    pub fn gather_rows(&self, ids: Tensor<1, Int>) -> Tensor<2> {
        let rows = Tensor::from_dispatch(<Dispatch as GgmlOps>::ggml_gather_rows(
            self.primitive(),
            ids.clone().into_dispatch(),
        ));
        match &self.scales {
            None => rows,
            Some(scales) => scales.apply_to_gathered(rows, ids, &self.layout),
        }
    }

    /// A product of the only matrix.
    fn scale<const D: usize>(&self, y: Tensor<D>) -> Tensor<D> {
        match &self.scales {
            None => y,
            Some(scales) => y.mul_scalar(scales.factors()[0]),
        }
    }

    fn scale_experts(&self, y: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        match &self.scales {
            None => y,
            Some(scales) => scales.apply_to_chosen(y, ids),
        }
    }

    fn primitive(&self) -> GgmlPrimitive<Dispatch> {
        GgmlPrimitive {
            words: self.words.clone().into_dispatch(),
            layout: self.layout,
        }
    }

    fn check_experts(&self, x: &Tensor<3>, ids: &Tensor<2, Int>) {
        let ([tokens, slots, width], [id_tokens, chosen]) = (x.dims(), ids.dims());
        assert!(
            width == self.layout.cols() && tokens == id_tokens && (slots == 1 || slots == chosen),
            "linear_experts: inputs {:?} with ids {:?} do not fit a stack of {} matrices of {} rows of {} values",
            x.dims(),
            ids.dims(),
            self.layout.matrices(),
            self.layout.rows(),
            self.layout.cols(),
        );
    }

    fn check_input<const D: usize>(&self, x: &Tensor<D>) {
        let cols = self.layout.cols();
        assert_eq!(
            x.dims()[D - 1],
            cols,
            "linear: the input is {:?} but the {} weight takes {cols} values a row",
            x.dims(),
            self.layout.ggml_type(),
        );
        assert_eq!(
            self.layout.matrices(),
            1,
            "linear: the weight is a stack of {} matrices",
            self.layout.matrices(),
        );
    }
}

/// The layout of a GGUF tensor of shape `ne` (contiguous axis first).
pub(crate) fn layout_of(ggml_type: GgmlType, ne: &[u64]) -> Result<GgmlLayout, TensorError> {
    let dim =
        |i: usize| usize::try_from(ne[i]).map_err(|_| TensorError::Rank { shape: ne.to_vec() });
    match ne.len() {
        0 => GgmlLayout::matrix(ggml_type, 1, 1),
        1 => GgmlLayout::matrix(ggml_type, 1, dim(0)?),
        2 => GgmlLayout::matrix(ggml_type, dim(1)?, dim(0)?),
        3 => GgmlLayout::stack(ggml_type, dim(2)?, dim(1)?, dim(0)?),
        // A convolution kernel is the matrix it is over flattened patches.
        4 => {
            let cols = dim(0)?.checked_mul(dim(1)?);
            let cols = cols.and_then(|n| n.checked_mul(dim(2).ok()?));
            let cols = cols.ok_or_else(|| TensorError::Rank { shape: ne.to_vec() })?;
            GgmlLayout::matrix(ggml_type, dim(3)?, cols)
        }
        _ => Err(TensorError::Rank { shape: ne.to_vec() }),
    }
}

/// Whether `backend` has kernels for `ggml_type`.
pub(crate) fn ensure_computable(ggml_type: GgmlType, backend: Backend) -> Result<(), TensorError> {
    if ggml_type.is_removed() {
        return Err(TensorError::RemovedType { ggml_type });
    }
    let types = computable_types(backend);
    if types.contains(&ggml_type) {
        return Ok(());
    }
    let supported: Vec<_> = types.iter().map(|ty| ty.name()).collect();
    Err(TensorError::UnsupportedType {
        ggml_type,
        device: backend.name(),
        supported: supported.join(", "),
    })
}

/// The types `backend` has kernels for.
pub fn computable_types(backend: Backend) -> &'static [GgmlType] {
    match backend {
        Backend::Flex | Backend::NdArray => IMPLEMENTED,
        #[cfg(feature = "cube")]
        Backend::Cube => &burn_gguf_kernels::cube::DEVICE_TYPES,
        #[cfg(not(feature = "cube"))]
        Backend::Cube => &[],
    }
}
