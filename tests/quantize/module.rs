//! A dense burn module becomes one over packed weights, and survives every store.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_gguf::gguf::Gguf;
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear};
use burn_gguf::quantize::{QuantConfig, QuantSpec, QuantizeModuleError, quantize_module};
use burn_gguf::store::GgufStore;
use burn_gguf::{Arithmetic, GgmlType};
use burn_store::{BurnpackStore, ModuleSnapshot};

/// No multiple of a K block, nor of 32.
const WIDTH: usize = 300;
const VOCAB: usize = 10;

#[derive(Module, Debug)]
struct Dense {
    embedding: Embedding,
    norm: RmsNorm,
    layers: Vec<Linear>,
    head: Linear,
}

#[derive(Module, Debug)]
struct Packed {
    embedding: GgmlEmbedding,
    norm: RmsNorm,
    layers: Vec<GgmlLinear>,
    head: GgmlLinear,
}

impl Dense {
    fn new(device: &Device) -> Self {
        device.seed(7);
        Self {
            embedding: EmbeddingConfig::new(VOCAB, WIDTH).init(device),
            norm: RmsNormConfig::new(WIDTH).init(device),
            layers: vec![
                LinearConfig::new(WIDTH, 256).init(device),
                LinearConfig::new(256, WIDTH).with_bias(false).init(device),
            ],
            head: LinearConfig::new(WIDTH, VOCAB).init(device),
        }
    }

    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let mut x = self.norm.forward(self.embedding.forward(ids));
        for layer in &self.layers {
            x = layer.forward(x);
        }
        self.head.forward(x)
    }
}

impl Packed {
    fn new(device: &Device) -> Self {
        let linear = |i, o, bias| {
            GgmlLinear::uninitialized(i, o, bias, device).with_arithmetic(Arithmetic::Exact)
        };
        Self {
            embedding: GgmlEmbedding::uninitialized(VOCAB, WIDTH, device),
            norm: RmsNormConfig::new(WIDTH).init(device),
            layers: vec![linear(WIDTH, 256, true), linear(256, WIDTH, false)],
            head: linear(WIDTH, VOCAB, true),
        }
    }

    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let mut x = self.norm.forward(self.embedding.forward(ids));
        for layer in &self.layers {
            x = layer.forward(x);
        }
        self.head.forward(x)
    }
}

fn ids(device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::new(vec![3i32, 0, 9, 4, 1, 1], [2, 3]), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().unwrap()
}

/// Squared error relative to the squared expectation.
fn nmse(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |v: f32| f64::from(v).powi(2);
    let error: f64 = got.iter().zip(want).map(|(g, w)| square(g - w)).sum();
    error / want.iter().map(|&w| square(w)).sum::<f64>()
}

fn config() -> QuantConfig {
    QuantConfig::new("q8_0".parse::<QuantSpec>().unwrap())
        .with_rule(r"^layers\.1\.", "q6_k".parse().unwrap())
        .unwrap()
        .with_skip("^head")
        .unwrap()
}

fn packed() -> (Dense, Packed) {
    let device = Device::flex();
    let dense = Dense::new(&device);
    let (packed, report) = quantize_module(&dense, Packed::new(&device), &config()).unwrap();
    let types: Vec<_> = report
        .weights
        .iter()
        .map(|w| (w.path.as_str(), w.ggml_type, w.shape, w.padding))
        .collect();
    assert_eq!(
        types,
        [
            ("embedding.weight", GgmlType::Q8_0, [VOCAB, WIDTH], 20),
            ("layers.0.weight", GgmlType::Q8_0, [256, WIDTH], 20),
            ("layers.1.weight", GgmlType::Q6K, [WIDTH, 256], 0),
            ("head.weight", GgmlType::F32, [VOCAB, WIDTH], 0),
        ]
    );
    for weight in &report.weights {
        match weight.ggml_type {
            GgmlType::F32 => assert_eq!(weight.rmse, 0.0),
            _ => assert!(weight.rmse > 0.0 && weight.rmse < 0.02, "{weight:?}"),
        }
        assert!(!weight.uniform_importance);
    }
    (dense, packed)
}

#[test]
fn outputs_stay_close_and_rows_keep_their_true_width() {
    let (dense, packed) = packed();
    let device = Device::flex();
    assert_eq!(packed.layers[0].weight.shape(), [256, WIDTH]);
    let want = values(dense.forward(ids(&device)));
    let got = values(packed.forward(ids(&device)));
    let error = nmse(&got, &want);
    assert!(error > 0.0 && error < 1e-3, "{error}");
    assert_eq!(packed.num_params(), dense.num_params());
}

#[test]
fn burnpack_and_gguf_keep_filled_up_rows() {
    let (_, packed) = packed();
    let device = Device::flex();
    let want = values(packed.forward(ids(&device)));
    let dir = tempfile::tempdir().unwrap();

    let path = dir.path().join("net.bpk");
    packed
        .save_into(&mut BurnpackStore::from_file(&path))
        .unwrap();
    let (mut again, _) = quantize_module(
        &Dense::new(&device).map(&mut Zero),
        Packed::new(&device),
        &config(),
    )
    .unwrap();
    assert_ne!(values(again.forward(ids(&device))), want);
    let result = again
        .load_from(&mut BurnpackStore::from_file(&path))
        .unwrap();
    assert!(result.is_success(), "{result:?}");
    assert_eq!(values(again.forward(ids(&device))), want);

    // A GGUF row is whole blocks: rows that were filled up are written as numbers.
    let path = dir.path().join("net.gguf");
    packed.save_into(&mut GgufStore::create(&path)).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let ty = |name: &str| gguf.require(name).unwrap().ggml_type().unwrap();
    assert_eq!(ty("embedding.weight"), GgmlType::F32);
    assert_eq!(ty("layers.1.weight"), GgmlType::Q6K);
    let mut again = Packed::new(&device);
    again
        .load_from(&mut GgufStore::open(&path).unwrap())
        .unwrap();
    let got = values(again.forward(ids(&device)));
    assert!(nmse(&got, &want) < 1e-10);
}

/// Sets every number to zero.
struct Zero;

impl burn::module::ModuleMapper for Zero {
    fn map_float<const D: usize>(
        &mut self,
        param: burn::module::Param<Tensor<D>>,
    ) -> burn::module::Param<Tensor<D>> {
        param.map(|tensor| tensor.zeros_like())
    }
}

#[test]
fn types_that_demand_importance_get_a_uniform_one_and_say_so() {
    let device = Device::flex();
    let config = QuantConfig::new("iq2_xs".parse().unwrap());
    let (_, report) = quantize_module(&Dense::new(&device), Packed::new(&device), &config).unwrap();
    assert!(report.weights.iter().all(|w| w.uniform_importance));
    assert!(
        report
            .weights
            .iter()
            .all(|w| w.ggml_type == GgmlType::IQ2XS)
    );
}

#[test]
fn modules_that_do_not_match_are_named() {
    #[derive(Module, Debug)]
    struct Other {
        embedding: GgmlEmbedding,
        extra: RmsNorm,
    }
    let device = Device::flex();
    let other = Other {
        embedding: GgmlEmbedding::uninitialized(VOCAB, WIDTH, &device),
        extra: RmsNormConfig::new(4).init(&device),
    };
    let error = quantize_module(&Dense::new(&device), other, &config()).unwrap_err();
    let QuantizeModuleError::Missing(names) = &error else {
        panic!("{error}");
    };
    assert_eq!(names, &["extra.gamma"]);

    #[derive(Module, Debug)]
    struct Part {
        embedding: GgmlEmbedding,
    }
    let part = Part {
        embedding: GgmlEmbedding::uninitialized(VOCAB, WIDTH, &device),
    };
    let error = quantize_module(&Dense::new(&device), part, &config()).unwrap_err();
    assert!(error.to_string().contains("norm.gamma"), "{error}");
    assert!(error.to_string().contains("layers.0.weight"), "{error}");

    let wide = Part {
        embedding: GgmlEmbedding::uninitialized(VOCAB, WIDTH + 1, &device),
    };
    let error = quantize_module(&Dense::new(&device), wide, &config()).unwrap_err();
    assert!(error.to_string().contains("embedding.weight"), "{error}");
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    struct Poison;
    impl burn::module::ModuleMapper for Poison {
        fn map_float<const D: usize>(
            &mut self,
            param: burn::module::Param<Tensor<D>>,
        ) -> burn::module::Param<Tensor<D>> {
            param.map(|tensor| tensor / 0.0)
        }
    }
    let device = Device::flex();
    let dense = Dense::new(&device).map(&mut Poison);
    let error = quantize_module(&dense, Packed::new(&device), &config()).unwrap_err();
    assert!(error.to_string().contains("embedding.weight"), "{error}");
}
