//! Low-rank adapters: against merged weights, through training, and files that do not fit.

mod common;

use std::path::Path;

use burn::tensor::Device;
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::{Arithmetic, GgmlTensor, GgmlType};
use burn_gguf_models::lora::{LoraError, LoraFile};
use burn_gguf_models::{AutoModel, LoadOptions, ModelError, SessionOptions};
use common::{case, devices, nmse};

const MODEL: &str = "qwen3/model-q4_k_m.gguf";
const TOKENS: [u32; 9] = [5, 3, 8, 1, 9, 2, 7, 4, 6];
const RANK: usize = 3;
const ALPHA: f32 = 6.0;

fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * 0.3
    };
    (0..n).map(step).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn is_linear(name: &str) -> bool {
    [
        "attn_q.weight",
        "attn_v.weight",
        "attn_output.weight",
        "ffn_up.weight",
        "ffn_down.weight",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}

/// An adapter for the model, and the model with `strength * B . A` added to its weights.
fn adapter_and_merged(
    model: &Gguf,
    strength: f32,
    seed: u32,
) -> (GgufWriter<'static>, GgufWriter<'static>) {
    let mut adapter = GgufWriter::new();
    adapter
        .metadata("general.architecture", "qwen3")
        .metadata("general.type", "adapter")
        .metadata("adapter.type", "lora")
        .metadata("adapter.lora.alpha", ALPHA);
    let mut merged = GgufWriter::new();
    merged.copy_metadata(model.metadata());
    for (i, tensor) in model.tensors().enumerate() {
        if !is_linear(tensor.name()) {
            merged.copy_tensor(tensor);
            continue;
        }
        let [cols, rows] = [tensor.shape()[0], tensor.shape()[1]].map(|n| n as usize);
        let a = values(RANK * cols, seed + 2 * i as u32);
        let b = values(rows * RANK, seed + 2 * i as u32 + 1);
        let weight = GgmlTensor::from_gguf(tensor, &Device::flex()).unwrap();
        let mut weight: Vec<f32> = weight
            .dequantize(burn::tensor::FloatDType::F32)
            .into_data()
            .try_into_vec()
            .unwrap();
        for r in 0..rows {
            for c in 0..cols {
                let product: f32 = (0..RANK).map(|k| b[r * RANK + k] * a[k * cols + c]).sum();
                weight[r * cols + c] += strength * product;
            }
        }
        let shape = tensor.shape().to_vec();
        merged.tensor(tensor.name(), &shape, GgmlType::F32, bytes(&weight));
        let (cols, rows, rank) = (cols as u64, rows as u64, RANK as u64);
        adapter
            .tensor(
                format!("{}.lora_a", tensor.name()),
                &[cols, rank],
                GgmlType::F32,
                bytes(&a),
            )
            .tensor(
                format!("{}.lora_b", tensor.name()),
                &[rank, rows],
                GgmlType::F32,
                bytes(&b),
            );
    }
    (adapter, merged)
}

fn load(
    path: &Path,
    lora: Vec<LoraFile>,
    device: &Device,
    arithmetic: Arithmetic,
) -> Result<AutoModel, ModelError> {
    let options = LoadOptions {
        arithmetic,
        lora,
        ..LoadOptions::default()
    };
    AutoModel::load(Gguf::open(path)?, device, options)
}

fn logits(model: &AutoModel) -> Vec<f32> {
    let mut session = model.session(&SessionOptions::default());
    session.feed_all(&TOKENS).unwrap()
}

#[test]
fn an_adapter_is_what_its_product_adds_to_the_weights() {
    let Some(path) = case(MODEL) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let gguf = Gguf::open(&path).unwrap();
    let scale = 0.5;
    let (adapter, merged) = adapter_and_merged(&gguf, scale * ALPHA / RANK as f32, 1);
    adapter.write_file(at("adapter.gguf")).unwrap();
    merged.write_file(at("merged.gguf")).unwrap();
    let lora = LoraFile {
        path: at("adapter.gguf"),
        scale,
    };
    for (name, device) in devices() {
        let run = |path: &Path, lora: Vec<LoraFile>| {
            logits(&load(path, lora, &device, Arithmetic::Exact).unwrap())
        };
        let expected = run(&at("merged.gguf"), vec![]);
        let adapted = run(&path, vec![lora.clone()]);
        let e = nmse(&adapted, &expected);
        assert!(e < 1e-9, "{name}: NMSE {e:.1e}");
        let plain = run(&path, vec![]);
        let change = nmse(&plain, &expected);
        assert!(
            change > 1e-3,
            "{name}: the adapter changes only {change:.1e}"
        );
        // Two add up: the second takes the first back.
        let back = LoraFile {
            scale: -scale,
            ..lora.clone()
        };
        let e = nmse(&run(&path, vec![lora.clone(), back]), &plain);
        assert!(e < 1e-9, "{name}: NMSE {e:.1e}");
        // A scale of 0 is the model itself, to the bit but for the addition of zeros.
        let none = LoraFile {
            scale: 0.0,
            ..lora.clone()
        };
        let e = nmse(&run(&path, vec![none]), &plain);
        assert!(e < 1e-12, "{name}: NMSE {e:.1e}");
        // Activations in 8 bits leave the adapter exact.
        let fast = load(&path, vec![lora.clone()], &device, Arithmetic::Fast).unwrap();
        let e = nmse(&logits(&fast), &expected);
        assert!(e < change / 10.0, "{name}: NMSE {e:.1e}");
    }
}

fn without_tensors() -> GgufWriter<'static> {
    let mut adapter = GgufWriter::new();
    adapter
        .metadata("general.architecture", "qwen3")
        .metadata("general.type", "adapter")
        .metadata("adapter.type", "lora");
    adapter
}

/// An adapter of `attn_k` with one odd value.
fn add_pair(adapter: &mut GgufWriter<'static>, value: f32) {
    let gguf = Gguf::open(case(MODEL).unwrap()).unwrap();
    let weight = gguf.require("blk.0.attn_k.weight").unwrap();
    let [cols, rows] = [weight.shape()[0], weight.shape()[1]];
    let mut a = vec![0.5; cols as usize];
    a[1] = value;
    adapter
        .tensor(
            "blk.0.attn_k.weight.lora_a",
            &[cols, 1],
            GgmlType::F32,
            bytes(&a),
        )
        .tensor(
            "blk.0.attn_k.weight.lora_b",
            &[1, rows],
            GgmlType::F32,
            bytes(&vec![0.5; rows as usize]),
        );
}

#[test]
fn adapters_that_do_not_fit_are_named() {
    let Some(path) = case(MODEL) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adapter.gguf");
    let gguf = Gguf::open(&path).unwrap();
    let error = |edit: &dyn Fn(&mut GgufWriter<'static>), scale: f32| {
        let (mut adapter, _) = adapter_and_merged(&gguf, 1.0, 1);
        edit(&mut adapter);
        adapter.write_file(&file).unwrap();
        let lora = LoraFile {
            path: file.clone(),
            scale,
        };
        match load(&path, vec![lora], &Device::flex(), Arithmetic::Exact) {
            Err(ModelError::Lora(error)) => *error,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("the adapter was taken"),
        }
    };
    type Check = fn(&LoraError) -> bool;
    type Edit = fn(&mut GgufWriter<'static>);
    let cases: [(Edit, f32, Check); 15] = [
        (|_| {}, 3e38, |e| matches!(e, LoraError::NotFinite { .. })),
        (
            |w| *w = without_tensors(),
            1.0,
            |e| matches!(e, LoraError::Empty { .. }),
        ),
        (
            |w| add_pair(w, f32::NAN),
            1.0,
            |e| matches!(e, LoraError::NotFinite { weight, .. } if weight == "blk.0.attn_k.weight"),
        ),
        (
            |w| {
                w.set_metadata("general.type", "model");
            },
            1.0,
            |e| {
                matches!(
                    e,
                    LoraError::NotAnAdapter {
                        key: "general.type",
                        ..
                    }
                )
            },
        ),
        (
            |w| {
                w.remove_metadata("adapter.type");
            },
            1.0,
            |e| {
                matches!(
                    e,
                    LoraError::NotAnAdapter {
                        key: "adapter.type",
                        ..
                    }
                )
            },
        ),
        (
            |w| {
                w.set_metadata("general.architecture", "qwen2");
            },
            1.0,
            |e| matches!(e, LoraError::OtherArchitecture { .. }),
        ),
        (
            |w| {
                w.set_metadata("adapter.lora.alpha", f32::NAN);
            },
            1.0,
            |e| matches!(e, LoraError::Scale { what: "alpha", .. }),
        ),
        (
            |_| {},
            f32::INFINITY,
            |e| {
                matches!(
                    e,
                    LoraError::Scale {
                        what: "scale asked for",
                        ..
                    }
                )
            },
        ),
        (
            |w| {
                w.metadata("adapter.alora.invocation_tokens", vec![1u32]);
            },
            1.0,
            |e| matches!(e, LoraError::Activated { .. }),
        ),
        (
            |w| {
                w.tensor("blk.0.attn_norm.weight", &[4], GgmlType::F32, vec![0; 16]);
            },
            1.0,
            |e| matches!(e, LoraError::UnknownTensor { tensor, .. } if tensor == "blk.0.attn_norm.weight"),
        ),
        (
            |w| {
                w.tensor(
                    "blk.0.attn_k.weight.lora_a",
                    &[4, 1],
                    GgmlType::F32,
                    vec![0; 16],
                );
            },
            1.0,
            |e| matches!(e, LoraError::Unpaired { found, .. } if found == "blk.0.attn_k.weight.lora_a"),
        ),
        (
            |w| {
                w.tensor(
                    "token_embd.weight.lora_a",
                    &[4, 1],
                    GgmlType::F32,
                    vec![0; 16],
                )
                .tensor(
                    "token_embd.weight.lora_b",
                    &[1, 4],
                    GgmlType::F32,
                    vec![0; 16],
                );
            },
            1.0,
            |e| matches!(e, LoraError::NoTarget { weight, .. } if weight == "token_embd.weight"),
        ),
        (
            |w| {
                w.tensor(
                    "blk.0.attn_k.weight.lora_a",
                    &[4, 1],
                    GgmlType::F32,
                    vec![0; 16],
                )
                .tensor(
                    "blk.0.attn_k.weight.lora_b",
                    &[1, 4],
                    GgmlType::F32,
                    vec![0; 16],
                );
            },
            1.0,
            |e| matches!(e, LoraError::Shape { weight, .. } if weight == "blk.0.attn_k.weight"),
        ),
        (
            // A rank of each half that differs.
            |w| {
                w.tensor(
                    "blk.0.attn_k.weight.lora_a",
                    &[64, 2],
                    GgmlType::F32,
                    vec![0; 512],
                )
                .tensor(
                    "blk.0.attn_k.weight.lora_b",
                    &[1, 32],
                    GgmlType::F32,
                    vec![0; 128],
                );
            },
            1.0,
            |e| matches!(e, LoraError::Shape { .. }),
        ),
        (
            |w| {
                w.tensor(
                    "blk.0.attn_k.weight.lora_a",
                    &[64, 1, 2],
                    GgmlType::F32,
                    vec![0; 512],
                )
                .tensor(
                    "blk.0.attn_k.weight.lora_b",
                    &[1, 32],
                    GgmlType::F32,
                    vec![0; 128],
                );
            },
            1.0,
            |e| matches!(e, LoraError::Shape { .. }),
        ),
    ];
    for (i, (edit, scale, check)) in cases.into_iter().enumerate() {
        let error = error(&edit, scale);
        assert!(check(&error), "case {i}: {error}");
        assert!(
            error.to_string().contains("adapter.gguf"),
            "case {i}: {error}"
        );
    }
    // A file of another kind.
    let lora = vec![LoraFile::new(&path)];
    let error = load(&path, lora, &Device::flex(), Arithmetic::Exact)
        .err()
        .unwrap();
    assert!(error.to_string().contains("no low-rank adapter"), "{error}");
}

#[cfg(feature = "autodiff")]
mod training {
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::{DType, Int, Tensor, TensorData};
    use burn_gguf::nn::{LoraWeights, attach_lora, lora_adapters};
    use burn_gguf_models::decoder::DenseDecoder;
    use burn_gguf_models::families::qwen3vl;
    use burn_gguf_models::layers::{CacheDtype, Positions};
    use burn_gguf_models::lora::save_lora;
    use burn_gguf_models::{LogitsOf, ModelInput, TextModel};
    use burn_optim::{AdamWConfig, GradientsParams};
    use burn_store::ModuleSnapshot;

    use super::*;

    const TEXT: [i32; 6] = [3, 14, 15, 92, 65, 35];

    /// Mean negative log-likelihood of each next token of a tiny text.
    fn loss(model: &DenseDecoder, device: &Device) -> Tensor<1> {
        let ids = TensorData::new(TEXT.to_vec(), [1, 6]);
        let embeddings = model.embed(Tensor::from_data(ids, (device, DType::I32)));
        let input = ModelInput::new(embeddings, Positions::run(0, 6));
        let mut cache = model.new_cache(16, CacheDtype::F32);
        let logits = model.forward_input(input, &mut cache, LogitsOf::All);
        let [_, seq, vocab] = logits.dims();
        let device = logits.device();
        let logits = logits.reshape([seq, vocab]).slice([0..5, 0..vocab]);
        let next = TensorData::new(TEXT[1..].to_vec(), [5, 1]);
        let next = Tensor::<2, Int>::from_data(next, (&device, DType::I32));
        let log = burn::tensor::activation::log_softmax(logits, 1);
        log.gather(1, next).mean().neg()
    }

    fn value(loss: &Tensor<1>) -> f32 {
        loss.clone().into_scalar::<f32>()
    }

    /// Every parameter that is no adapter's.
    #[derive(Default, PartialEq)]
    struct Base {
        path: Vec<String>,
        values: Vec<(String, Vec<u8>)>,
    }

    impl ModuleVisitor for Base {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }

        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            if !self.path.iter().any(|name| name == "lora") {
                let bytes = param.val().into_data().as_bytes().to_vec();
                self.values.push((self.path.join("."), bytes));
            }
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if !self.path.iter().any(|name| name == "lora") {
                let bytes = param.val().into_data().as_bytes().to_vec();
                self.values.push((self.path.join("."), bytes));
            }
        }
    }

    fn base(model: &DenseDecoder) -> Base {
        let mut base = Base::default();
        model.visit(&mut base);
        base
    }

    #[test]
    fn an_adapter_learns_while_its_packed_base_stays() {
        let Some(path) = case("qwen3vl/model-bf16.gguf") else {
            return;
        };
        let gguf = Gguf::open(&path).unwrap();
        let device = Device::flex();
        let options = || LoadOptions {
            arithmetic: Arithmetic::Exact,
            ..LoadOptions::default()
        };
        let (packed, report) = qwen3vl::load_text(&gguf, &device, options()).unwrap();
        let before = value(&loss(&packed, &device));
        let unchanged = base(&packed);

        let mut layers = 0;
        let model = attach_lora(packed.no_grad(), |target| {
            let wanted = target.path.contains("attention") || target.path.contains("mlp");
            layers += usize::from(wanted);
            Ok::<_, std::convert::Infallible>(
                wanted.then(|| LoraWeights::initial(target, 4, 8.0, &device)),
            )
        });
        let Ok(model) = model;
        assert!(layers > 6, "{layers} layers");
        let mut model = model.train();
        let device = device.autodiff();
        let first = value(&loss(&model, &device));
        assert!(
            (first - before).abs() < 1e-5,
            "a new adapter changed the model"
        );
        let mut optimizer = AdamWConfig::new().init();
        for _ in 0..20 {
            let loss = loss(&model, &device);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            assert_eq!(gradients.len(), 2 * layers, "only adapters train");
            model = optimizer.step(2e-2, model, gradients);
        }
        let model = model.valid();
        let device = Device::flex();
        let after = value(&loss(&model, &device));
        assert!(
            after < before - 0.5,
            "the loss went from {before} to {after}"
        );
        assert!(base(&model) == unchanged, "the base changed");
        assert_eq!(lora_adapters(&model).len(), layers);

        // What was learned is a file of its own.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("learned.gguf");
        save_lora(&file, &model, "qwen3vl", &report.weights).unwrap();
        let with_file = LoadOptions {
            lora: vec![LoraFile::new(&file)],
            ..options()
        };
        let (again, _) = qwen3vl::load_text(&gguf, &device, with_file).unwrap();
        let loaded = value(&loss(&again, &device));
        assert!(
            (loaded - after).abs() < 1e-4,
            "{after} became {loaded} in the file"
        );

        // A model file cannot hold it, and nothing is lost in silence.
        let mut store = burn_gguf::store::GgufStore::create(folder.path().join("model.gguf"));
        let error = model.save_into(&mut store).unwrap_err().to_string();
        assert!(error.contains("low-rank"), "{error}");
        let twice = attach_lora(model, |target| {
            Ok::<_, std::convert::Infallible>(Some(LoraWeights::initial(target, 1, 1.0, &device)))
        });
        let Ok(twice) = twice;
        let error = save_lora(&file, &twice, "qwen3vl", &report.weights).unwrap_err();
        assert!(
            matches!(error, LoraError::Several { .. } | LoraError::Alphas { .. }),
            "{error}"
        );
        let (plain, report) = qwen3vl::load_text(&gguf, &device, options()).unwrap();
        let error = save_lora(&file, &plain, "qwen3vl", &report.weights).unwrap_err();
        assert!(matches!(error, LoraError::NothingToSave), "{error}");
    }
}
