//! `dequantize` and `gather_rows`.

use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use burn_gguf::device::Backend;

use super::{INPUTS, NOT_WRITABLE, ROWS, TIMED, USUAL, Weight, Weights, widths};
use crate::blocks::Pattern;
use crate::cell::{Cell, Timing};
use crate::compare::Expected;
use crate::oracle;

impl Weights {
    pub fn dequantize(&self, dtype: FloatDType, cell: &mut Cell<'_>) {
        // Other devices hold what they may not compute with.
        if dtype != FloatDType::F32 && Backend::of(cell.device) == Ok(Backend::NdArray) {
            return cell.skip("", &format!("NdArray has no {dtype:?}"));
        }
        let widths = widths(self.ty);
        for rows in ROWS {
            for cols in widths {
                decode(&self.random([rows, cols], 1), dtype, None, cell);
            }
        }
        let stack = self.stack([3, 5, widths[0]], Pattern::Random, 1);
        decode(&stack.expect("random blocks"), dtype, None, cell);
        for pattern in Pattern::ALL {
            match self.pattern(pattern) {
                Some(weight) => decode(&weight, dtype, None, cell),
                None => cell.skip(&pattern.to_string(), NOT_WRITABLE),
            }
        }
        if self.runs > 0 {
            decode(&self.random(TIMED, 1), dtype, Some(self.runs), cell);
        }
    }

    pub fn gather_rows(&self, cell: &mut Cell<'_>) {
        let widths = widths(self.ty);
        let mut weights: Vec<_> = widths.map(|cols| self.random([USUAL[0], cols], 2)).into();
        weights.extend(self.stack([3, 5, widths[0]], Pattern::Random, 2));
        let counts: &[usize] = match cell.full {
            true => &INPUTS,
            false => &[0, 1, 9, 65],
        };
        for weight in weights {
            for &n in counts {
                for dtype in [DType::I32, DType::I64] {
                    gather(&weight, n, dtype, cell);
                }
            }
        }
        for pattern in [
            Pattern::Quantized,
            Pattern::LargestScale,
            Pattern::SmallestScale,
        ] {
            match self.pattern(pattern) {
                Some(weight) => gather(&weight, 9, DType::I32, cell),
                None => cell.skip(&pattern.to_string(), NOT_WRITABLE),
            }
        }
    }
}

/// All values of the weight, in several runs if it is to be timed.
fn decode(weight: &Weight, dtype: FloatDType, runs: Option<usize>, cell: &mut Cell<'_>) {
    let round = |&v: &f32| match dtype {
        FloatDType::F16 => half::f16::from_f32(v).to_f64(),
        FloatDType::BF16 => half::bf16::from_f32(v).to_f64(),
        _ => f64::from(v),
    };
    let want = Expected::new(weight.values.iter().map(round).collect());
    let layout = weight.layout;
    let dims = [layout.total_rows(), layout.cols()];
    let tensor = weight.upload(cell.device);
    let run = || {
        let got = tensor.dequantize(dtype);
        assert_eq!(got.dtype(), DType::from(dtype));
        got
    };
    match runs {
        Some(runs) => {
            let bytes = layout.byte_len();
            let timing = Timing { runs, bytes };
            cell.timed(
                &format!("{} timed", weight.name()),
                timing,
                &want,
                dims,
                run,
            );
        }
        None => cell.case(&weight.name(), &want, dims, run),
    }
}

fn gather(weight: &Weight, n: usize, dtype: DType, cell: &mut Cell<'_>) {
    let shape = format!("{n} {dtype:?} ids of {}", weight.name());
    if !cell.device.supports_dtype(dtype) {
        return cell.skip(&shape, &format!("the device has no {dtype:?}"));
    }
    let (rows, cols) = (weight.layout.total_rows(), weight.layout.cols());
    // The last row first, then with repetitions through all.
    let ids: Vec<i32> = (0..n)
        .map(|i| ((i * 11 + rows - 1) % rows) as i32)
        .collect();
    let row = |&id: &i32| oracle::wide(&weight.values[id as usize * cols..][..cols]);
    let want = Expected::new(ids.iter().flat_map(row).collect());
    let tensor = weight.upload(cell.device);
    let device = cell.device.clone();
    cell.case(&shape, &want, [n, cols], || {
        let data = TensorData::new(ids.clone(), [n]).convert_dtype(dtype);
        tensor.gather_rows(Tensor::<1, Int>::from_data(data, (&device, dtype)))
    });
}
