//! Every operation, over every type and every level this CPU has.

mod decode;
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

/// Blocks of the type with random codes and scales of usual size, seeded. All of its bytes but the `f16` scales are
/// noise; those are where the type keeps them.
fn random_blocks(ty: GgmlType, count: usize, seed: u64) -> Vec<u8> {
    let scales: &[usize] = match ty {
        GgmlType::F32 => {
            return noise(count, seed)
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect();
        }
        GgmlType::F16 => {
            return noise(count, seed)
                .iter()
                .flat_map(|x| f16::from_f32(*x).to_le_bytes())
                .collect();
        }
        GgmlType::BF16 => {
            return noise(count, seed)
                .iter()
                .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
                .collect();
        }
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4K | GgmlType::Q5K => &[0, 2],
        GgmlType::Q6K => &[208],
        GgmlType::IQ1S | GgmlType::IQ2XXS | GgmlType::IQ2XS | GgmlType::IQ2S => &[0],
        GgmlType::IQ3XXS | GgmlType::IQ3S | GgmlType::IQ4NL | GgmlType::IQ4XS => &[0],
        GgmlType::IQ1M => &[],
        _ => panic!("say where {ty} keeps its scales"),
    };
    let size = ty.block_bytes();
    let mut bytes: Vec<u8> = noise(count * size, seed)
        .iter()
        .map(|x| (x * 1e4) as i32 as u8)
        .collect();
    for (i, scale) in noise(count * scales.len(), seed + 1)
        .into_iter()
        .enumerate()
    {
        let at = i / scales.len() * size + scales[i % scales.len()];
        bytes[at..at + 2].copy_from_slice(&f16::from_f32(scale * 0.01).to_le_bytes());
    }
    if ty == GgmlType::IQ1M {
        for (block, scale) in bytes.chunks_exact_mut(size).zip(noise(count, seed + 1)) {
            set_iq1_m_scale(block, f16::from_f32(scale * 0.01));
        }
    }
    bytes
}

/// The scale of `IQ1_M` is four nibbles, each in the high half of every second of the last eight bytes.
fn set_iq1_m_scale(block: &mut [u8], scale: f16) {
    for (k, byte) in block[48..].iter_mut().skip(1).step_by(2).enumerate() {
        *byte = *byte & 15 | (scale.to_bits() >> (4 * k) << 4) as u8;
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
