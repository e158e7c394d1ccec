//! `IQ2_S`: 256 values in groups of eight, each a point of a codebook of 1024 with signs, 82 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..34 | `qs` | bits 0..8 of the point of group `g` |
//! | 34..66 | `signs` | bit `i` of byte `g`: value `i` of group `g` is negative |
//! | 66..74 | `qh` | bits 8..10 of the point of group `g` in bits `2 (g % 4)..` of byte `g / 4` |
//! | 74..82 | `scales` | 4-bit scale `s` of sub-block `j` of 16, even `j` in the low nibble of byte `j / 2` |
//!
//! `value = d * (s + 1/2) / 4 * sign * magnitude`, magnitudes as in the codebook.

use super::codebook::{IQ2_S, apply_signs};
use super::iq2_xs::{pack_nibbles, unpack_nibble_scales};
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::lattice::{LatticeSearch, Refit, Start, scale_steps};
use crate::quantize::rounding::write_f16;
use crate::quantize::{Importance, QuantizeBlock, blocks_of, neighbours};

/// The block type `IQ2_S`.
pub struct IQ2S;

const LEN: usize = 256;
const BYTES: usize = 2 + LEN / 8 + LEN / 8 + LEN / 32 + LEN / 32;
const _: () = assert!(BYTES == GgmlType::IQ2S.block_bytes() && LEN == GgmlType::IQ2S.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for IQ2S {
    const TYPE: GgmlType = GgmlType::IQ2S;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ2S {
    const CODE_BITS: u32 = 7;
    const OFFSET: i32 = 43;
    const SUB_LEN: usize = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        unpack_nibble_scales(read_f16(block), head(&block[74..]), scales);
        let (qs, signs) = (head::<32>(&block[2..]), head::<32>(&block[34..]));
        for (g, codes) in codes[..LEN].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let high = block[66 + g / 4] >> (2 * (g % 4)) & 3;
            let point = usize::from(qs[g]) | usize::from(high) << 8;
            *codes = apply_signs::<43>(IQ2_S.grid[point], signs[g]);
        }
    }
}

const SEARCH: LatticeSearch<8, 3> = LatticeSearch {
    book: neighbours::iq2_s,
    tries: 9,
    step: 0.1,
    start: Start::Largest,
    refit: Refit::Missed,
    even_signs: false,
    least: 1e-8,
    variance: 2.0,
    unweighted: Some(|variance, square| 0.25 * variance + square),
};

/// What the scale is multiplied by at last; found by experiment.
const SCALE_CORRECTION: f32 = 0.9875;

impl QuantizeBlock for IQ2S {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            block.fill(0);
            let subs = SEARCH.sub_blocks::<16, 16>(x, importance);
            if let Some((d, steps)) = scale_steps(&subs) {
                write_f16(block, d * SCALE_CORRECTION);
                pack_nibbles(&steps, &mut block[74..]);
            }
            for g in 0..LEN / 8 {
                let sub = &subs[g / 2];
                let [low, high] = sub.points[g % 2].to_le_bytes();
                block[2 + g] = low;
                block[34 + g] = sub.signs_of(g % 2);
                block[66 + g / 4] |= high << (2 * (g % 4));
            }
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::{iq2_xs::device::sub_scale, iq2_xxs::device::push_eight};
    use crate::cube::{
        part::PartCodes,
        words::{half_to_f32, u8_at, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`: a sub-block.
    #[cube]
    pub(crate) fn unpack_part(
        words: &[u32],
        codebook: &[u32],
        block: usize,
        part: usize,
    ) -> PartCodes {
        let qs = u16_at(words, block + 2 + part * 2);
        let signs = u16_at(words, block + 34 + part * 2);
        let qh = u8_at(words, block + 66 + part / 2) >> (u32::cast_from(part % 2) * 4);
        let scale = half_to_f32(u16_at(words, block)) * sub_scale(words, block + 74, part);
        let mut codes = PartCodes::new();
        #[unroll]
        for h in 0..2u32 {
            let low = (qs >> comptime!(8 * h)) & 0xff;
            let high = (qh >> comptime!(2 * h)) & 3;
            push_eight(
                &mut codes,
                codebook,
                low | (high << 8),
                signs >> comptime!(8 * h),
                scale,
            );
        }
        codes
    }
}
