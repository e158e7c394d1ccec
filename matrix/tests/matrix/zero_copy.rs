//! On CPU devices a weight's storage is the file's map.

use std::path::Path;

use burn::tensor::Device;
use burn_gguf::device::open_device;
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear};
use burn_gguf::store::{GgufStore, NameMap};
use burn_gguf::{GgmlTensor, GgmlType};
use burn_store::ModuleSnapshot;

use crate::weight;

/// Where the words lie.
type Address = fn(&GgmlTensor) -> usize;

#[cfg(feature = "flex")]
fn flex(tensor: &GgmlTensor) -> usize {
    let words = tensor
        .words()
        .clone()
        .try_into_primitive::<burn::backend::Flex>()
        .unwrap();
    words.bytes().as_ptr() as usize
}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // burn deprecates the backend; it is still offered.
fn ndarray(tensor: &GgmlTensor) -> usize {
    use burn::backend::ndarray::NdArrayTensor;
    let words = tensor
        .words()
        .clone()
        .try_into_primitive::<burn::backend::NdArray>()
        .unwrap();
    match words {
        NdArrayTensor::U32(storage) => storage.view().as_ptr() as usize,
        other => panic!("words are {other:?}"),
    }
}

fn devices() -> Vec<(&'static str, Device, Address)> {
    vec![
        #[cfg(feature = "flex")]
        ("flex", open_device("flex").unwrap(), flex as Address),
        #[cfg(feature = "ndarray")]
        (
            "ndarray",
            open_device("ndarray").unwrap(),
            ndarray as Address,
        ),
    ]
}

/// Q8_0 rows are no multiple of 4 bytes: the last word of an odd number of them ends in the file's padding.
fn write(path: &Path) {
    let mut writer = GgufWriter::new();
    writer.tensor(
        "embedding",
        &[256, 5],
        GgmlType::Q4K,
        weight(GgmlType::Q4K, 5, 256),
    );
    let odd = weight(GgmlType::Q8_0, 3, 32);
    writer.tensor("linear", &[32, 3], GgmlType::Q8_0, odd);
    writer.tensor(
        "float",
        &[256, 2],
        GgmlType::F32,
        weight(GgmlType::F32, 2, 256),
    );
    writer.write_file(path).unwrap();
}

#[test]
fn words_are_the_bytes_of_the_map() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights.gguf");
    write(&path);
    let gguf = Gguf::open(&path).unwrap();
    for (name, device, address) in devices() {
        for info in gguf.tensors() {
            let tensor = GgmlTensor::from_gguf(info, &device).unwrap();
            let at = address(&tensor);
            assert_eq!(
                at,
                info.data().as_ptr() as usize,
                "{name}: {} was copied",
                info.name()
            );
            assert_mapped(&path, at, tensor.layout().word_len() * 4);
            let clone = tensor.clone();
            assert_eq!(address(&clone), at, "{name}: a clone copies");
        }
    }
}

#[test]
fn modules_loaded_from_a_file_hold_its_map() {
    #[derive(burn::module::Module, Debug)]
    struct Pair {
        embedding: GgmlEmbedding,
        linear: GgmlLinear,
    }

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights.gguf");
    write(&path);
    for (name, device, address) in devices() {
        let mut module = Pair {
            embedding: GgmlEmbedding::uninitialized(5, 256, &device),
            linear: GgmlLinear::uninitialized(32, 3, false, &device),
        };
        let names = NameMap::new(&[
            ("embedding", "embedding.weight"),
            ("linear", "linear.weight"),
        ]);
        let mut store = GgufStore::open(&path).unwrap().with_name_map(names);
        module.load_from(&mut store).unwrap();
        let gguf = store.gguf().unwrap();
        for (info, tensor) in [
            ("embedding", module.embedding.weight.tensor()),
            ("linear", module.linear.weight.tensor()),
        ] {
            let data = gguf.require(info).unwrap().data().as_ptr() as usize;
            assert_eq!(address(&tensor), data, "{name}: {info} was copied");
        }
        // The map outlives the store and the file's name.
        drop(store);
        let at = address(&module.embedding.weight.tensor());
        assert_mapped(&path, at, 5 * 144);
    }
}

/// Looks the address up among the process's mappings.
#[cfg(target_os = "linux")]
fn assert_mapped(path: &Path, at: usize, len: usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = path.canonicalize().unwrap();
    let inside = maps
        .lines()
        .filter(|line| line.ends_with(name.to_str().unwrap()))
        .any(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let bound = |text| usize::from_str_radix(text, 16).unwrap();
            bound(from) <= at && at + len <= bound(to).next_multiple_of(4096)
        });
    assert!(inside, "{at:#x} lies in no mapping of {}", name.display());
}

#[cfg(not(target_os = "linux"))]
fn assert_mapped(_path: &Path, _at: usize, _len: usize) {}
