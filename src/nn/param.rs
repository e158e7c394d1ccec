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
    // `[rows, cols]` a file's weight must have.
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
        let layout = *tensor.layout();
        let device = tensor.device();
        Self {
            words: Param::initialized(ParamId::new(), tensor.words().clone()),
            layout: Param::initialized(
                ParamId::new(),
                layout_tensor(&layout_values(&layout), &device),
            ),
            loaded: Some(layout),
            shape: [layout.rows(), layout.cols()],
        }
    }

    /// The weight.
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

    /// `[rows, cols]` of the weight.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn rebuild(self, words: Param<Tensor<1, Int>>, layout: Param<Tensor<1, Int>>) -> Self {
        // A mapper may have put another weight in; the layout parameter tells which. Where the two no longer
        // agree (a loader refused one of them and said so), the old weight's description stays.
        let values: Vec<i64> = layout.val().to_data().iter::<i64>().collect();
        let found = parse_layout(&values).filter(|l| l.word_len() == words.lazy_shape()[0]);
        Self {
            words,
            layout,
            loaded: found.or(self.loaded),
            shape: found.map_or(self.shape, |l| [l.rows(), l.cols()]),
        }
    }
}

/// The layout as the four numbers of the `layout` parameter.
pub(crate) fn layout_values(layout: &GgmlLayout) -> [i64; 4] {
    [
        i64::from(layout.ggml_type().id()),
        layout.matrices() as i64,
        layout.rows() as i64,
        layout.cols() as i64,
    ]
}

/// Reads the numbers of a `layout` parameter; `None` if they describe no tensor.
pub(crate) fn parse_layout(values: &[i64]) -> Option<GgmlLayout> {
    let [id, matrices, rows, cols] = values.try_into().ok()?;
    let ggml_type = GgmlType::from_id(u32::try_from(id).ok()?)?;
    GgmlLayout::stack(
        ggml_type,
        usize::try_from(matrices).ok()?,
        usize::try_from(rows).ok()?,
        usize::try_from(cols).ok()?,
    )
    .ok()
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
                "GgmlParam {{type: {}, shape: [{}, {}]}}",
                layout.ggml_type(),
                layout.rows(),
                layout.cols()
            ),
            None => format!("GgmlParam {{not loaded, shape: {:?}}}", self.shape),
        };
        content.add_formatted(&text).optional()
    }
}

impl ModuleDisplay for GgmlParam {}
