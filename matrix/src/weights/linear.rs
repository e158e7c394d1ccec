//! `linear`, over the product of all sizes, and its agreement with itself across kernels.

use std::cell::OnceCell;
use std::rc::Rc;

use burn::tensor::{DType, Tensor, TensorData};
use burn_gguf::Arithmetic;

use super::{INPUTS, Input, NOT_WRITABLE, ROWS, TIMED, USUAL, Weight, Weights, input, widths};
use crate::blocks::Pattern;
use crate::cell::{Cell, Timing, values};
use crate::compare::Expected;
use crate::oracle;

/// Input rows at which some kernel hands over to another, and their neighbours.
const SWITCHES: [usize; 14] = [2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 64, 65];

/// A product whose expected result is computed once for all devices and arithmetics.
pub(super) struct Case {
    weight: Rc<Weight>,
    n: usize,
    input: Input,
    /// Whether it is one of those that cover.
    covers: bool,
    want: OnceCell<Expected>,
}

impl Case {
    fn new(weight: Rc<Weight>, n: usize, input: Input, covers: bool) -> Self {
        Self {
            weight,
            n,
            input,
            covers,
            want: OnceCell::new(),
        }
    }

    fn x(&self) -> Vec<f32> {
        self.input.values(self.n, self.weight.layout.cols())
    }

    fn want(&self) -> &Expected {
        let cols = self.weight.layout.cols();
        let make = || oracle::linear(&self.x(), &self.weight.values, cols);
        self.want.get_or_init(make)
    }

    fn shape(&self) -> String {
        format!(
            "n={} by {}{}",
            self.n,
            self.weight.name(),
            self.input.name()
        )
    }
}

impl Weights {
    fn cases(&self) -> &[Case] {
        self.linear.get_or_init(|| {
            let mut cases = Vec::new();
            for rows in ROWS {
                for cols in widths(self.ty) {
                    for n in INPUTS {
                        let covers = [rows, cols] == USUAL || matches!(n, 1 | 9);
                        let weight = self.random([rows, cols], 1);
                        cases.push(Case::new(weight, n, Input::Usual, covers));
                    }
                }
            }
            for pattern in Pattern::ALL {
                let Some(weight) = self.pattern(pattern) else {
                    continue;
                };
                for input in Input::ALL {
                    if (pattern, input) == (Pattern::Random, Input::Usual) {
                        continue;
                    }
                    for n in [1, 2, 9, 65] {
                        let plain = pattern == Pattern::Random || input == Input::Usual;
                        let covers = plain && matches!(n, 1 | 9);
                        cases.push(Case::new(weight.clone(), n, input, covers));
                    }
                }
            }
            cases
        })
    }

    pub fn linear(&self, arithmetic: Arithmetic, cell: &mut Cell<'_>) {
        let device = cell.device.clone();
        let mut last: Option<(*const Weight, _)> = None;
        let full = cell.full;
        for case in self.cases().iter().filter(|case| full || case.covers) {
            let here = Rc::as_ptr(&case.weight);
            let tensor = match last.take() {
                Some((weight, tensor)) if weight == here => tensor,
                _ => case.weight.upload(&device),
            };
            let (n, rows, cols) = (case.n, case.weight.layout.rows(), case.weight.layout.cols());
            let x = case.x();
            cell.case(&case.shape(), case.want(), [n, rows], || {
                tensor.linear(input(x.clone(), [n, cols], &device), arithmetic)
            });
            last = Some((here, tensor));
        }
        if self.pattern(Pattern::Quantized).is_none() {
            cell.skip(&Pattern::Quantized.to_string(), NOT_WRITABLE);
        }
        self.other_layouts(arithmetic, cell);
        if self.runs > 0 {
            let make = || Case::new(self.random(TIMED, 1), 1, Input::Usual, true);
            let case = self.timed.get_or_init(make);
            let timing = Timing {
                runs: self.runs,
                bytes: case.weight.layout.byte_len(),
            };
            let tensor = case.weight.upload(&device);
            let x = input(case.x(), [1, TIMED[1]], &device);
            let shape = format!("{} timed", case.shape());
            cell.timed(&shape, timing, case.want(), [1, TIMED[0]], || {
                tensor.linear(x.clone(), arithmetic)
            });
        }
    }

    /// Any batch shape, and an input that is not contiguous.
    fn other_layouts(&self, arithmetic: Arithmetic, cell: &mut Cell<'_>) {
        let (weight, [rows, cols]) = (self.random(USUAL, 1), USUAL);
        let tensor = weight.upload(cell.device);
        let device = cell.device.clone();
        let x = Input::Usual.values(12, cols);
        let want = oracle::linear(&x, &weight.values, cols);
        cell.case("input [2, 3, 2, 768]", &want, [2, 3, 2, rows], || {
            let x = input(x.clone(), [12, cols], &device);
            tensor.linear(x.reshape([2, 3, 2, cols]), arithmetic)
        });
        let transposed: Vec<f32> = (0..cols * 12).map(|i| x[i % 12 * cols + i / 12]).collect();
        cell.case("transposed input [12, 768]", &want, [12, rows], || {
            let x = input(transposed.clone(), [cols, 12], &device);
            tensor.linear(x.transpose(), arithmetic)
        });
    }

    pub fn linear_f16_input(&self, cell: &mut Cell<'_>) {
        if !cell.device.supports_dtype(DType::F16) {
            return cell.skip("", "the device has no F16");
        }
        let (weight, [rows, cols]) = (self.half_range(), USUAL);
        let tensor = weight.upload(cell.device);
        let device = cell.device.clone();
        for n in [1, 2, 9, 65] {
            let half = Input::Usual.values(n, cols);
            let half: Vec<_> = half.into_iter().map(half::f16::from_f32).collect();
            let x: Vec<f32> = half.iter().map(|v| v.to_f32()).collect();
            let want = oracle::linear(&x, &weight.values, cols);
            let shape = format!("n={n} by {}", weight.name());
            cell.case(&shape, &want, [n, rows], || {
                let data = TensorData::new(half.clone(), [n, cols]);
                let x = Tensor::<2>::from_data(data, (&device, DType::F16));
                let got = tensor.linear(x, Arithmetic::Exact);
                assert_eq!(got.dtype(), DType::F16);
                got
            });
        }
    }

    /// The usual random weight, or for types of large numbers one whose products `f16` can hold.
    fn half_range(&self) -> Rc<Weight> {
        let weight = self.random(USUAL, 1);
        match weight.values.iter().any(|v| v.abs() > 16.0) {
            true => self
                .pattern(Pattern::SmallestScale)
                .expect("made of random blocks"),
            false => weight,
        }
    }

    /// The first rows of a product of many are those of products of one row each: kernels hand over without a step.
    pub fn switch_over(&self, arithmetic: Arithmetic, cell: &mut Cell<'_>) {
        const COMPARED: usize = 9;
        let (weight, [rows, cols]) = (self.random(USUAL, 1), USUAL);
        let tensor = weight.upload(cell.device);
        let device = cell.device.clone();
        let x = Input::Usual.values(SWITCHES[SWITCHES.len() - 1], cols);
        let first = |n: usize| {
            let x = input(x[..n * cols].to_vec(), [n, cols], &device);
            tensor.linear(x, arithmetic)
        };
        let mut alone = Vec::new();
        for row in 0..COMPARED {
            let x = input(x[row * cols..][..cols].to_vec(), [1, cols], &device);
            let y = values(tensor.linear(x, arithmetic)).expect("f32 values");
            alone.push(oracle::wide(&y));
        }
        for n in SWITCHES {
            let compared = n.min(COMPARED);
            let want = Expected::new(alone[..compared].concat());
            let shape = format!("n={n} against n=1 by {}", weight.name());
            cell.case(&shape, &want, [compared, rows], || {
                first(n).narrow(0, 0, compared)
            });
        }
    }
}
