//! `IQ1_M`: 256 values in groups of eight, each a point of a codebook of 2048, 56 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..32 | `qs` | bits 0..8 of the point of group `g` |
//! | 32..48 | `qh` | nibble `g` (low ones first): bits 8..11 of the point of group `g`, bit 3 says that its shift is negative |
//! | 48..56 | `scales` | 4 `u16`; number `k` has the 3-bit scales `s` of sub-blocks `4 k..4 k + 4` of 16 from bit 0 up, and in bits 12..16 the bits `4 k..4 k + 4` of `d`, an `f16` |
//!
//! `value = d * (2 s + 1) * (t ± 1/8)` with `t` in -1, 0, 1 from the codebook. Codes are `8 t ± 1 + 9`.

use super::codebook::IQ1;
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::lattice::step;
use crate::quantize::neighbours;
use crate::quantize::ternary::{self, SubBlock};
use crate::quantize::weights::{mean_square, weigh};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `IQ1_M`.
pub struct IQ1M;

const LEN: usize = 256;
const BYTES: usize = LEN / 8 + LEN / 16 + LEN / 32;
const _: () = assert!(BYTES == GgmlType::IQ1M.block_bytes() && LEN == GgmlType::IQ1M.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for IQ1M {
    const TYPE: GgmlType = GgmlType::IQ1M;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ1M {
    const CODE_BITS: u32 = 5;
    const OFFSET: i32 = 9;
    const SUB_LEN: usize = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let packed = u64::from_le_bytes(*head(&block[48..]));
        let d = (0..4).fold(0, |d, k| d | (packed >> (16 * k + 12) & 15) << (4 * k));
        // An eighth, because codes are eight times the values. Exact: the smallest `f16` is far from the smallest `f32`.
        let d = read_f16(&(d as u16).to_le_bytes()) * 0.125;
        for (j, scale) in scales[..16].iter_mut().enumerate() {
            let s = packed >> (j / 4 * 16 + j % 4 * 3) & 7;
            *scale = d * (2 * s + 1) as f32;
        }
        for (g, codes) in codes[..LEN].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let nibble = block[32 + g / 2] >> (4 * (g % 2)) & 15;
            let point = usize::from(block[g]) | usize::from(nibble & 7) << 8;
            // The grid has t + 1, so this is 8 t + 8 and 0 or 2.
            let shift = u64::from_le_bytes([2 - (nibble >> 2 & 2); 8]);
            *codes = ((IQ1.grid[point] << 3) + shift).to_le_bytes();
        }
    }
}

/// What the scale is multiplied by at last; found by experiment.
const SCALE_CORRECTION: f32 = 1.1125;

/// Sub-blocks of no larger magnitude have the scale zero.
const LEAST: f32 = 1e-7;

impl QuantizeBlock for IQ1M {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            block.fill(0);
            let variance = 2.0 * mean_square(x);
            let x = x.as_chunks::<16>().0;
            let weights: [[f32; 16]; 16] = std::array::from_fn(|i| match importance {
                Some(importance) => weigh(&importance[16 * i..], &x[i], variance),
                None => x[i].map(|x| x * x),
            });
            let subs: [SubBlock; 16] = std::array::from_fn(|i| {
                ternary::fit_two_shifts(&x[i], &weights[i], LEAST).unwrap_or_default()
            });
            for (i, sub) in subs.iter().enumerate() {
                for g in 0..2 {
                    block[2 * i + g] = sub.points[g] as u8;
                    block[32 + i] |= ((sub.points[g] >> 8) as u8) << (4 * g);
                }
            }
            let max = ternary::largest_scale(&subs);
            if max > 0.0 {
                write_scales(x, &weights, &subs, max / 15.0, block);
            }
        }
    }
}

/// Writes shifts and scales; the common scale is fitted once more to the rounded ones.
#[inline(always)]
fn write_scales(
    x: &[[f32; 16]],
    weights: &[[f32; 16]; 16],
    subs: &[SubBlock; 16],
    mut d: f32,
    block: &mut [u8],
) {
    let inverse = 1.0 / d;
    let mut packed = 0u64;
    let (mut qx, mut q2) = (0.0, 0.0);
    for (i, sub) in subs.iter().enumerate() {
        let step = step(inverse, sub.scale, 7);
        packed |= u64::from(step) << (i / 4 * 16 + i % 4 * 3);
        for g in 0..2 {
            block[32 + i] |= u8::from(sub.down[g]) << (4 * g + 3);
            let scale = f32::from(2 * step + 1);
            ternary::add_products(
                neighbours::iq1(),
                sub.points[g],
                &ternary::levels(sub.down[g]).map(|q| q * scale),
                &x[i].as_chunks().0[g],
                &weights[i].as_chunks().0[g],
                &mut qx,
                &mut q2,
            );
        }
    }
    if q2 > 0.0 {
        d = qx / q2;
    }
    let d = u64::from(half::f16::from_f32_const(d * SCALE_CORRECTION).to_bits());
    for k in 0..4 {
        packed |= (d >> (4 * k) & 15) << (16 * k + 12);
    }
    block[48..].copy_from_slice(&packed.to_le_bytes());
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::iq1_s::device::push_eight;
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
        let qs = u16_at(words, block + part * 2);
        let qh = u8_at(words, block + 32 + part);
        let low = words[block / 4 + 12];
        let high = words[block / 4 + 13];
        let d = ((low >> 12) & 0x000f)
            | ((low >> 24) & 0x00f0)
            | ((high >> 4) & 0x0f00)
            | ((high >> 16) & 0xf000);
        let pair = select(part < 8, low, high);
        let shift = u32::cast_from(part / 4 % 2) * 16 + u32::cast_from(part % 4) * 3;
        let scale = half_to_f32(d) * f32::cast_from(((pair >> shift) & 7) * 2 + 1) * 0.125;
        let mut codes = PartCodes::new();
        #[unroll]
        for h in 0..2u32 {
            let bits = qh >> comptime!(4 * h);
            let index = ((qs >> comptime!(8 * h)) & 0xff) | ((bits & 7) << 8);
            push_eight(&mut codes, codebook, index, (bits >> 3) & 1, scale);
        }
        codes
    }
}
