//! The oracle's own decoders against ggml's C decoders.

use burn_gguf::computable_types;
use burn_gguf::device::Backend;
use burn_gguf::gguf::Gguf;

use crate::{blocks, oracle, report::say};

#[test]
fn scalar_decoders_are_bit_equal_to_ggml() {
    let types = computable_types(Backend::Flex).iter().copied();
    for ty in types.filter(|ty| ty.block_len() > 1) {
        let Some(path) = blocks::golden(ty) else {
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
            let got = oracle::decode(ty, gguf.require(name).unwrap().data());
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
