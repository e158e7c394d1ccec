//! Every error of the store.

use burn::module::{Module, Param, ParamId};
use burn::tensor::{Bool, Device, Tensor};
use burn_gguf::GgmlType;
use burn_gguf::gguf::GgufError;
use burn_gguf::nn::GgmlLinear;
use burn_gguf::store::{GgufStore, GgufStoreError, NameMap};
use burn_store::{ApplyError, ModuleSnapshot, ModuleStore};

use crate::{INNER, Net, VOCAB, WIDTH, file, names, open};

fn load(path: &std::path::PathBuf) -> GgufStoreError {
    Net::new(&Device::flex())
        .load_from(&mut open(path))
        .expect_err("the file does not fit")
}

#[test]
fn gguf() {
    let error = GgufStore::open("no/such/file.gguf").err().unwrap();
    assert!(
        matches!(error, GgufStoreError::Gguf(GgufError::NotFound { .. })),
        "{error:?}"
    );
    // A folder that does not exist cannot be saved into.
    let error = Net::new(&Device::flex())
        .head
        .save_into(&mut GgufStore::create("no/such/folder/x.gguf"))
        .unwrap_err();
    assert!(matches!(error, GgufStoreError::Gguf(_)), "{error:?}");
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[test]
fn no_source_and_no_target() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = GgufStore::create(dir.path().join("x.gguf"));
    let error = Net::new(&Device::flex())
        .load_from(&mut target)
        .unwrap_err();
    assert!(matches!(error, GgufStoreError::NoSource), "{error:?}");
    assert!(matches!(target.keys(), Err(GgufStoreError::NoSource)));
    let (_dir, path) = file(|_| {});
    let error = Net::new(&Device::flex())
        .save_into(&mut open(&path))
        .unwrap_err();
    assert!(matches!(error, GgufStoreError::NoTarget), "{error:?}");
}

#[test]
fn name_collision() {
    let (_dir, path) = file(|_| {});
    let names = NameMap::new(&[("output.bias", "same"), ("output_norm.weight", "same")]);
    let mut store = GgufStore::open(&path).unwrap().with_name_map(names);
    let error = Net::new(&Device::flex()).load_from(&mut store).unwrap_err();
    let GgufStoreError::NameCollision { path, tensor } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(path, "same");
    assert!(
        ["output.bias", "output_norm.weight"].contains(&tensor.as_str()),
        "{error}"
    );
}

#[test]
fn missing_tensors_are_named_as_in_the_file() {
    let (_dir, path) =
        file(|t| t.retain(|(name, ..)| !["blk.1.ffn_up.weight", "output.bias"].contains(name)));
    let error = load(&path);
    let GgufStoreError::Missing { names, result } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(names, &["output.bias", "blk.1.ffn_up.weight"]);
    assert_eq!(result.missing.len(), 2);
    assert!(error.to_string().contains("blk.1.ffn_up.weight"), "{error}");
}

#[test]
fn mismatched_shapes_of_packed_and_dense_parameters() {
    let (width, inner) = (WIDTH as u64, INNER as u64);
    for (name, path, shape, expected) in [
        (
            "blk.0.ffn_up.weight",
            "layers.0.up.weight",
            vec![width, inner + 1],
            vec![INNER, WIDTH],
        ),
        (
            "token_embd.weight",
            "embedding.weight",
            vec![32, VOCAB as u64],
            vec![VOCAB, WIDTH],
        ),
        (
            "blk.0.ffn_up.bias",
            "layers.0.up.bias",
            vec![inner + 1],
            vec![INNER],
        ),
        (
            "output.weight",
            "head.weight",
            vec![width, 4],
            vec![WIDTH, 3],
        ),
    ] {
        let (_dir, file) = file(|t| {
            let tensor = t.iter_mut().find(|(n, ..)| *n == name).unwrap();
            let size = 4 * shape.iter().product::<u64>() as usize;
            (tensor.1, tensor.2, tensor.3) = (shape.clone(), GgmlType::F32, vec![0; size]);
        });
        let error = load(&file);
        let GgufStoreError::Mismatch { messages, result } = &error else {
            panic!("{name}: {error:?}")
        };
        assert_eq!(messages.len(), 1, "{name}: {error}");
        assert!(messages[0].contains(path), "{name}: {error}");
        let ApplyError::ShapeMismatch { expected: e, .. } = &result.errors[0] else {
            panic!("{name}: {result:?}")
        };
        assert_eq!(e.to_vec(), expected, "{name}");
        // Without validation the load goes on and reports.
        let mut net = Net::new(&Device::flex());
        let result = net
            .load_from(&mut open(&file).validate(false).allow_partial(true))
            .unwrap();
        assert_eq!(result.errors.len(), 1, "{name}: {result:?}");
    }
}

#[test]
fn removed_types_are_named() {
    for (id, text) in [(GgmlType::Q4_2, "Q4_2"), (GgmlType::Q4_0x4x4, "Q4_0_4_4")] {
        let (_dir, path) = file(|t| {
            let tensor = t
                .iter_mut()
                .find(|(n, ..)| *n == "blk.0.ffn_up.weight")
                .unwrap();
            (tensor.2, tensor.3) = (id, vec![0; id.row_bytes(WIDTH * INNER).unwrap()]);
        });
        let error = load(&path);
        assert!(
            matches!(error, GgufStoreError::Mismatch { .. }),
            "{error:?}"
        );
        let message = error.to_string();
        for part in ["blk.0.ffn_up.weight", text, "removed", "net.gguf"] {
            assert!(message.contains(part), "{message}");
        }
    }
    // The same type in a dense parameter.
    let (_dir, path) = file(|t| {
        let tensor = t.iter_mut().find(|(n, ..)| *n == "output.weight").unwrap();
        (tensor.2, tensor.3) = (
            GgmlType::Q4_3,
            vec![0; GgmlType::Q4_3.row_bytes(WIDTH * 3).unwrap()],
        );
    });
    let error = load(&path);
    assert!(
        matches!(error, GgufStoreError::Mismatch { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("Q4_3"), "{error}");
}

#[test]
fn a_tensor_of_four_dimensions_in_a_packed_layer() {
    let (_dir, path) = file(|t| {
        let tensor = t
            .iter_mut()
            .find(|(n, ..)| *n == "blk.0.ffn_up.weight")
            .unwrap();
        // As a convolution kernel it is a matrix of half as many rows, twice as long.
        tensor.1 = vec![WIDTH as u64, 2, 1, INNER as u64 / 2];
    });
    let error = load(&path);
    assert!(
        matches!(error, GgufStoreError::Mismatch { .. }),
        "{error:?}"
    );
}

#[test]
fn unsupported_dtype() {
    #[derive(Module, Debug)]
    struct Mask {
        mask: Param<Tensor<1, Bool>>,
    }
    let mask = Mask {
        mask: Param::initialized(
            ParamId::new(),
            Tensor::from_data([true, false], &Device::flex()),
        ),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mask.gguf");
    let error = mask.save_into(&mut GgufStore::create(&path)).unwrap_err();
    let GgufStoreError::UnsupportedDtype { path: param, dtype } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(param, "mask");
    assert!(dtype.contains("Bool"), "{dtype}");
    assert!(!path.exists(), "nothing is left behind");
}

#[test]
fn a_weight_that_was_never_loaded_cannot_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let layer = GgmlLinear::uninitialized(WIDTH, INNER, false, &Device::flex());
    let error = layer.save_into(&mut GgufStore::create(&path)).unwrap_err();
    assert!(matches!(error, GgufStoreError::Read { .. }), "{error:?}");
    assert!(error.to_string().contains("never loaded"), "{error}");
    assert!(!path.exists());
}

#[test]
fn exists() {
    let (_dir, path) = file(|_| {});
    let before = std::fs::read(&path).unwrap();
    let mut net = Net::new(&Device::flex());
    net.load_from(&mut open(&path)).unwrap();
    let error = net
        .save_into(&mut GgufStore::create(&path).with_name_map(names()))
        .unwrap_err();
    assert!(
        matches!(&error, GgufStoreError::Exists { path: p } if *p == path),
        "{error:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
