//! The oracle's own decoders against ggml's C decoders.

use std::path::{Path, PathBuf};

use burn_gguf::device::Backend;
use burn_gguf::gguf::Gguf;
use burn_gguf::{GgmlType, computable_types};
use burn_gguf_matrix::decode;

use crate::say;

/// The golden file of a type: beside the tests, or in the shared cases.
fn golden(ty: GgmlType) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let shared =
        std::env::var_os("BURN_GGUF_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let name = format!("{}.gguf", ty.name().to_lowercase());
    [
        root.join("tests/fixtures/blocks"),
        shared.join("cases/blocks"),
    ]
    .into_iter()
    .map(|dir| dir.join(&name))
    .find(|path| path.is_file())
}

#[test]
fn scalar_decoders_are_bit_equal_to_ggml() {
    let types = computable_types(Backend::Flex).iter().copied();
    for ty in types.filter(|ty| ty.block_len() > 1) {
        let Some(path) = golden(ty) else {
            say(&format!("skipped: {ty}: no golden blocks"));
            continue;
        };
        let gguf = Gguf::open(&path).unwrap();
        for name in ["quantized", "random"] {
            let npy = std::fs::read(path.with_extension(format!("{name}.npy"))).unwrap();
            let start = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
            let want = npy[start..]
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            let got = decode(ty, gguf.require(name).unwrap().data());
            assert_eq!(got.len(), want.len(), "{ty} {name}");
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{ty} {name} value {i}: {got} is not {want}"
                );
            }
        }
    }
}
