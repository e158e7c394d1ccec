//! A block-quantized weight as a module parameter.

use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
    Param, ParamId,
};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_gguf_kernels::GgmlType;

use crate::layout::GgmlLayout;
use crate::tensor::GgmlTensor;

/// The container type a [`GgmlParam`] names to visitors and mappers.
pub(crate) const GGML_PARAM: &str = "Struct:GgmlParam";
/// Path segment of the blocks, `[words]` of U32.
pub(crate) const WORDS_FIELD: &str = "words";
/// Path segment of the layout, `[4]` of I32: type id, matrices, rows, cols.
pub(crate) const LAYOUT_FIELD: &str = "layout";

/// A frozen block-quantized weight inside a module.
///
/// To burn it is two integer parameters, `words` (the blocks) and `layout` (type id and shape), so records,
/// burnpack and every other visitor carry the blocks packed. It holds no float parameter: optimizers pass over it.
#[derive(Clone, Debug)]
pub struct GgmlParam {
    words: Param<Tensor<1, Int>>,
    layout: Param<Tensor<1, Int>>,
    // What `layout` holds, kept on the host; `None` until a weight is loaded.
    loaded: Option<GgmlLayout>,
    // `[rows, cols]` of the weight; the blocks' rows may be longer, see `from_padded`.
    shape: [usize; 2],
}

impl GgmlParam {
    /// A parameter without a weight yet, to be filled with a `[rows, cols]` matrix of any block type by
    /// [`GgufStore`](crate::store::GgufStore).
    pub fn uninitialized(rows: usize, cols: usize, device: &Device) -> Self {
        let empty = TensorData::new(vec![0u32], [1]);
        Self {
            words: Param::initialized(
                ParamId::new(),
                Tensor::from_data(empty, (device, DType::U32)),
            ),
            layout: Param::initialized(
                ParamId::new(),
                layout_tensor(&[-1, 1, rows as i64, cols as i64], device),
            ),
            loaded: None,
            shape: [rows, cols],
        }
    }

    /// A parameter of the given block type with all bytes zero, the target for loading a record of that type.
    ///
    /// # Errors
    /// If `cols` does not fill whole blocks.
    pub fn zeros(
        ggml_type: GgmlType,
        rows: usize,
        cols: usize,
        device: &Device,
    ) -> Result<Self, crate::TensorError> {
        let layout = GgmlLayout::matrix(ggml_type, rows, cols)?;
        let blocks = bytes::Bytes::from(vec![0u8; layout.word_len() * 4]);
        Ok(Self::from_tensor(GgmlTensor::from_bytes(
            layout, blocks, device,
        )?))
    }

    /// Wraps a loaded tensor.
    pub fn from_tensor(tensor: GgmlTensor) -> Self {
        let cols = tensor.layout().cols();
        Self::from_padded(tensor, cols)
    }

    /// Wraps a loaded tensor whose rows were filled up with zeros to whole blocks; the weight itself has `cols`
    /// values a row.
    ///
    /// # Panics
    /// If `cols` filled up to whole blocks is not the tensor's row length.
    pub fn from_padded(tensor: GgmlTensor, cols: usize) -> Self {
        let layout = *tensor.layout();
        assert_eq!(
            cols.next_multiple_of(layout.ggml_type().block_len()),
            layout.cols(),
            "a row of {cols} values does not fill up to {layout:?}"
        );
        let device = tensor.device();
        Self {
            words: Param::initialized(ParamId::new(), tensor.words().clone()),
            layout: Param::initialized(
                ParamId::new(),
                layout_tensor(&layout_values(&layout, cols), &device),
            ),
            loaded: Some(layout),
            shape: [layout.rows(), cols],
        }
    }

    /// The weight. Its rows may be longer than [`shape`](Self::shape) says, by zeros that fill up the last block.
    ///
    /// # Panics
    /// If none has been loaded.
    pub fn tensor(&self) -> GgmlTensor {
        match self.loaded {
            Some(layout) => GgmlTensor::from_words(self.words.val(), layout),
            None => panic!(
                "this {:?} GGML weight was never loaded; load the module from a GGUF file first",
                self.shape
            ),
        }
    }

    /// Type and shape, `None` until a weight is loaded.
    pub fn layout(&self) -> Option<&GgmlLayout> {
        self.loaded.as_ref()
    }

    /// `[rows, cols]` of the weight, without the zeros that fill up blocks.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// An input `[.., cols]` with zeros where the weight's rows were filled up to whole blocks.
    pub(super) fn pad<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let ([_, width], Some(layout)) = (self.shape, self.loaded) else {
            return input;
        };
        let mut dims = input.dims();
        if layout.cols() == width || dims[D - 1] != width {
            return input;
        }
        dims[D - 1] = layout.cols() - width;
        let zeros = Tensor::zeros(dims, (&input.device(), input.dtype()));
        Tensor::cat(vec![input, zeros], D - 1)
    }

    fn rebuild(self, words: Param<Tensor<1, Int>>, layout: Param<Tensor<1, Int>>) -> Self {
        // A mapper may have put another weight in; the layout parameter tells which. Where the two no longer
        // agree (a loader refused one of them and said so), the old weight's description stays.
        let values: Vec<i64> = layout.val().to_data().iter::<i64>().collect();
        let found = parse_layout(&values).filter(|(l, _)| l.word_len() == words.lazy_shape()[0]);
        Self {
            words,
            layout,
            loaded: found.map(|(l, _)| l).or(self.loaded),
            shape: found.map_or(self.shape, |(l, cols)| [l.rows(), cols]),
        }
    }
}

/// The four numbers of the `layout` parameter: type id, matrices, rows, and values in a row, of which the blocks may
/// hold more, zeros that fill up the last one.
pub(crate) fn layout_values(layout: &GgmlLayout, cols: usize) -> [i64; 4] {
    [
        i64::from(layout.ggml_type().id()),
        layout.matrices() as i64,
        layout.rows() as i64,
        cols as i64,
    ]
}

/// Reads the numbers of a `layout` parameter: the layout of the blocks, and the values in a row; `None` if they describe
/// no tensor.
pub(crate) fn parse_layout(values: &[i64]) -> Option<(GgmlLayout, usize)> {
    let [id, matrices, rows, cols] = values.try_into().ok()?;
    let ggml_type = GgmlType::from_id(u32::try_from(id).ok()?)?;
    let cols = usize::try_from(cols).ok()?;
    let layout = GgmlLayout::stack(
        ggml_type,
        usize::try_from(matrices).ok()?,
        usize::try_from(rows).ok()?,
        cols.checked_next_multiple_of(ggml_type.block_len())?,
    )
    .ok()?;
    Some((layout, cols))
}

fn layout_tensor(values: &[i64; 4], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values
        .iter()
        .map(|&v| i32::try_from(v).unwrap_or(-1))
        .collect();
    Tensor::from_data(TensorData::new(values, [4]), (device, DType::I32))
}

impl Module for GgmlParam {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.words.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self {
            words: self.words.fork(device),
            layout: self.layout.fork(device),
            ..self
        }
    }

    fn to_device(self, device: &Device) -> Self {
        Self {
            words: self.words.to_device(device),
            layout: self.layout.to_device(device),
            ..self
        }
    }

    fn num_params(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        visitor.enter_module(LAYOUT_FIELD, GGML_PARAM);
        self.layout.visit(visitor);
        visitor.exit_module(LAYOUT_FIELD, GGML_PARAM);
        visitor.enter_module(WORDS_FIELD, GGML_PARAM);
        self.words.visit(visitor);
        visitor.exit_module(WORDS_FIELD, GGML_PARAM);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        // The layout first: a loader learns from it which shape is wanted.
        mapper.enter_module(LAYOUT_FIELD, GGML_PARAM);
        let layout = Module::map(self.layout.clone(), mapper);
        mapper.exit_module(LAYOUT_FIELD, GGML_PARAM);
        mapper.enter_module(WORDS_FIELD, GGML_PARAM);
        let words = Module::map(self.words.clone(), mapper);
        mapper.exit_module(WORDS_FIELD, GGML_PARAM);
        self.rebuild(words, layout)
    }

    fn valid(&self) -> Self {
        Self {
            words: self.words.valid(),
            layout: self.layout.valid(),
            ..self.clone()
        }
    }

    fn train(self) -> Self {
        Self {
            words: self.words.train(),
            layout: self.layout.train(),
            ..self
        }
    }

    fn materialize(self) -> Self {
        self
    }
}

impl ModuleDisplayDefault for GgmlParam {
    fn content(&self, content: Content) -> Option<Content> {
        let text = match self.loaded {
            Some(layout) => format!(
                "GgmlParam {{type: {}, shape: {:?}}}",
                layout.ggml_type(),
                self.shape
            ),
            None => format!("GgmlParam {{not loaded, shape: {:?}}}", self.shape),
        };
        content.add_formatted(&text).optional()
    }
}

impl ModuleDisplay for GgmlParam {}
