//! A block-quantized weight as a module parameter.

use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
    Param, ParamId,
};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::cpu::Arithmetic;

use super::description::Description;
use super::functional;
use super::instruction::Instruction;
use super::lora::{LORA_FIELD, LoraAdapter};
use crate::layout::GgmlLayout;
use crate::tensor::GgmlTensor;

/// The container type a [`GgmlParam`] names to visitors and mappers.
pub(crate) const GGML_PARAM: &str = "Struct:GgmlParam";
/// Path segment of the blocks, `[words]` of U32.
pub(crate) const WORDS_FIELD: &str = "words";
/// Path segment of the layout, `[4..]` of I32: type id, matrices, rows, cols, then the bits of the scale factors that
/// stand outside the blocks, if there are any.
pub(crate) const LAYOUT_FIELD: &str = "layout";

/// A frozen block-quantized weight inside a module.
///
/// To burn it is two integer parameters, `words` (the blocks) and `layout` (type id and shape), so records,
/// burnpack and every other visitor carry the blocks packed. It holds no float parameter: optimizers pass over it,
/// until [`thaw`](super::thaw) turns it into one float parameter `[rows, cols]` under the weight's own path.
#[derive(Clone, Debug)]
pub struct GgmlParam {
    words: Param<Tensor<1, Int>>,
    layout: Param<Tensor<1, Int>>,
    // What `layout` holds, kept on the host; `None` until a weight is loaded.
    loaded: Option<Description>,
    // Stacked matrices, 1 for a plain weight.
    matrices: usize,
    // `[rows, cols]` of one; the blocks' rows may be longer, see `from_padded`.
    shape: [usize; 2],
    // The values in place of the blocks, once thawed.
    dense: Option<Param<Tensor<2>>>,
    // What is added to products with it.
    adapters: Vec<LoraAdapter>,
}

impl GgmlParam {
    /// A parameter without a weight yet, to be filled with a `[rows, cols]` matrix of any block type by
    /// [`GgufStore`](crate::store::GgufStore).
    pub fn uninitialized(rows: usize, cols: usize, device: &Device) -> Self {
        Self::uninitialized_stack(1, rows, cols, device)
    }

    /// As [`uninitialized`](Self::uninitialized) for a stack `[matrices, rows, cols]`, the weights of experts.
    pub fn uninitialized_stack(matrices: usize, rows: usize, cols: usize, device: &Device) -> Self {
        let empty = TensorData::new(vec![0u32], [1]);
        Self {
            words: Param::initialized(
                ParamId::new(),
                Tensor::from_data(empty, (device, DType::U32)),
            ),
            layout: Param::initialized(
                ParamId::new(),
                layout_tensor(&[-1, matrices as i32, rows as i32, cols as i32], device),
            ),
            loaded: None,
            matrices,
            shape: [rows, cols],
            dense: None,
            adapters: Vec::new(),
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
        let description = Description::of(&tensor, cols);
        Self {
            words: Param::initialized(ParamId::new(), tensor.words().clone()),
            layout: Param::initialized(
                ParamId::new(),
                layout_tensor(&description.values(), &tensor.device()),
            ),
            matrices: layout.matrices(),
            shape: [layout.rows(), cols],
            loaded: Some(description),
            dense: None,
            adapters: Vec::new(),
        }
    }

    /// The weight. Its rows may be longer than [`shape`](Self::shape) says, by zeros that fill up the last block.
    ///
    /// # Panics
    /// If none has been loaded, or the weight was thawed.
    pub fn tensor(&self) -> GgmlTensor {
        assert!(
            self.dense.is_none(),
            "this {:?} weight was thawed into floats; it has no blocks",
            self.shape
        );
        match &self.loaded {
            Some(d) => GgmlTensor::from_words(self.words.val(), d.layout, d.scales.clone()),
            None => panic!(
                "this {:?} GGML weight was never loaded; load the module from a GGUF file first",
                self.shape
            ),
        }
    }

    /// The values `[rows, cols]` of a thawed weight, `None` while it is packed.
    pub fn dense(&self) -> Option<Tensor<2>> {
        self.dense.as_ref().map(Param::val)
    }

    /// The low-rank adapters on products with this weight; [`attach_lora`](super::attach_lora) adds them.
    pub fn adapters(&self) -> &[LoraAdapter] {
        &self.adapters
    }

    /// `output`, the product with `input` `[.., cols]`, and what the adapters add to it.
    pub(super) fn adapt<const D: usize>(&self, output: Tensor<D>, input: &Tensor<D>) -> Tensor<D> {
        let add = |sum: Tensor<D>, adapter: &LoraAdapter| sum + adapter.forward(input.clone());
        self.adapters.iter().fold(output, add)
    }

    /// Where the weight is.
    pub fn device(&self) -> Device {
        self.words.lazy_device()
    }

    /// Type and shape, `None` until a weight is loaded.
    pub fn layout(&self) -> Option<&GgmlLayout> {
        self.loaded.as_ref().map(|d| &d.layout)
    }

    /// Stacked matrices, 1 for a plain weight.
    pub fn matrices(&self) -> usize {
        self.matrices
    }

    /// What [`InputObserver`](super::InputObserver)s know the weight by. Loading keeps it.
    pub fn id(&self) -> ParamId {
        self.dense.as_ref().map_or(self.words.id, |dense| dense.id)
    }

    /// `[rows, cols]` of the weight, or of one matrix of a stack, without the zeros that fill up blocks.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// An input `[.., cols]` with zeros where the weight's rows were filled up to whole blocks.
    pub(super) fn pad<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let ([_, width], Some(layout)) = (self.shape, self.layout()) else {
            return input;
        };
        if self.dense.is_some() {
            return input;
        }
        let mut dims = input.dims();
        if layout.cols() == width || dims[D - 1] != width {
            return input;
        }
        dims[D - 1] = layout.cols() - width;
        let zeros = Tensor::zeros(dims, (&input.device(), input.dtype()));
        Tensor::cat(vec![input, zeros], D - 1)
    }

    /// `input . W^T`, `[.., cols] -> [.., rows]`, without the adapters.
    pub(super) fn linear<const D: usize>(
        &self,
        input: Tensor<D>,
        arithmetic: Arithmetic,
    ) -> Tensor<D> {
        match self.dense() {
            Some(weight) => functional::linear(input, weight),
            None => self.tensor().linear(self.pad(input), arithmetic),
        }
    }

    fn rebuild(self, words: Param<Tensor<1, Int>>, layout: Param<Tensor<1, Int>>) -> Self {
        // A mapper may have put another weight in; the layout parameter tells which. Where the two no longer
        // agree (a loader refused one of them and said so), the old weight's description stays.
        let values: Vec<i64> = layout.val().to_data().iter::<i64>().collect();
        let (instruction, values) = Instruction::take(values, self.shape[1]);
        match instruction {
            Some(Instruction::Thaw) => return self.thawed(),
            Some(Instruction::Adapt(weights)) => {
                let device = self.words.lazy_device();
                let adapter = LoraAdapter::new(weights, self.shape, &device);
                let mut adapted = self;
                adapted.adapters.push(adapter);
                return adapted;
            }
            None => {}
        }
        let found =
            Description::parse(&values).filter(|d| d.layout.word_len() == words.lazy_shape()[0]);
        Self {
            words,
            layout,
            matrices: found
                .as_ref()
                .map_or(self.matrices, |d| d.layout.matrices()),
            shape: found
                .as_ref()
                .map_or(self.shape, |d| [d.layout.rows(), d.cols]),
            loaded: found.or(self.loaded),
            dense: None,
            adapters: self.adapters,
        }
    }

    /// The weight as floats; a stack, and what was never loaded, stays as it is.
    fn thawed(self) -> Self {
        if self.loaded.is_none() || self.matrices != 1 || self.dense.is_some() {
            return self;
        }
        let [rows, cols] = self.shape;
        let values: Tensor<2> = self.tensor().dequantize(FloatDType::F32);
        let device = values.device();
        let empty = Tensor::from_data(TensorData::new(vec![0u32], [1]), (&device, DType::U32));
        Self {
            words: Param::initialized(self.words.id, empty),
            dense: Some(Param::from_tensor(values.slice([0..rows, 0..cols]))),
            ..self
        }
    }
}

fn layout_tensor(values: &[i32], device: &Device) -> Tensor<1, Int> {
    let data = TensorData::new(values.to_vec(), [values.len()]);
    Tensor::from_data(data, (device, DType::I32))
}

fn map_adapters<M: ModuleMapper>(adapters: Vec<LoraAdapter>, mapper: &mut M) -> Vec<LoraAdapter> {
    if adapters.is_empty() {
        return adapters;
    }
    mapper.enter_module(LORA_FIELD, GGML_PARAM);
    let adapters = adapters.map(mapper);
    mapper.exit_module(LORA_FIELD, GGML_PARAM);
    adapters
}

impl Module for GgmlParam {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.words.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self {
            words: self.words.fork(device),
            layout: self.layout.fork(device),
            dense: self.dense.map(|dense| dense.fork(device)),
            adapters: self.adapters.fork(device),
            ..self
        }
    }

    fn to_device(self, device: &Device) -> Self {
        Self {
            words: self.words.to_device(device),
            layout: self.layout.to_device(device),
            dense: self.dense.map(|dense| dense.to_device(device)),
            adapters: self.adapters.to_device(device),
            ..self
        }
    }

    fn num_params(&self) -> usize {
        let adapters: usize = self.adapters.iter().map(Module::num_params).sum();
        self.matrices * self.shape[0] * self.shape[1] + adapters
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        if let Some(dense) = &self.dense {
            dense.visit(visitor);
        } else {
            visitor.enter_module(LAYOUT_FIELD, GGML_PARAM);
            self.layout.visit(visitor);
            visitor.exit_module(LAYOUT_FIELD, GGML_PARAM);
            visitor.enter_module(WORDS_FIELD, GGML_PARAM);
            self.words.visit(visitor);
            visitor.exit_module(WORDS_FIELD, GGML_PARAM);
        }
        if !self.adapters.is_empty() {
            visitor.enter_module(LORA_FIELD, GGML_PARAM);
            self.adapters.visit(visitor);
            visitor.exit_module(LORA_FIELD, GGML_PARAM);
        }
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        if let Some(dense) = self.dense {
            return Self {
                dense: Some(Module::map(dense, mapper)),
                adapters: map_adapters(self.adapters, mapper),
                ..self
            };
        }
        // The layout first: a loader learns from it which shape is wanted.
        mapper.enter_module(LAYOUT_FIELD, GGML_PARAM);
        let layout = Module::map(self.layout.clone(), mapper);
        mapper.exit_module(LAYOUT_FIELD, GGML_PARAM);
        mapper.enter_module(WORDS_FIELD, GGML_PARAM);
        let words = Module::map(self.words.clone(), mapper);
        mapper.exit_module(WORDS_FIELD, GGML_PARAM);
        let mapped = Self {
            adapters: map_adapters(self.adapters.clone(), mapper),
            ..self
        };
        mapped.rebuild(words, layout)
    }

    fn valid(&self) -> Self {
        Self {
            words: self.words.valid(),
            layout: self.layout.valid(),
            dense: self.dense.as_ref().map(Module::valid),
            adapters: self.adapters.valid(),
            ..self.clone()
        }
    }

    fn train(self) -> Self {
        Self {
            words: self.words.train(),
            layout: self.layout.train(),
            dense: self.dense.map(Module::train),
            adapters: self.adapters.train(),
            ..self
        }
    }

    fn materialize(self) -> Self {
        self
    }
}

impl ModuleDisplayDefault for GgmlParam {
    fn content(&self, content: Content) -> Option<Content> {
        let text = match self.layout() {
            _ if self.dense.is_some() => format!("GgmlParam {{thawed, shape: {:?}}}", self.shape),
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
