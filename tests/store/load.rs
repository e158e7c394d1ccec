//! Loading.

use std::sync::{Arc, Mutex};

use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use burn_gguf::store::LoadProfile;
use burn_gguf::{Arithmetic, GgmlType};
use burn_store::{ModuleSnapshot, ModuleStore, PathFilter};

use crate::{INNER, Net, VOCAB, WIDTH, blocks, decoded, file, floats, open, tensors, values};

#[test]
fn every_parameter_gets_its_tensor() {
    let device = Device::flex();
    let (_dir, path) = file(|_| {});
    let mut net = Net::new(&device);
    let result = net.load_from(&mut open(&path)).unwrap();
    assert_eq!(result.applied.len(), tensors().len(), "{result:?}");
    assert!(
        result.unused.is_empty() && result.missing.is_empty() && result.errors.is_empty(),
        "{result:?}"
    );

    // Packed where the layer is packed, whatever the type.
    for (param, ty) in [
        (&net.embedding.weight, GgmlType::Q6K),
        (&net.layers[0].up.weight, GgmlType::Q4K),
        (&net.layers[1].up.weight, GgmlType::Q8_0),
    ] {
        let layout = param.layout().unwrap();
        assert_eq!(layout.ggml_type(), ty);
        assert_eq!(param.tensor().to_bytes(), blocks(ty, layout.num_values()));
    }
    // Dense where it is burn's own.
    assert_eq!(
        values(net.layers[0].up.bias.as_ref().unwrap().val()),
        floats(1.0, INNER)
    );
    assert_eq!(values(net.norm.gamma.val()), floats(-8.0, WIDTH));
    let head = decoded(GgmlType::Q5_0, 3, WIDTH, &blocks(GgmlType::Q5_0, 3 * WIDTH));
    assert_eq!(net.head.weight.dims(), [WIDTH, 3]);
    assert_eq!(values(net.head.weight.val().transpose()), head);
    assert_eq!(
        values(net.head.bias.as_ref().unwrap().val()),
        [1.0, -2.0, 5.960_464_5e-8]
    );
}

#[test]
fn a_loaded_module_computes() {
    let device = Device::flex();
    let (_dir, path) = file(|_| {});
    let mut net = Net::new(&device);
    net.load_from(&mut open(&path)).unwrap();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(vec![2i32, 7], [1, 2]), &device);
    let x = net.embedding.forward(ids);
    assert_eq!(x.dims(), [1, 2, WIDTH]);
    let table = decoded(
        GgmlType::Q6K,
        VOCAB,
        WIDTH,
        &blocks(GgmlType::Q6K, VOCAB * WIDTH),
    );
    let rows = [&table[2 * WIDTH..3 * WIDTH], &table[7 * WIDTH..]].concat();
    assert_eq!(values(x.clone()), rows);
    let layer = net.layers[0].up.clone().with_arithmetic(Arithmetic::Exact);
    let w = decoded(
        GgmlType::Q4K,
        INNER,
        WIDTH,
        &blocks(GgmlType::Q4K, INNER * WIDTH),
    );
    let bias = floats(1.0, INNER);
    for (i, y) in values(layer.forward(x.clone())).into_iter().enumerate() {
        let (row, out) = (i / INNER, i % INNER);
        let dot: f32 = (0..WIDTH)
            .map(|c| rows[row * WIDTH + c] * w[out * WIDTH + c])
            .sum();
        assert!(
            (y - dot - bias[out]).abs() < 1e-4,
            "{y} is not {}",
            dot + bias[out]
        );
    }
    let head = net.head.forward(net.norm.forward(x));
    assert_eq!(head.dims(), [1, 2, 3]);
    assert!(values(head).iter().all(|v| v.is_finite()));
}

#[test]
fn dense_profile_widens_packed_layers() {
    let (_dir, path) = file(|_| {});
    for (dtype, ty, limit) in [
        (FloatDType::F32, GgmlType::F32, 0.0),
        (FloatDType::F16, GgmlType::F16, 1e-3),
        (FloatDType::BF16, GgmlType::BF16, 8e-3),
    ] {
        let mut net = Net::new(&Device::flex());
        net.load_from(&mut open(&path).with_profile(LoadProfile::Dense(dtype)))
            .unwrap();
        let tensor = net.layers[0].up.weight.tensor();
        assert_eq!(tensor.ggml_type(), ty);
        let want = decoded(
            GgmlType::Q4K,
            INNER,
            WIDTH,
            &blocks(GgmlType::Q4K, INNER * WIDTH),
        );
        for (got, want) in values(tensor.dequantize(FloatDType::F32)).iter().zip(want) {
            assert!(
                (got - want).abs() <= limit * want.abs(),
                "{dtype:?}: {got} is not {want}"
            );
        }
    }
}

#[test]
fn unused_tensors_are_reported_under_their_names_in_the_file() {
    let (_dir, path) =
        file(|t| t.push(("blk.7.ffn_up.weight", vec![4], GgmlType::F32, vec![0; 16])));
    let result = Net::new(&Device::flex())
        .load_from(&mut open(&path))
        .unwrap();
    assert_eq!(result.unused, ["blk.7.ffn_up.weight"]);
}

#[test]
fn partial_loads_leave_the_rest_as_it_was() {
    let (_dir, path) = file(|t| {
        t.retain(|(name, ..)| !name.starts_with("output") && *name != "blk.1.ffn_up.weight")
    });
    let mut net = Net::new(&Device::flex());
    let before = values(net.head.weight.val());
    let result = net.load_from(&mut open(&path).allow_partial(true)).unwrap();
    let missing: Vec<_> = result
        .missing
        .iter()
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(
        missing,
        [
            "head.bias",
            "head.weight",
            "layers.1.up.weight",
            "norm.gamma"
        ]
    );
    assert_eq!(values(net.head.weight.val()), before);
    assert!(net.layers[1].up.weight.layout().is_none());
    assert!(net.layers[0].up.weight.layout().is_some());
}

#[test]
fn a_filter_loads_a_part() {
    let (_dir, path) = file(|_| {});
    let mut net = Net::new(&Device::flex());
    let filter = PathFilter::new().with_regex(r"^layers\.0\.");
    let result = net
        .load_from(&mut open(&path).filter(filter).allow_partial(true))
        .unwrap();
    let mut applied = result.applied.clone();
    applied.sort();
    assert_eq!(applied, ["layers.0.up.bias", "layers.0.up.weight"]);
    assert!(net.embedding.weight.layout().is_none());
}

#[test]
fn progress_counts_every_byte_once() {
    let (_dir, path) = file(|_| {});
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let mut store = open(&path).on_progress(move |p| {
        sink.lock()
            .unwrap()
            .push((p.tensor.to_string(), p.bytes, p.total))
    });
    Net::new(&Device::flex()).load_from(&mut store).unwrap();
    let seen = seen.lock().unwrap();
    let total: u64 = tensors().iter().map(|(.., data)| data.len() as u64).sum();
    assert_eq!(seen.len(), tensors().len(), "{seen:?}");
    assert_eq!(seen.last().unwrap().1, total);
    assert!(
        seen.iter()
            .all(|(_, bytes, t)| *t == total && *bytes <= total)
    );
}

#[test]
fn tensors_can_be_asked_for_by_module_path() {
    let (_dir, path) = file(|_| {});
    let mut store = open(&path);
    assert!(
        store
            .keys()
            .unwrap()
            .contains(&"layers.1.up.weight".to_string())
    );
    assert_eq!(store.get_all_tensors().unwrap().len(), tensors().len());
    let tensor = store.get_tensor("norm.gamma").unwrap().unwrap();
    assert_eq!(
        tensor.to_bytes().unwrap().to_vec(),
        crate::bytes(&floats(-8.0, WIDTH))
    );
    assert!(store.get_tensor("nothing").unwrap().is_none());
}
