//! Tensors seen as several.

use burn::tensor::{Device, FloatDType};
use burn_gguf::gguf::{Gguf, GgufError, GgufWriter, RowSplit};
use burn_gguf::{GgmlTensor, GgmlType};

/// Rows of 18 bytes: those of the second part begin inside a word.
fn file() -> Gguf {
    let mut writer = GgufWriter::new();
    writer.set_metadata("general.architecture", "test");
    let blocks: Vec<u8> = (0..18 * 5)
        .map(|i| if i % 18 == 1 { 60 } else { i })
        .collect();
    writer.tensor("all.weight", &[32, 5], GgmlType::Q4_0, blocks);
    let bias: Vec<u8> = (0..5).flat_map(|i| (i as f32).to_le_bytes()).collect();
    writer.tensor("all.bias", &[5], GgmlType::F32, bias);
    writer.tensor("packed", &[32], GgmlType::Q4_0, vec![0; 18]);
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

fn split(tensor: &str, parts: &[(&str, u64)]) -> RowSplit {
    RowSplit {
        tensor: tensor.to_string(),
        parts: parts
            .iter()
            .map(|(name, rows)| (name.to_string(), *rows))
            .collect(),
    }
}

#[test]
fn parts_take_the_place_of_the_whole_and_share_its_bytes() {
    let gguf = file();
    let splits = [
        split("all.weight", &[("a.weight", 3), ("b.weight", 2)]),
        split("all.bias", &[("a.bias", 3), ("b.bias", 2)]),
    ];
    let seen = gguf.with_row_splits(&splits).unwrap();
    let names: Vec<_> = seen.tensors().map(|t| t.name().to_string()).collect();
    assert_eq!(
        names,
        ["a.weight", "b.weight", "a.bias", "b.bias", "packed"]
    );
    assert!(seen.tensor("all.weight").is_none());
    assert_eq!(seen.metadata().architecture().unwrap(), "test");
    let whole = gguf.tensor("all.weight").unwrap();
    let b = seen.tensor("b.weight").unwrap();
    assert_eq!(
        (b.shape(), b.n_elements(), b.byte_len()),
        (&[32, 2][..], 64, 36)
    );
    assert_eq!(b.data().as_ptr(), whole.data()[54..].as_ptr());
    assert_eq!(seen.tensor("b.bias").unwrap().shape(), [2]);
    let device = Device::flex();
    let values = |info| {
        let tensor = GgmlTensor::from_gguf(info, &device).unwrap();
        let values = tensor.dequantize(FloatDType::F32).into_data();
        values.try_into_vec::<f32>().unwrap()
    };
    let parts = ["a.weight", "b.weight"].map(|name| values(seen.tensor(name).unwrap()));
    assert_eq!(parts.concat(), values(whole));
    assert_eq!(values(seen.tensor("b.bias").unwrap()), [3.0, 4.0]);
}

#[test]
fn row_split() {
    let gguf = file();
    let error = |split: RowSplit| gguf.with_row_splits(&[split]).unwrap_err();
    for parts in [
        &[("a", 3), ("b", 1)][..],
        &[("a", 3), ("b", 3)],
        &[("a", u64::MAX), ("b", 6)],
    ] {
        let error = error(split("all.weight", parts));
        assert!(matches!(error, GgufError::RowSplit { .. }), "{error:?}");
        assert!(error.to_string().contains("all.weight"), "{error}");
    }
    // Values that share a block.
    let packed = error(split("packed", &[("a", 16), ("b", 16)]));
    assert!(matches!(packed, GgufError::RowSplit { .. }), "{packed:?}");
    let missing = error(split("none", &[("a", 1)]));
    assert!(
        matches!(missing, GgufError::MissingTensor { .. }),
        "{missing:?}"
    );
    let twice = error(split("all.weight", &[("a", 3), ("all.bias", 2)]));
    assert!(
        matches!(twice, GgufError::DuplicateTensor { .. }),
        "{twice:?}"
    );
}
