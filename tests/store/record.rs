//! Burn's own records keep the blocks packed.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Int, Tensor};
use burn_gguf::GgmlType;
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear, GgmlParam};
use burn_store::{BurnpackStore, ModuleSnapshot};

use crate::{INNER, Net, VOCAB, WIDTH, file, open, values};

/// A module of the file's types without its values.
fn empty(device: &Device) -> Net {
    let zeros = |ty, rows| GgmlParam::zeros(ty, rows, WIDTH, device).unwrap();
    let mut net = Net::new(device);
    net.embedding.weight = zeros(GgmlType::Q6K, VOCAB);
    net.layers[0].up.weight = zeros(GgmlType::Q4K, INNER);
    net.layers[1].up.weight = zeros(GgmlType::Q8_0, INNER);
    net
}

fn loaded() -> Net {
    let (_dir, path) = file(|_| {});
    let mut net = Net::new(&Device::flex());
    net.load_from(&mut open(&path)).unwrap();
    net
}

fn assert_equal(a: &Net, b: &Net) {
    for (a, b) in [
        (&a.embedding.weight, &b.embedding.weight),
        (&a.layers[0].up.weight, &b.layers[0].up.weight),
        (&a.layers[1].up.weight, &b.layers[1].up.weight),
    ] {
        assert_eq!(a.layout(), b.layout());
        assert_eq!(a.tensor().to_bytes(), b.tensor().to_bytes());
    }
    assert_eq!(values(a.norm.gamma.val()), values(b.norm.gamma.val()));
    assert_eq!(values(a.head.weight.val()), values(b.head.weight.val()));
}

/// The packed bytes, the dense ones and room for names; widened, the embedding alone would be larger.
fn assert_packed(path: &std::path::Path) {
    let size = std::fs::metadata(path).unwrap().len();
    let packed = (VOCAB * 210 + INNER * 144 + INNER * 272) as u64;
    let dense = 4 * (WIDTH * 4 + 3 + INNER) as u64;
    assert!(
        size >= packed + dense,
        "{size} bytes cannot hold everything"
    );
    assert!(
        size < packed + dense + 4 * (VOCAB * WIDTH) as u64,
        "{size} bytes are too many for packed weights"
    );
}

#[test]
fn burnpack_files_round_trip() {
    let net = loaded();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.bpk");
    net.save_into(&mut BurnpackStore::from_file(&path)).unwrap();
    assert_packed(&path);
    let mut again = empty(&Device::flex());
    let result = again
        .load_from(&mut BurnpackStore::from_file(&path))
        .unwrap();
    assert!(
        result.missing.is_empty() && result.unused.is_empty() && result.errors.is_empty(),
        "{result:?}"
    );
    assert_equal(&again, &net);
}

#[test]
fn module_records_round_trip() {
    let net = loaded();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.bpk");
    net.clone().save_file(&path).unwrap();
    assert_packed(&path);
    assert_equal(&empty(&Device::flex()).load_file(&path), &net);
    assert_equal(
        &empty(&Device::flex()).load_record(net.clone().into_record()),
        &net,
    );
}

#[test]
fn a_record_of_another_type_is_refused_and_changes_nothing_that_computes() {
    let device = Device::flex();
    let layer = |ty| {
        let weight = GgmlParam::zeros(ty, 4, WIDTH, &device).unwrap();
        GgmlLinear::from_tensor(weight.tensor(), None)
    };
    let record = layer(GgmlType::Q8_0).into_record();
    assert!(
        layer(GgmlType::Q4K).try_load_record(record).is_err(),
        "272-byte rows do not fit 144-byte ones"
    );
}

#[test]
fn a_clone_through_a_mapper_that_changes_nothing_is_equal() {
    struct Identity;
    impl ModuleMapper for Identity {
        fn map_int<const D: usize>(
            &mut self,
            param: Param<Tensor<D, Int>>,
        ) -> Param<Tensor<D, Int>> {
            param
        }
    }
    let net = loaded();
    assert_equal(&net.clone().map(&mut Identity), &net);
}

#[test]
fn an_embedding_keeps_its_blocks_through_a_record() {
    let net = loaded();
    let table = net.embedding.clone();
    let zeros = GgmlEmbedding::from_tensor(
        GgmlParam::zeros(GgmlType::Q6K, VOCAB, WIDTH, &Device::flex())
            .unwrap()
            .tensor(),
    );
    let again = zeros.load_record(table.clone().into_record());
    assert_eq!(
        again.weight.tensor().to_bytes(),
        table.weight.tensor().to_bytes()
    );
}
