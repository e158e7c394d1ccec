//! Operations on block-quantized weights.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use burn_gguf::device::Backend;
use burn_gguf::{Arithmetic, GgmlLayout, GgmlTensor, GgmlType, TensorError, computable_types};

use crate::blocks::{Random, blocks};
use crate::oracle;
use crate::report::{Outcome, Table, say};

/// Values of a row: whole blocks of every type, and more than one block of the longest.
const COLS: usize = 512;
/// Output rows of the test weights, no multiple of any kernel's tile.
const ROWS: usize = 37;
/// Input rows: vector kernels, their limits, and matrix kernels with a tail.
const INPUTS: [usize; 5] = [1, 2, 8, 9, 33];

pub fn run(table: &mut Table) {
    for &ty in computable_types(Backend::Flex) {
        if blocks(ty, COLS, "quantized", 0).is_none() {
            say(&format!(
                "skipped: {ty}: no golden blocks, neither in tests/fixtures nor in the shared cases"
            ));
            continue;
        }
        for (name, dtype) in [
            ("dequantize f32", FloatDType::F32),
            ("dequantize f16", FloatDType::F16),
            ("dequantize bf16", FloatDType::BF16),
        ] {
            table.row(name, ty.name(), |device| dequantize(ty, dtype, device));
        }
        table.row("gather_rows", ty.name(), |device| gather(ty, device));
        for (name, arithmetic) in [("exact", Arithmetic::Exact), ("fast", Arithmetic::Fast)] {
            let title = |op: &str| format!("{op} {name}");
            table.row(&title("linear"), ty.name(), |device| {
                linear(ty, arithmetic, device)
            });
            table.row(&title("linear_pair"), ty.name(), |device| {
                pair(ty, arithmetic, device)
            });
            table.row(&title("linear_triple"), ty.name(), |device| {
                triple(ty, arithmetic, device)
            });
        }
        table.row("linear f16 input", ty.name(), |device| {
            half_input(ty, device)
        });
    }
}

/// A weight on the device and its values.
struct Weight {
    tensor: GgmlTensor,
    values: Vec<f32>,
}

/// `Err` holds the reason where the device has no operations on this type.
fn weight(layout: GgmlLayout, tensor: &str, seed: u64, device: &Device) -> Result<Weight, String> {
    let ty = layout.ggml_type();
    let bytes = blocks(ty, layout.num_values(), tensor, seed).expect("checked before");
    let values = oracle::decode(ty, &bytes);
    let backend = Backend::of(device).expect("the device was opened");
    let tensor = match GgmlTensor::from_bytes(layout, bytes.into(), device) {
        Ok(tensor) => tensor,
        Err(TensorError::UnsupportedType { .. }) if !computable_types(backend).contains(&ty) => {
            return Err("no kernels yet".into());
        }
        Err(error) => panic!("{error}"),
    };
    Ok(Weight { tensor, values })
}

fn matrix(ty: GgmlType, rows: usize, seed: u64, device: &Device) -> Result<Weight, String> {
    weight(
        GgmlLayout::matrix(ty, rows, COLS).unwrap(),
        "quantized",
        seed,
        device,
    )
}

fn skipped(why: String) -> Vec<(String, Outcome)> {
    vec![(String::new(), Outcome::Skipped(why))]
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().unwrap()
}

/// Inputs with rows of different sizes, as activations have them.
fn input(n: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n)
        .flat_map(|row| {
            random
                .floats(COLS)
                .into_iter()
                .map(move |v| v * (1.0 + row as f32))
        })
        .collect()
}

fn dequantize(ty: GgmlType, dtype: FloatDType, device: &Device) -> Vec<(String, Outcome)> {
    // Other devices hold what they may not compute with.
    if dtype != FloatDType::F32 && Backend::of(device) == Ok(Backend::NdArray) {
        return skipped(format!("no {dtype:?} there"));
    }
    let round = |v: f32| match dtype {
        FloatDType::F16 => half::f16::from_f32(v).to_f64(),
        FloatDType::BF16 => half::bf16::from_f32(v).to_f64(),
        _ => f64::from(v),
    };
    let layouts = [
        GgmlLayout::matrix(ty, 1, 256),
        GgmlLayout::matrix(ty, ROWS, COLS),
        GgmlLayout::stack(ty, 3, 5, 256),
    ];
    let mut cases = Vec::new();
    for layout in layouts.map(Result::unwrap) {
        for tensor in ["quantized", "random"] {
            let w = match weight(layout, tensor, 1, device) {
                Ok(w) => w,
                Err(why) => return skipped(why),
            };
            let got = w.tensor.dequantize(dtype);
            assert_eq!(got.dims(), [layout.total_rows(), layout.cols()]);
            assert_eq!(got.dtype(), DType::from(dtype));
            let want = w.values.iter().map(|&v| round(v)).collect();
            cases.push((
                format!("{layout:?} {tensor}"),
                Outcome::Values(values(got), want),
            ));
        }
    }
    cases
}

fn gather(ty: GgmlType, device: &Device) -> Vec<(String, Outcome)> {
    let mut cases = Vec::new();
    for layout in [
        GgmlLayout::matrix(ty, ROWS, COLS),
        GgmlLayout::stack(ty, 3, 5, 256),
    ]
    .map(Result::unwrap)
    {
        let w = match weight(layout, "quantized", 2, device) {
            Ok(w) => w,
            Err(why) => return skipped(why),
        };
        let last = layout.total_rows() as i32 - 1;
        let ids = [3, 0, last, 3, 1];
        let want = ids
            .iter()
            .flat_map(|&id| oracle::wide(&w.values[id as usize * layout.cols()..][..layout.cols()]))
            .collect::<Vec<_>>();
        for dtype in [DType::I32, DType::I64] {
            if !device.supports_dtype(dtype) {
                continue;
            }
            let data = TensorData::new(ids.to_vec(), [ids.len()]).convert_dtype(dtype);
            let ids = Tensor::<1, Int>::from_data(data, (device, dtype));
            let got = w.tensor.gather_rows(ids);
            cases.push((
                format!("{layout:?} {dtype:?}"),
                Outcome::Values(values(got), want.clone()),
            ));
        }
    }
    cases
}

fn linear(ty: GgmlType, arithmetic: Arithmetic, device: &Device) -> Vec<(String, Outcome)> {
    let w = match matrix(ty, ROWS, 3, device) {
        Ok(w) => w,
        Err(why) => return skipped(why),
    };
    let mut cases: Vec<_> = INPUTS
        .iter()
        .map(|&n| {
            let x = input(n, n as u64);
            let got = w.tensor.linear(
                Tensor::<2>::from_data(TensorData::new(x.clone(), [n, COLS]), device),
                arithmetic,
            );
            assert_eq!(got.dims(), [n, ROWS]);
            (
                format!("n={n}"),
                Outcome::Values(values(got), oracle::linear(&x, &w.values, COLS)),
            )
        })
        .collect();
    // Any batch shape, and an input that is not contiguous.
    let x = input(12, 5);
    let want = oracle::linear(&x, &w.values, COLS);
    let data = || TensorData::new(x.clone(), [12, COLS]);
    let batched = Tensor::<2>::from_data(data(), device).reshape([2, 3, 2, COLS]);
    let got = w.tensor.linear(batched, arithmetic);
    assert_eq!(got.dims(), [2, 3, 2, ROWS]);
    cases.push((
        "batch [2, 3, 2]".into(),
        Outcome::Values(values(got), want.clone()),
    ));
    let transposed: Vec<f32> = (0..COLS)
        .flat_map(|c| (0..12).map(move |r| (r, c)))
        .map(|(r, c)| x[r * COLS + c])
        .collect();
    let strided =
        Tensor::<2>::from_data(TensorData::new(transposed, [COLS, 12]), device).transpose();
    cases.push((
        "transposed input".into(),
        Outcome::Values(values(w.tensor.linear(strided, arithmetic)), want),
    ));
    cases
}

fn pair(ty: GgmlType, arithmetic: Arithmetic, device: &Device) -> Vec<(String, Outcome)> {
    let weights = [matrix(ty, ROWS, 4, device), matrix(ty, 8, 5, device)];
    let [a, b] = match weights {
        [Ok(a), Ok(b)] => [a, b],
        [Err(why), _] | [_, Err(why)] => return skipped(why),
    };
    several(&[&a, &b], device, |x| {
        GgmlTensor::linear_pair([&a.tensor, &b.tensor], x, arithmetic).to_vec()
    })
}

fn triple(ty: GgmlType, arithmetic: Arithmetic, device: &Device) -> Vec<(String, Outcome)> {
    // Query, key and value weights of one layer may differ in type, as they do in Q4_K_M files.
    let other = if ty == GgmlType::Q6K {
        GgmlType::Q4K
    } else {
        GgmlType::Q8_0
    };
    let weights = [
        matrix(ty, ROWS, 6, device),
        matrix(ty, 8, 7, device),
        matrix(other, 16, 8, device),
    ];
    let [a, b, c] = match weights {
        [Ok(a), Ok(b), Ok(c)] => [a, b, c],
        [Err(why), _, _] | [_, Err(why), _] | [_, _, Err(why)] => return skipped(why),
    };
    several(&[&a, &b, &c], device, |x| {
        GgmlTensor::linear_triple([&a.tensor, &b.tensor, &c.tensor], x, arithmetic).to_vec()
    })
}

fn several(
    weights: &[&Weight],
    device: &Device,
    run: impl Fn(Tensor<2>) -> Vec<Tensor<2>>,
) -> Vec<(String, Outcome)> {
    let mut cases = Vec::new();
    for n in [1, 9] {
        let x = input(n, n as u64);
        let outs = run(Tensor::from_data(
            TensorData::new(x.clone(), [n, COLS]),
            device,
        ));
        assert_eq!(outs.len(), weights.len());
        for (i, (out, w)) in outs.into_iter().zip(weights).enumerate() {
            let want = oracle::linear(&x, &w.values, COLS);
            cases.push((
                format!("n={n} output {i}"),
                Outcome::Values(values(out), want),
            ));
        }
    }
    cases
}

fn half_input(ty: GgmlType, device: &Device) -> Vec<(String, Outcome)> {
    if !device.supports_dtype(DType::F16) {
        return skipped("no F16 there".into());
    }
    let w = match matrix(ty, ROWS, 3, device) {
        Ok(w) => w,
        Err(why) => return skipped(why),
    };
    let x: Vec<half::f16> = input(2, 1).into_iter().map(half::f16::from_f32).collect();
    let exact: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
    let x = Tensor::<2>::from_data(TensorData::new(x, [2, COLS]), (device, DType::F16));
    let got = w.tensor.linear(x, Arithmetic::Exact);
    assert_eq!(got.dtype(), DType::F16);
    vec![(
        "n=2".into(),
        Outcome::Values(values(got), oracle::linear(&exact, &w.values, COLS)),
    )]
}
