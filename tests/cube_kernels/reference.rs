//! Blocks to test with, and what the scalar code makes of them.

use burn_gguf_kernels::{
    GgmlType,
    blocks::{BlockType, BlockVisitor, CodeBlock, FloatBlock, visit},
};

/// A small generator (xorshift32), so that tests need no crate and repeat exactly.
pub struct Random(pub u32);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// Evenly in `-1.0..1.0`.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// `values` values in random blocks whose scales are ordinary numbers.
pub fn blocks(ty: GgmlType, values: usize, seed: u32) -> Vec<u8> {
    let mut random = Random(seed);
    let count = values / ty.block_len();
    let mut bytes = Vec::with_capacity(count * ty.block_bytes());
    // Where the halves of a block lie that scale it.
    let halves: &[usize] = match ty {
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q8_1 | GgmlType::Q4K | GgmlType::Q5K => &[0, 2],
        GgmlType::Q2K => &[80, 82],
        GgmlType::Q3K => &[108],
        GgmlType::Q6K => &[208],
        GgmlType::TQ1_0 => &[52],
        GgmlType::TQ2_0 => &[64],
        GgmlType::IQ1M | GgmlType::Q8K | GgmlType::MXFP4 | GgmlType::NVFP4 => &[],
        _ if ty.block_len() == 1 => &[],
        _ => &[0],
    };
    for _ in 0..count {
        let start = bytes.len();
        match ty {
            GgmlType::F32 => bytes.extend_from_slice(&random.float().to_le_bytes()),
            GgmlType::F16 => {
                bytes.extend_from_slice(&half::f16::from_f32(random.float()).to_le_bytes());
            }
            GgmlType::BF16 => {
                bytes.extend_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes());
            }
            GgmlType::F64 => {
                let value = f64::from(random.float()) + f64::from(random.float()) * 1e-9;
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            _ => bytes.extend((0..ty.block_bytes()).map(|_| (random.next() >> 16) as u8)),
        }
        let block = &mut bytes[start..];
        match ty {
            // The half that scales the block is the highest nibbles of four 16-bit numbers.
            GgmlType::IQ1M => {
                let scale = half::f16::from_f32(random.float() / 16.0).to_bits();
                for i in 0..4 {
                    let high = &mut block[49 + 2 * i];
                    *high = *high & 15 | ((scale >> (4 * i)) as u8 & 15) << 4;
                }
            }
            GgmlType::Q8K => block[..4].copy_from_slice(&(random.float() / 16.0).to_le_bytes()),
            GgmlType::MXFP4 => block[0] = 120 + block[0] % 8,
            _ => (),
        }
        for at in halves {
            let scale = half::f16::from_f32(random.float() / 16.0).to_le_bytes();
            bytes[start + at..start + at + 2].copy_from_slice(&scale);
        }
    }
    bytes
}

struct Decode<'a>(&'a [u8]);

impl Decode<'_> {
    fn decode<T: BlockType>(self) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len() / T::BYTES * T::LEN];
        let blocks = self.0.chunks_exact(T::BYTES);
        for (block, out) in blocks.zip(out.chunks_exact_mut(T::LEN)) {
            T::dequantize_block(block, out);
        }
        out
    }
}

impl BlockVisitor for Decode<'_> {
    type Output = Vec<f32>;

    fn float<T: FloatBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }

    fn code<T: CodeBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }
}

/// The values of some blocks by the scalar code.
pub fn decode(ty: GgmlType, bytes: &[u8]) -> Vec<f32> {
    visit(ty, Decode(bytes)).expect("a type with scalar code")
}

/// The blocks of the golden file of a type, both tensors and the padding between them where it is whole blocks; made
/// up for plain numbers, which have no file.
pub fn golden_blocks(ty: GgmlType) -> Option<Vec<u8>> {
    if ty.block_len() == 1 {
        return Some(blocks(ty, 4096, 5));
    }
    let shared = std::env::var_os("BURN_GGUF_SHARED").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        Into::into,
    );
    let stem = ty.name().to_lowercase();
    let dir = shared.join("cases/blocks");
    let file = std::fs::read(dir.join(format!("{stem}.gguf"))).ok()?;
    // The header of the `.npy` says how many values the tensor has; its data ends the file, padded to 32 bytes.
    let mut end = file.len();
    let mut bytes = Vec::new();
    for name in ["quantized", "random"] {
        let npy = std::fs::read(dir.join(format!("{stem}.{name}.npy"))).ok()?;
        let header = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
        let size = ty.row_bytes((npy.len() - header) / 4)?;
        let start = end - size.next_multiple_of(32);
        bytes.extend_from_slice(&file[start..start + size]);
        end = start;
    }
    Some(bytes)
}

pub fn to_f32(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

pub fn to_u16(bytes: &[u8]) -> Vec<u16> {
    bytes
        .chunks_exact(2)
        .map(|b| u16::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// Squared error relative to the squared reference.
pub fn nmse(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let error: f64 = got
        .iter()
        .zip(want)
        .map(|(&a, &b)| (f64::from(a) - b).powi(2))
        .sum();
    let size: f64 = want.iter().map(|b| b * b).sum();
    error / size
}
