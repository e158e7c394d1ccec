//! Weights to test with: ggml's own blocks where a file holds them, made up for the plain float types.

use std::path::{Path, PathBuf};

use burn_gguf::GgmlType;
use burn_gguf::gguf::Gguf;

/// A small generator (xorshift64*), so that tests repeat exactly.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Evenly in `-1.0..1.0`.
    pub fn float(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// The golden file of a type: beside the tests, or in the shared cases.
pub fn golden(ty: GgmlType) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
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

/// Blocks of `values` values: the golden file's quantized tensor (or the other one) over and over.
/// `None` if there is no file for a type that needs one.
pub fn blocks(ty: GgmlType, values: usize, tensor: &str, seed: u64) -> Option<Vec<u8>> {
    let bytes = ty.row_bytes(values).expect("whole blocks");
    let mut random = Random::new(seed);
    match ty {
        GgmlType::F32 => {
            return Some(
                random
                    .floats(values)
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect(),
            );
        }
        GgmlType::F16 => {
            let floats = random.floats(values);
            return Some(
                floats
                    .iter()
                    .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
                    .collect(),
            );
        }
        GgmlType::BF16 => {
            let floats = random.floats(values);
            return Some(
                floats
                    .iter()
                    .flat_map(|&v| half::bf16::from_f32(v).to_le_bytes())
                    .collect(),
            );
        }
        _ => {}
    }
    let gguf = Gguf::open(golden(ty)?).expect("a golden file opens");
    let info = gguf
        .require(tensor)
        .expect("a golden file has both tensors");
    // Another start for another seed, so that two weights differ.
    let skip = (seed as usize % 8) * ty.block_bytes();
    Some(
        info.data()
            .iter()
            .copied()
            .cycle()
            .skip(skip)
            .take(bytes)
            .collect(),
    )
}
