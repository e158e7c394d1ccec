//! `IQ1_S`: 256 values in groups of eight, each a point of a codebook of 2048, 50 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..34 | `qs` | bits 0..8 of the point of group `g` |
//! | 34..50 | `qh` | a `u16` for each sub-block of 32: bits 8..11 of the points of its four groups from bit 0 up, scale `s` in bits 12..15, bit 15 says that the shift is negative |
//!
//! `value = d * (2 s + 1) * (t ± 1/8)` with `t` in -1, 0, 1 from the codebook.

use super::codebook::IQ1;
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head, read_f16};
use crate::GgmlType;
use crate::quantize::lattice::step;
use crate::quantize::rounding::write_f16;
use crate::quantize::ternary::{self, SubBlock};
use crate::quantize::weights::{mean_square, weigh};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `IQ1_S`.
pub struct IQ1S;

const LEN: usize = 256;
const BYTES: usize = 2 + LEN / 8 + LEN / 32 * 2;
const _: () = assert!(BYTES == GgmlType::IQ1S.block_bytes() && LEN == GgmlType::IQ1S.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

/// What `t` is shifted by, up or down.
pub(super) const SHIFT: f32 = 0.125;

impl BlockType for IQ1S {
    const TYPE: GgmlType = GgmlType::IQ1S;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales, mut mins) = ([0; LEN], [0.0; 8], [0.0; 8]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut mins);
        let qh = head::<BYTES>(block)[34..].as_chunks::<2>().0;
        let subs = out[..LEN].chunks_exact_mut(32).zip(codes.chunks_exact(32));
        for (((out, codes), scale), qh) in subs.zip(scales).zip(qh) {
            // Not `scale * code - min`, which is the same but for the sign of a zero.
            let shift = if qh[1] & 0x80 == 0 { SHIFT } else { -SHIFT };
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = scale * (f32::from(code) - 1.0 + shift);
            }
        }
    }
}

impl CodeBlock for IQ1S {
    const CODE_BITS: u32 = 2;
    const OFFSET: i32 = 0;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        let (scales, mins) = (&mut scales[..8], &mut mins[..8]);
        for (sub, codes) in codes[..LEN].chunks_exact_mut(32).enumerate() {
            let qs = head::<4>(&block[2 + 4 * sub..]);
            let qh = u16::from_le_bytes(*head(&block[34 + 2 * sub..]));
            scales[sub] = d * f32::from(2 * (qh >> 12 & 7) + 1);
            mins[sub] = scales[sub]
                * if qh >> 15 == 0 {
                    1.0 - SHIFT
                } else {
                    1.0 + SHIFT
                };
            for (group, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let point = usize::from(qs[group]) | usize::from(qh >> (3 * group) & 7) << 8;
                *codes = IQ1.grid[point].to_le_bytes();
            }
        }
    }
}

/// What the scale is multiplied by at last; found by experiment.
const SCALE_CORRECTION: f32 = 1.125;

/// Sub-blocks of no larger magnitude have the scale zero.
const LEAST: f32 = 1e-12;

impl QuantizeBlock for IQ1S {
    const IMPORTANCE: Importance = Importance::Required;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            let importance = importance.expect("importance, which is required");
            block.fill(0);
            let variance = 2.0 * mean_square(x);
            let mut subs = [SubBlock::default(); 8];
            for (i, (sub, x)) in subs.iter_mut().zip(x.as_chunks::<32>().0).enumerate() {
                let weights = weigh(&importance[32 * i..], x, variance);
                *sub = ternary::fit_one_shift(x, &weights, LEAST).unwrap_or_default();
            }
            let max = ternary::largest_scale(&subs);
            let d = max / 15.0;
            if max > 0.0 {
                write_f16(block, d * SCALE_CORRECTION);
            }
            for (i, sub) in subs.iter().enumerate() {
                let mut qh = 0;
                for (g, point) in sub.points.into_iter().enumerate() {
                    block[2 + 4 * i + g] = point as u8;
                    qh |= point >> 8 << (3 * g);
                }
                if max > 0.0 {
                    let step = step(1.0 / d, sub.scale, 7);
                    qh |= u16::from(step) << 12 | u16::from(sub.down[0]) << 15;
                }
                block[34 + 2 * i..][..2].copy_from_slice(&qh.to_le_bytes());
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
        words::{half_to_f32, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`, as codes `8 grid +- 1 + 9`.
    #[cube]
    pub(crate) fn unpack_part(
        words: &[u32],
        codebook: &[u32],
        block: usize,
        part: usize,
    ) -> PartCodes {
        let qs = u16_at(words, block + 2 + part * 2);
        let qh = u16_at(words, block + 34 + part / 2 * 2);
        let d = half_to_f32(u16_at(words, block));
        let scale = d * f32::cast_from(((qh >> 12) & 7) * 2 + 1) * 0.125;
        let mut codes = PartCodes::new();
        #[unroll]
        for h in 0..2u32 {
            let low = (qs >> comptime!(8 * h)) & 0xff;
            let high = (qh >> (u32::cast_from(part % 2) * 6 + comptime!(3 * h))) & 7;
            push_eight(&mut codes, codebook, low | (high << 8), qh >> 15, scale);
        }
        codes
    }

    /// Two quads from entry `index` of the grid, shifted down by an eighth if `down` is 1 and up if it is 0.
    #[cube]
    pub(crate) fn push_eight(
        codes: &mut PartCodes,
        codebook: &[u32],
        index: u32,
        down: u32,
        scale: f32,
    ) {
        let entry = usize::cast_from(index) * 2;
        let shift = (1 - down) * 0x0202_0202;
        #[unroll]
        for i in 0..2usize {
            // The codebook has 0, 1 and 2 for -1, 0 and 1.
            codes.push((codebook[entry + i] << 3) + shift, scale);
        }
    }
}
