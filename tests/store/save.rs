//! Saving, and loading what was saved.

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;
use burn_gguf::store::GgufStore;
use burn_store::{ModuleSnapshot, PathFilter};

use crate::{Net, file, names, open, tensors, values};

fn loaded(path: &std::path::PathBuf) -> Net {
    let mut net = Net::new(&Device::flex());
    net.load_from(&mut open(path)).unwrap();
    net
}

#[test]
fn a_saved_module_is_the_file_it_came_from() {
    let (dir, path) = file(|_| {});
    let net = loaded(&path);
    let saved = dir.path().join("saved.gguf");
    let source = Gguf::open(&path).unwrap();
    let mut store = GgufStore::create(&saved)
        .with_name_map(names())
        .metadata_of(&source)
        .metadata("net.extra", 7u32);
    net.save_into(&mut store).unwrap();

    let gguf = Gguf::open(&saved).unwrap();
    assert_eq!(gguf.metadata().architecture().unwrap(), "net");
    assert_eq!(gguf.metadata().get::<u32>("net.extra").unwrap(), 7);
    assert_eq!(gguf.tensors().len(), tensors().len());
    for (name, shape, ty, data) in tensors() {
        let info = gguf.require(name).unwrap();
        assert_eq!(info.shape(), shape, "{name}");
        // Packed weights keep their blocks; dense ones are what the module holds.
        if [
            "token_embd.weight",
            "blk.0.ffn_up.weight",
            "blk.1.ffn_up.weight",
            "output_norm.weight",
            "blk.0.ffn_up.bias",
        ]
        .contains(&name)
        {
            assert_eq!(info.ggml_type(), Some(ty), "{name}");
            assert_eq!(info.data(), data, "{name}");
        } else {
            assert_eq!(info.ggml_type(), Some(burn_gguf::GgmlType::F32), "{name}");
        }
    }
    let again = loaded(&saved);
    assert_eq!(
        values(again.head.weight.val()),
        values(net.head.weight.val())
    );
    assert_eq!(
        values(again.head.bias.unwrap().val()),
        values(net.head.bias.unwrap().val())
    );
    assert_eq!(
        again.embedding.weight.tensor().to_bytes(),
        net.embedding.weight.tensor().to_bytes()
    );
}

#[test]
fn a_filter_saves_a_part() {
    let (dir, path) = file(|_| {});
    let saved = dir.path().join("part.gguf");
    let filter = PathFilter::new().with_regex(r"^layers\.1\.");
    loaded(&path)
        .save_into(
            &mut GgufStore::create(&saved)
                .with_name_map(names())
                .filter(filter),
        )
        .unwrap();
    let gguf = Gguf::open(&saved).unwrap();
    assert_eq!(
        gguf.tensors().map(|t| t.name()).collect::<Vec<_>>(),
        ["blk.1.ffn_up.weight"]
    );
}

#[test]
fn overwriting_has_to_be_allowed_and_spares_open_maps() {
    let (_dir, path) = file(|_| {});
    let net = loaded(&path);
    let blocks = net.embedding.weight.tensor().to_bytes();
    net.save_into(
        &mut GgufStore::create(&path)
            .with_name_map(names())
            .overwrite(true),
    )
    .unwrap();
    // The module still reads the map of the file that was replaced.
    assert_eq!(net.embedding.weight.tensor().to_bytes(), blocks);
    assert_eq!(loaded(&path).embedding.weight.tensor().to_bytes(), blocks);
}
