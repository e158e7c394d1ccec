//! Every operation, over every type and every level this CPU has.

mod decode;
mod experts;
mod linear;

use super::*;
use crate::GgmlType;
use crate::blocks::{self, BlockType, BlockVisitor, CodeBlock, FloatBlock, golden};
use half::f16;

/// Numbers in -1..1 from a linear congruential generator.
fn noise(len: usize, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

struct DecodeScalar<'a>(&'a [u8]);

impl BlockVisitor for DecodeScalar<'_> {
    type Output = Vec<f32>;

    fn float<T: FloatBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }

    fn code<T: CodeBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }
}

impl DecodeScalar<'_> {
    fn decode<T: BlockType>(self) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len() / T::BYTES * T::LEN];
        for (block, out) in self
            .0
            .chunks_exact(T::BYTES)
            .zip(out.chunks_exact_mut(T::LEN))
        {
            T::dequantize_block(block, out);
        }
        out
    }
}

fn decode_scalar(ty: GgmlType, bytes: &[u8]) -> Vec<f32> {
    blocks::visit(ty, DecodeScalar(bytes)).expect("an implemented type")
}

/// Blocks of the type with random codes and scales of usual size, seeded. All of its bytes but the scales are noise.
fn random_blocks(ty: GgmlType, count: usize, seed: u64) -> Vec<u8> {
    let numbers = noise(count, seed).into_iter();
    match ty {
        GgmlType::F32 => return numbers.flat_map(f32::to_le_bytes).collect(),
        GgmlType::F16 => {
            return numbers
                .flat_map(|x| f16::from_f32(x).to_le_bytes())
                .collect();
        }
        GgmlType::BF16 => {
            return numbers
                .flat_map(|x| half::bf16::from_f32(x).to_le_bytes())
                .collect();
        }
        GgmlType::F64 => {
            return numbers
                .flat_map(|x| (f64::from(x) / 3.0).to_le_bytes())
                .collect();
        }
        GgmlType::I8 => return numbers.map(|x| (x * 127.0) as i8 as u8).collect(),
        GgmlType::I16 => {
            return numbers
                .flat_map(|x| ((x * 3e4) as i16).to_le_bytes())
                .collect();
        }
        GgmlType::I32 => {
            return numbers
                .flat_map(|x| ((x * 2e9) as i32).to_le_bytes())
                .collect();
        }
        GgmlType::I64 => {
            return numbers
                .flat_map(|x| ((x * 2e9) as i64).to_le_bytes())
                .collect();
        }
        _ => {}
    }
    let size = ty.block_bytes();
    let mut bytes: Vec<u8> = noise(count * size, seed)
        .iter()
        .map(|x| (x * 1e4) as i32 as u8)
        .collect();
    let mut scales = noise(count * 16, seed + 1).into_iter();
    for block in bytes.chunks_exact_mut(size) {
        set_scales(ty, block, || {
            f16::from_f32(scales.next().expect("enough") * 0.01)
        });
    }
    bytes
}

/// Sets each scale that is stored as a float in a block, and leaves the rest alone.
fn set_scales(ty: GgmlType, block: &mut [u8], mut next: impl FnMut() -> f16) {
    let halves: &[usize] = match ty {
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4K | GgmlType::Q5K => &[0, 2],
        GgmlType::Q6K => &[208],
        GgmlType::Q1_0 | GgmlType::Q2_0 | GgmlType::Q8_1 => &[0],
        GgmlType::Q2K => &[80, 82],
        GgmlType::Q3K => &[108],
        GgmlType::TQ1_0 => &[52],
        GgmlType::TQ2_0 => &[64],
        GgmlType::IQ1S | GgmlType::IQ2XXS | GgmlType::IQ2XS | GgmlType::IQ2S => &[0],
        GgmlType::IQ3XXS | GgmlType::IQ3S | GgmlType::IQ4NL | GgmlType::IQ4XS => &[0],
        GgmlType::Q8K => return block[..4].copy_from_slice(&next().to_f32().to_le_bytes()),
        // The exponent of the nearest power of two below, not so small that products are subnormal; and the upper
        // bits of the half.
        GgmlType::MXFP4 => {
            return block[0] = ((next().to_f32().to_bits() >> 23) as u8).max(32);
        }
        // Four nibbles, each in the high half of every second of the last eight bytes.
        GgmlType::IQ1M => {
            let scale = next().to_bits();
            for k in 0..4 {
                let byte = &mut block[49 + 2 * k];
                *byte = *byte & 15 | (scale >> (4 * k) << 4) as u8;
            }
            return;
        }
        GgmlType::NVFP4 => return block[..4].fill_with(|| (next().to_bits() >> 7) as u8),
        _ => panic!("say where {ty} keeps its scales"),
    };
    for &at in halves {
        block[at..at + 2].copy_from_slice(&next().to_le_bytes());
    }
}

fn levels() -> impl Iterator<Item = Isa> {
    Isa::ALL.iter().copied().filter(|isa| {
        let available = isa.is_available();
        if !available {
            println!("skipped: this CPU lacks {isa:?}");
        }
        available
    })
}
