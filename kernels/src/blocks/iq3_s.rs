//! `IQ3_S`: 256 values in groups of four, each a point of a codebook of 512 with signs, 110 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..66 | `qs` | bits 0..8 of the point of group `g` |
//! | 66..74 | `qh` | bit 8 of the point of group `g` in bit `g % 8` of byte `g / 8` |
//! | 74..106 | `signs` | bit `i % 8` of byte `i / 8`: value `i` is negative |
//! | 106..110 | `scales` | 4-bit scale `s` of sub-block `j` of 32, even `j` in the low nibble of byte `j / 2` |
//!
//! `value = d * (2 s + 1) * sign * magnitude`, magnitudes as in the codebook.

use super::codebook::{IQ3_S, apply_signs};
use super::iq2_xs::pack_nibbles;
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::lattice::{LatticeSearch, Refit, Start, scale_steps};
use crate::quantize::rounding::write_f16;
use crate::quantize::{Importance, QuantizeBlock, blocks_of, neighbours};

/// The block type `IQ3_S`.
pub struct IQ3S;

const LEN: usize = 256;
const BYTES: usize = 2 + LEN / 4 + LEN / 32 + LEN / 8 + LEN / 64;
const _: () = assert!(BYTES == GgmlType::IQ3S.block_bytes() && LEN == GgmlType::IQ3S.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for IQ3S {
    const TYPE: GgmlType = GgmlType::IQ3S;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ3S {
    const CODE_BITS: u32 = 5;
    const OFFSET: i32 = 15;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        for (pair, byte) in scales[..8]
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(&block[106..])
        {
            *pair = [byte & 15, byte >> 4].map(|s| d * f32::from(2 * s + 1));
        }
        for (i, codes) in codes[..LEN].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let ninth = usize::from(block[66 + i / 4]) >> (2 * (i % 4));
            let [low, high] = [0, 1].map(|j| {
                let point = usize::from(block[2 + 2 * i + j]) | (ninth >> j & 1) << 8;
                u64::from(IQ3_S.grid[point])
            });
            *codes = apply_signs::<15>(low | high << 32, block[74 + i]);
        }
    }
}

const SEARCH: LatticeSearch<4, 8> = LatticeSearch {
    book: neighbours::iq3_s,
    tries: 9,
    step: 0.2,
    start: Start::Largest,
    refit: Refit::AllIfMissed,
    even_signs: false,
    // The least number there is: only zeros are below it.
    least: f32::from_bits(1),
    variance: 2.0,
    unweighted: Some(|_, square| square),
};

/// What the scale is multiplied by at last; found by experiment.
const SCALE_CORRECTION: f32 = 1.033;

impl QuantizeBlock for IQ3S {
    const IMPORTANCE: Importance = Importance::Optional;

    /// As ggml, but for a sub-block of zeros before others in a block: ggml then stores the points and signs of the
    /// others one place too early, where its decoder does not look for them.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            block.fill(0);
            let subs = SEARCH.sub_blocks::<8, 32>(x, importance);
            if let Some((d, steps)) = scale_steps(&subs) {
                write_f16(block, d * SCALE_CORRECTION);
                pack_nibbles(&steps, &mut block[106..]);
            }
            for (i, sub) in subs.iter().enumerate() {
                for (g, point) in sub.points.into_iter().enumerate() {
                    let [low, high] = point.to_le_bytes();
                    block[2 + 8 * i + g] = low;
                    block[66 + i] |= high << g;
                }
                block[74 + 4 * i..][..4].copy_from_slice(&sub.signs.to_le_bytes());
            }
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{
        part::PartCodes,
        words::{bits_to_bytes, half_to_f32, run_at, sign_bytes, u8_at, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(
        words: &[u32],
        codebook: &[u32],
        block: usize,
        part: usize,
    ) -> PartCodes {
        let qs = run_at(words, block + 2 + part * 4, 1usize);
        let qh = u8_at(words, block + 66 + part / 2) >> (u32::cast_from(part % 2) * 4);
        let signs = u16_at(words, block + 74 + part * 2);
        let packed = u8_at(words, block + 106 + part / 4) >> (u32::cast_from(part / 2 % 2) * 4);
        let d = half_to_f32(u16_at(words, block));
        let scale = d * f32::cast_from((packed & 15) * 2 + 1);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4u32 {
            let low = (qs[0] >> comptime!(8 * q)) & 0xff;
            let high = (qh >> comptime!(q)) & 1;
            let magnitudes = codebook[usize::cast_from(low | (high << 8))];
            let signs = bits_to_bytes(signs >> comptime!(4 * q));
            codes.push(sign_bytes(magnitudes, signs, 15u32), scale);
        }
        codes
    }
}
