//! Operations on block-quantized weights: shapes, inputs and the parts that all operations share.

mod decode;
mod experts;
mod linear;
mod several;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::{GgmlLayout, GgmlTensor, GgmlType};

use crate::blocks::{Pattern, blocks};
use crate::oracle;
use crate::random::Random;

/// Input rows: none, one, the limits of the vector kernels, the sides of a power of two, many.
const INPUTS: [usize; 11] = [0, 1, 2, 6, 7, 8, 9, 63, 64, 65, 512];
/// Rows of a weight: one, some that are no multiple of 4, 8 or 16, and one that is.
const ROWS: [usize; 4] = [1, 13, 37, 64];
/// The setting that every size and pattern meets: rows that are no multiple of any tile, 512 + 256 columns.
const USUAL: [usize; 2] = [37, 768];
/// The weight of timed cases, `[rows, cols]`.
const TIMED: [usize; 2] = [2048, 2048];

/// Row widths of a type: one block, four, and 512 + 256 values; types of single numbers have an odd one in between.
fn widths(ty: GgmlType) -> [usize; 3] {
    match ty.block_len() {
        1 => [1, 45, 768],
        len => [len, 4 * len, 768],
    }
}

/// What the activations look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Even noise, rows of different sizes.
    Usual,
    /// All near 4000: the sum over a block of 32 is twice what `f16` can hold.
    LargeSums,
    /// Usual, every second row zero.
    ZeroRows,
}

impl Input {
    const ALL: [Self; 3] = [Self::Usual, Self::LargeSums, Self::ZeroRows];

    fn name(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::LargeSums => ", sums over 65504",
            Self::ZeroRows => ", zero rows",
        }
    }

    /// `n` rows of `cols` values.
    fn values(self, n: usize, cols: usize) -> Vec<f32> {
        let mut random = Random::new(100 + n as u64);
        let mut values = random.floats(n * cols);
        for (row, values) in values.chunks_exact_mut(cols).enumerate() {
            for v in values {
                *v = match self {
                    Self::LargeSums => 4000.0 + 1000.0 * *v,
                    Self::ZeroRows if row % 2 == 0 => 0.0,
                    _ => *v * (1 + row % 4) as f32,
                };
            }
        }
        values
    }
}

fn input<const D: usize>(x: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(x, shape), device)
}

/// A weight in host memory.
struct Weight {
    layout: GgmlLayout,
    pattern: Pattern,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Weight {
    fn new(layout: GgmlLayout, pattern: Pattern, seed: u64) -> Option<Self> {
        let ty = layout.ggml_type();
        let bytes = blocks(ty, layout.total_rows(), layout.cols(), pattern, seed)?;
        Some(Self {
            layout,
            pattern,
            values: oracle::decode(ty, &bytes),
            bytes,
        })
    }

    fn upload(&self, device: &Device) -> GgmlTensor {
        GgmlTensor::from_bytes(self.layout, self.bytes.clone().into(), device)
            .unwrap_or_else(|error| panic!("upload: {error}"))
    }

    /// Shape and pattern.
    fn name(&self) -> String {
        let (rows, cols) = (self.layout.rows(), self.layout.cols());
        match self.layout.matrices() {
            1 => format!("{rows} x {cols} {}", self.pattern),
            n => format!("{n} x {rows} x {cols} {}", self.pattern),
        }
    }
}

/// The test weights of a type, made when first asked for and kept for all operations and devices.
pub(crate) struct Weights {
    ty: GgmlType,
    /// Runs of the timed cases; 0 leaves those out.
    runs: usize,
    made: RefCell<HashMap<[usize; 5], Option<Rc<Weight>>>>,
    linear: OnceCell<Vec<linear::Case>>,
    timed: OnceCell<linear::Case>,
}

impl Weights {
    pub fn new(ty: GgmlType, runs: usize) -> Self {
        Self {
            ty,
            runs,
            made: RefCell::default(),
            linear: OnceCell::new(),
            timed: OnceCell::new(),
        }
    }

    /// A weight `[matrices, rows, cols]`; `None` where the pattern needs a quantizer that the type lacks.
    fn stack(
        &self,
        [matrices, rows, cols]: [usize; 3],
        pattern: Pattern,
        seed: u64,
    ) -> Option<Rc<Weight>> {
        let key = [matrices, rows, cols, pattern as usize, seed as usize];
        let mut made = self.made.borrow_mut();
        let make = || {
            let layout = GgmlLayout::stack(self.ty, matrices, rows, cols).expect("whole blocks");
            Weight::new(layout, pattern, seed).map(Rc::new)
        };
        made.entry(key).or_insert_with(make).clone()
    }

    /// A weight of random blocks `[rows, cols]`.
    fn random(&self, [rows, cols]: [usize; 2], seed: u64) -> Rc<Weight> {
        self.stack([1, rows, cols], Pattern::Random, seed)
            .expect("random blocks need no quantizer")
    }

    /// The usual weight of a pattern. Where there is none, `None`.
    fn pattern(&self, pattern: Pattern) -> Option<Rc<Weight>> {
        self.stack([1, USUAL[0], USUAL[1]], pattern, 1)
    }
}

const NOT_WRITABLE: &str = "the type has no quantizer";
