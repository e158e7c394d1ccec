//! `IQ2_XS`: 256 values in groups of eight, each a point of a codebook of 512 with signs, 74 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..66 | `qs` | 32 `u16`, one per group: point in bits 0..9, seven sign bits in 9..16 (see `IQ2_XXS`) |
//! | 66..74 | `scales` | 4-bit scale `s` of sub-block `j` of 16, even `j` in the low nibble of byte `j / 2` |
//!
//! `value = d * (s + 1/2) / 4 * sign * magnitude`, magnitudes as in the codebook.

use super::codebook::{IQ2_XS, apply_signs, even_parity};
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::lattice::{LatticeSearch, Refit, Start, scale_steps};
use crate::quantize::rounding::write_f16;
use crate::quantize::{Importance, QuantizeBlock, blocks_of, neighbours};

/// The block type `IQ2_XS`.
pub struct IQ2XS;

const LEN: usize = 256;
const BYTES: usize = 2 + LEN / 8 * 2 + LEN / 32;
const _: () = assert!(BYTES == GgmlType::IQ2XS.block_bytes() && LEN == GgmlType::IQ2XS.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

/// The 16 scales that `IQ2_XS` and `IQ2_S` keep as nibbles, with `d` applied.
#[inline(always)]
pub(super) fn unpack_nibble_scales(d: f32, nibbles: &[u8; 8], scales: &mut [f32]) {
    for (pair, byte) in scales[..16].as_chunks_mut::<2>().0.iter_mut().zip(nibbles) {
        *pair = [byte & 15, byte >> 4].map(|s| d * (0.5 + f32::from(s)) * 0.25);
    }
}

/// Two 4-bit codes to a byte, the first in the low nibble.
pub(super) fn pack_nibbles(codes: &[u8], nibbles: &mut [u8]) {
    for (byte, pair) in nibbles.iter_mut().zip(codes.as_chunks::<2>().0) {
        *byte = pair[0] | pair[1] << 4;
    }
}

impl BlockType for IQ2XS {
    const TYPE: GgmlType = GgmlType::IQ2XS;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ2XS {
    const CODE_BITS: u32 = 7;
    const OFFSET: i32 = 43;
    const SUB_LEN: usize = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        unpack_nibble_scales(read_f16(block), head(&block[66..]), scales);
        let qs = block[2..66].as_chunks::<2>().0;
        for (codes, qs) in codes[..LEN].as_chunks_mut::<8>().0.iter_mut().zip(qs) {
            let qs = u16::from_le_bytes(*qs);
            let magnitudes = IQ2_XS.grid[usize::from(qs & 511)];
            *codes = apply_signs::<43>(magnitudes, even_parity((qs >> 9) as u8));
        }
    }
}

const SEARCH: LatticeSearch<8, 3> = LatticeSearch {
    book: neighbours::iq2_xs,
    tries: 9,
    step: 0.1,
    start: Start::Largest,
    refit: Refit::Missed,
    even_signs: true,
    least: 1e-15,
    variance: 1.0,
    unweighted: None,
};

impl QuantizeBlock for IQ2XS {
    const IMPORTANCE: Importance = Importance::Required;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            block.fill(0);
            let subs = SEARCH.sub_blocks::<16, 16>(x, importance);
            let Some((d, steps)) = scale_steps(&subs) else {
                continue;
            };
            write_f16(block, d);
            pack_nibbles(&steps, &mut block[66..]);
            for (sub, qs) in subs.iter().zip(block[2..66].as_chunks_mut::<4>().0) {
                for (group, qs) in qs.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let signs = u16::from(sub.signs_of(group) & 127);
                    *qs = (sub.points[group] | signs << 9).to_le_bytes();
                }
            }
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::iq2_xxs::device::{complete_signs, push_eight};
    use crate::cube::{
        part::PartCodes,
        words::{half_to_f32, run_at, u8_at, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`: a sub-block.
    #[cube]
    pub(crate) fn unpack_part(
        words: &[u32],
        codebook: &[u32],
        block: usize,
        part: usize,
    ) -> PartCodes {
        let qs = run_at(words, block + 2 + part * 4, 1usize);
        let scale = half_to_f32(u16_at(words, block)) * sub_scale(words, block + 66, part);
        let mut codes = PartCodes::new();
        #[unroll]
        for h in 0..2u32 {
            let q = qs[0] >> comptime!(16 * h);
            push_eight(&mut codes, codebook, q & 511, complete_signs(q >> 9), scale);
        }
        codes
    }

    /// `(0.5 + scale) / 4` with nibble `part` of the scales at byte `scales`.
    #[cube]
    pub(crate) fn sub_scale(words: &[u32], scales: usize, part: usize) -> f32 {
        let nibble = u8_at(words, scales + part / 2) >> (u32::cast_from(part % 2) * 4);
        (f32::cast_from(nibble & 15) + 0.5) * 0.25
    }
}
