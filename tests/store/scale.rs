//! Factors that files keep beside packed weights.

use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::nn::{GgmlExperts, GgmlLinear};
use burn_gguf::store::{GgufStore, LoadProfile};
use burn_gguf::{Arithmetic, GgmlType};
use burn_store::{BurnpackStore, ModuleSnapshot};
use tempfile::TempDir;

use crate::{WIDTH, blocks, bytes, decoded, values};

const ROWS: usize = 5;
const EXPERTS: usize = 3;

/// A layer `up` and a stack `experts`, with the given tensors beside them.
fn file(beside: &[(&str, Vec<f32>)]) -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scaled.gguf");
    let mut writer = GgufWriter::new();
    writer.metadata("general.architecture", "net");
    let (width, rows, experts) = (WIDTH as u64, ROWS as u64, EXPERTS as u64);
    let data = |n| blocks(GgmlType::Q4K, n);
    writer.tensor(
        "up.weight",
        &[width, rows],
        GgmlType::Q4K,
        data(WIDTH * ROWS),
    );
    writer.tensor(
        "experts.weight",
        &[width, rows, experts],
        GgmlType::Q4K,
        data(WIDTH * ROWS * EXPERTS),
    );
    for (name, factors) in beside {
        writer.tensor(
            *name,
            &[factors.len() as u64],
            GgmlType::F32,
            bytes(factors),
        );
    }
    writer.write_file(&path).unwrap();
    (dir, path)
}

#[derive(burn::module::Module, Debug)]
struct Scaled {
    up: GgmlLinear,
    experts: GgmlExperts,
}

impl Scaled {
    fn new() -> Self {
        let device = Device::flex();
        Self {
            up: GgmlLinear::uninitialized(WIDTH, ROWS, false, &device)
                .with_arithmetic(Arithmetic::Exact),
            experts: GgmlExperts::uninitialized(EXPERTS, WIDTH, ROWS, &device)
                .with_arithmetic(Arithmetic::Exact),
        }
    }

    fn load(path: &std::path::Path) -> Result<Self, String> {
        let mut module = Self::new();
        let result = module.load_from(&mut GgufStore::open(path).unwrap());
        match result {
            Ok(result) => {
                assert!(result.unused.is_empty(), "{result:?}");
                Ok(module)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn input() -> Tensor<2> {
    let data: Vec<f32> = (0..2 * WIDTH).map(|i| (i % 13) as f32 - 6.0).collect();
    Tensor::from_data(TensorData::new(data, [2, WIDTH]), &Device::flex())
}

fn experts(module: &Scaled) -> Vec<f32> {
    let ids: Tensor<2, Int> = Tensor::from_data(
        TensorData::new(vec![2i32, 0, 1, 2], [2, 2]),
        &Device::flex(),
    );
    values(module.experts.forward(input().unsqueeze_dim(1), ids))
}

/// `plain` with the factor of `of` its position.
fn scaled(plain: &[f32], factor: impl Fn(usize) -> f32) -> Vec<f32> {
    plain
        .iter()
        .enumerate()
        .map(|(i, v)| v * factor(i))
        .collect()
}

#[test]
fn products_rows_and_values_are_multiplied() {
    let (_dir, path) = file(&[]);
    let plain = Scaled::load(&path).unwrap();
    assert_eq!(plain.up.weight.tensor().scales(), None);
    // Either name, a file's own input scale, and one factor per expert.
    for name in ["up.scale", "up.weight.scale"] {
        let (_dir, path) = file(&[
            (name, vec![0.25]),
            ("up.input_scale", vec![3.0]),
            ("experts.scale", vec![2.0, 1.0, -0.5]),
        ]);
        let module = Scaled::load(&path).unwrap();
        assert_eq!(module.up.weight.tensor().scales(), Some(&[0.25][..]));
        assert_eq!(
            values(module.up.forward(input())),
            scaled(&values(plain.up.forward(input())), |_| 0.25)
        );
        // The experts 2, 0, 1, 2 of the input.
        assert_eq!(
            experts(&module),
            scaled(&experts(&plain), |i| [-0.5, 2.0, 1.0, -0.5][i / ROWS])
        );
        let all = decoded(
            GgmlType::Q4K,
            ROWS * EXPERTS,
            WIDTH,
            &blocks(GgmlType::Q4K, WIDTH * ROWS * EXPERTS),
        );
        let want = scaled(&all, |i| [2.0, 1.0, -0.5][i / (ROWS * WIDTH)]);
        let stack = module.experts.weight.tensor();
        assert_eq!(values(stack.dequantize(FloatDType::F32)), want);
        let ids: Tensor<1, Int> =
            Tensor::from_data(TensorData::new(vec![0i32, 7, 14], [3]), &Device::flex());
        let rows: Vec<f32> = [0, 7, 14]
            .iter()
            .flat_map(|row| want[row * WIDTH..][..WIDTH].to_vec())
            .collect();
        assert_eq!(values(stack.gather_rows(ids)), rows);
    }
}

#[test]
fn factors_survive_saving_and_dense_loading() {
    let (dir, path) = file(&[
        ("up.scale", vec![0.25]),
        ("experts.scale", vec![2.0, 1.0, -0.5]),
    ]);
    let module = Scaled::load(&path).unwrap();
    let (up, chosen) = (values(module.up.forward(input())), experts(&module));
    let check = |module: &Scaled| {
        assert_eq!(values(module.up.forward(input())), up);
        assert_eq!(experts(module), chosen);
    };

    let saved = dir.path().join("saved.gguf");
    module.save_into(&mut GgufStore::create(&saved)).unwrap();
    let gguf = Gguf::open(&saved).unwrap();
    assert_eq!(
        gguf.require("experts.scale").unwrap().shape(),
        [EXPERTS as u64]
    );
    check(&Scaled::load(&saved).unwrap());

    let pack = dir.path().join("saved.bpk");
    module
        .save_into(&mut BurnpackStore::from_file(&pack))
        .unwrap();
    let mut again = Scaled::load(&saved).unwrap();
    again
        .load_from(&mut BurnpackStore::from_file(&pack))
        .unwrap();
    check(&again);

    let mut dense = Scaled::new();
    let mut store = GgufStore::open(&path)
        .unwrap()
        .with_profile(LoadProfile::Dense(FloatDType::F32));
    dense.load_from(&mut store).unwrap();
    // The sums are in another order.
    let close = |got: Vec<f32>, want: &[f32]| {
        let pairs = got.iter().zip(want);
        assert!(pairs.clone().count() == want.len());
        for (g, w) in pairs {
            assert!((g - w).abs() < 1e-4, "{g} is not {w}");
        }
    };
    close(values(dense.up.forward(input())), &up);
    close(experts(&dense), &chosen);
}

#[test]
fn factors_that_do_not_fit_are_errors() {
    for (beside, message) in [
        (vec![("up.scale", vec![1.0, 2.0])], "2 scale factors for 1"),
        (
            vec![("experts.scale", vec![1.0, 2.0])],
            "2 scale factors for 3",
        ),
        (vec![("up.scale", vec![f32::NAN])], "must be finite"),
        (
            vec![("up.scale", vec![1.0]), ("up.weight.scale", vec![2.0])],
            "both scale \"up.weight\"",
        ),
    ] {
        let (_dir, path) = file(&beside);
        let error = Scaled::load(&path).unwrap_err();
        assert!(error.contains(message), "{error}");
        assert!(
            error.contains("up.scale") || error.contains("experts.scale"),
            "{error}"
        );
    }
}
