//! Weights to test with, made here: no file is needed.

use std::fmt;

use burn_gguf::GgmlType;
use burn_gguf_kernels::quantize::{self, Importance};
use half::{bf16, f16};

use crate::oracle;
use crate::random::Random;

/// What the values of a test weight look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Even noise, packed by the type's quantizer. Not every type has one.
    Quantized,
    /// Blocks of random bytes with scales of usual size: every code and every sub-scale occurs.
    Random,
    /// Blocks whose largest value is alternately their first and their last.
    MaximumAtEnds,
    /// Random blocks, every third one and the whole second row of them zero.
    ZeroBlocks,
    /// Random codes, every scale the largest finite `f16` (or the scale format's nearest to it).
    LargestScale,
    /// Random codes, every scale the smallest subnormal `f16` (or the scale format's nearest to it).
    SmallestScale,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 6] = [
        Self::Random,
        Self::Quantized,
        Self::MaximumAtEnds,
        Self::ZeroBlocks,
        Self::LargestScale,
        Self::SmallestScale,
    ];
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quantized => "quantized",
            Self::Random => "random",
            Self::MaximumAtEnds => "maximum first and last",
            Self::ZeroBlocks => "zero blocks",
            Self::LargestScale => "largest scale",
            Self::SmallestScale => "smallest scale",
        })
    }
}

/// Where a block keeps a scale (or a min), and in which format. Offsets are those of ggml's structs.
#[derive(Clone, Copy)]
enum Scale {
    F16(usize),
    F32(usize),
    /// A power of two, 8 bits.
    E8m0(usize),
    /// 4 bits of exponent, 3 of mantissa, no sign.
    Ue4m3(usize),
    /// An `f16` in four pieces: the top bits of four 16-bit words from here on.
    Nibbles(usize),
}

/// The scales of a type; `None` for types of plain numbers.
fn scales(ty: GgmlType) -> Option<&'static [Scale]> {
    use Scale::{E8m0, F16, F32, Nibbles, Ue4m3};
    Some(match ty {
        GgmlType::Q1_0
        | GgmlType::Q2_0
        | GgmlType::Q4_0
        | GgmlType::Q5_0
        | GgmlType::Q8_0
        // Q8_1's second f16, like Q8_K's sums, serves products with other types; a weight's decoding ignores it.
        | GgmlType::Q8_1
        | GgmlType::IQ1S
        | GgmlType::IQ2XXS
        | GgmlType::IQ2XS
        | GgmlType::IQ2S
        | GgmlType::IQ3XXS
        | GgmlType::IQ3S
        | GgmlType::IQ4NL
        | GgmlType::IQ4XS => &[F16(0)],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4K | GgmlType::Q5K => &[F16(0), F16(2)],
        GgmlType::Q2K => &[F16(80), F16(82)],
        GgmlType::Q3K => &[F16(108)],
        GgmlType::Q6K => &[F16(208)],
        GgmlType::Q8K => &[F32(0)],
        GgmlType::TQ1_0 => &[F16(52)],
        GgmlType::TQ2_0 => &[F16(64)],
        GgmlType::MXFP4 => &[E8m0(0)],
        GgmlType::NVFP4 => &[Ue4m3(0), Ue4m3(1), Ue4m3(2), Ue4m3(3)],
        GgmlType::IQ1M => &[Nibbles(48)],
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Usual,
    Largest,
    Smallest,
}

impl Scale {
    fn write(self, block: &mut [u8], size: Size, random: &mut Random) {
        let value = match size {
            Size::Usual => f16::from_f32(random.float() * 0.02),
            Size::Largest => f16::MAX,
            Size::Smallest => f16::MIN_POSITIVE_SUBNORMAL,
        };
        match self {
            Self::F16(at) => block[at..at + 2].copy_from_slice(&value.to_le_bytes()),
            Self::F32(at) => block[at..at + 4].copy_from_slice(&value.to_f32().to_le_bytes()),
            Self::E8m0(at) => {
                block[at] = match size {
                    Size::Usual => 119 + random.below(5) as u8,
                    Size::Largest => 127 + 16,
                    Size::Smallest => 127 - 24,
                }
            }
            Self::Ue4m3(at) => {
                block[at] = match size {
                    Size::Usual => 0x20 + random.below(0x20) as u8,
                    // One more would be NaN.
                    Size::Largest => 0x7e,
                    Size::Smallest => 0x01,
                }
            }
            Self::Nibbles(at) => {
                for i in 0..4 {
                    let nibble = (value.to_bits() >> (4 * i)) as u8 & 15;
                    let high = &mut block[at + 2 * i + 1];
                    *high = *high & 15 | nibble << 4;
                }
            }
        }
    }
}

/// A number of a plain type, as bytes.
fn number(ty: GgmlType, size: Size, random: &mut Random, out: &mut [u8]) {
    let noise = random.float();
    let tiny = f32::from(f16::MIN_POSITIVE_SUBNORMAL);
    let float = match size {
        Size::Usual => noise,
        Size::Largest => f16::MAX.to_f32().copysign(noise),
        Size::Smallest => tiny.copysign(noise),
    };
    let mut integer = |bits: u32| match size {
        Size::Usual => random.bits() as i64 >> (64 - bits),
        Size::Largest if noise < 0.0 => -1 << (bits - 1),
        Size::Largest => i64::MAX >> (64 - bits),
        Size::Smallest => noise.signum() as i64,
    };
    match ty {
        GgmlType::F32 => out.copy_from_slice(&float.to_le_bytes()),
        GgmlType::F16 => out.copy_from_slice(&f16::from_f32(float).to_le_bytes()),
        GgmlType::BF16 => out.copy_from_slice(&bf16::from_f32(float).to_le_bytes()),
        // Not a number that f32 has.
        GgmlType::F64 => out.copy_from_slice(&(f64::from(float) * (1.0 + 1e-9)).to_le_bytes()),
        _ => {
            let bits = 8 * out.len() as u32;
            out.copy_from_slice(&integer(bits).to_le_bytes()[..out.len()]);
        }
    }
}

fn random_block(ty: GgmlType, size: Size, random: &mut Random, out: &mut [u8]) {
    let Some(scales) = scales(ty) else {
        return number(ty, size, random, out);
    };
    random.fill(out);
    for scale in scales {
        scale.write(out, size, random);
    }
}

/// How many blocks with a maximum at an end a weight is made of, so that its rows differ.
const BLOCKS_WITH_MAXIMUM: usize = 16;
/// How many random blocks are searched for one with its maximum at an end.
const CANDIDATES: usize = 4096;

/// A random block whose largest value is its first or last, or the best of [`CANDIDATES`].
fn maximum_at(ty: GgmlType, last: bool, random: &mut Random) -> Vec<u8> {
    let mut block = vec![0; ty.block_bytes()];
    let mut best = (f32::NEG_INFINITY, Vec::new());
    for _ in 0..CANDIDATES {
        random_block(ty, Size::Usual, random, &mut block);
        let values = oracle::decode(ty, &block);
        let most = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let end = values[if last { values.len() - 1 } else { 0 }].abs();
        let share = if most > 0.0 { end / most } else { 0.0 };
        if share > best.0 {
            best = (share, block.clone());
        }
        if share >= 1.0 {
            break;
        }
    }
    best.1
}

/// `rows` rows of `cols` values (whole blocks) of a type with a decoder, `None` if the pattern is
/// [`Quantized`](Pattern::Quantized) and the type has no quantizer.
pub fn blocks(
    ty: GgmlType,
    rows: usize,
    cols: usize,
    pattern: Pattern,
    seed: u64,
) -> Option<Vec<u8>> {
    let mut random = Random::new(seed);
    let row_bytes = ty.row_bytes(cols).expect("whole blocks");
    let mut out = vec![0; rows * row_bytes];
    let size = match pattern {
        Pattern::Quantized => {
            return quantized(ty, &random.floats(rows * cols), cols, out);
        }
        Pattern::LargestScale => Size::Largest,
        Pattern::SmallestScale => Size::Smallest,
        _ => Size::Usual,
    };
    let ends: Vec<_> = match pattern {
        Pattern::MaximumAtEnds => (0..BLOCKS_WITH_MAXIMUM)
            .map(|i| maximum_at(ty, i % 2 == 1, &mut random))
            .collect(),
        _ => Vec::new(),
    };
    let per_row = cols / ty.block_len();
    for (i, block) in out.chunks_exact_mut(ty.block_bytes()).enumerate() {
        match pattern {
            Pattern::MaximumAtEnds => {
                let pick = 2 * random.below(ends.len() / 2) + i % 2;
                block.copy_from_slice(&ends[pick]);
            }
            Pattern::ZeroBlocks if i % 3 == 2 || i / per_row == 1 => {}
            _ => random_block(ty, size, &mut random, block),
        }
    }
    Some(out)
}

fn quantized(ty: GgmlType, values: &[f32], cols: usize, mut out: Vec<u8>) -> Option<Vec<u8>> {
    if !quantize::is_writable(ty) {
        return None;
    }
    let uniform = vec![1.0; cols];
    let importance = match quantize::importance(ty) {
        Some(Importance::Required) => Some(&uniform[..]),
        _ => None,
    };
    quantize::quantize(ty, values, cols, importance, &mut out)
        .expect("finite rows of whole blocks");
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_gguf_kernels::blocks::IMPLEMENTED;

    #[test]
    fn every_pattern_of_every_type_decodes_to_finite_values() {
        for &ty in IMPLEMENTED {
            let cols = 3 * ty.block_len();
            for pattern in Pattern::ALL {
                let Some(bytes) = blocks(ty, 2, cols, pattern, 1) else {
                    assert_eq!(pattern, Pattern::Quantized, "{ty}");
                    continue;
                };
                let values = oracle::decode(ty, &bytes);
                assert!(values.iter().all(|v| v.is_finite()), "{ty} {pattern}");
                let zero = values.iter().all(|&v| v == 0.0);
                assert!(!zero, "{ty} {pattern}: nothing but zeros");
                if pattern == Pattern::ZeroBlocks {
                    assert!(values[2 * ty.block_len()..].iter().all(|&v| v == 0.0));
                }
            }
        }
    }

    /// A scale written elsewhere than where the decoder reads it would leave the values as they are.
    #[test]
    fn extreme_scales_reach_the_values() {
        let largest = |ty, pattern| {
            let bytes = blocks(ty, 1, 4 * ty.block_len(), pattern, 2).unwrap();
            let values = oracle::decode(ty, &bytes);
            values.iter().fold(0f32, |m, v| m.max(v.abs()))
        };
        for &ty in IMPLEMENTED.iter().filter(|&&ty| scales(ty).is_some()) {
            let usual = largest(ty, Pattern::Random);
            let large = largest(ty, Pattern::LargestScale);
            let small = largest(ty, Pattern::SmallestScale);
            assert!(large > 30.0 * usual, "{ty}: {large} beside {usual}");
            assert!(small < usual / 30.0, "{ty}: {small} beside {usual}");
        }
    }

    #[test]
    fn maxima_lie_at_the_ends() {
        for &ty in IMPLEMENTED.iter().filter(|ty| ty.block_len() > 1) {
            let bytes = blocks(ty, 1, 2 * ty.block_len(), Pattern::MaximumAtEnds, 3).unwrap();
            let values = oracle::decode(ty, &bytes);
            for (block, at) in values
                .chunks_exact(ty.block_len())
                .zip([0, ty.block_len() - 1])
            {
                let most = block.iter().fold(0f32, |m, v| m.max(v.abs()));
                assert_eq!(block[at].abs(), most, "{ty}");
            }
        }
    }
}
