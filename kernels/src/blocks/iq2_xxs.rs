//! `IQ2_XXS`: 256 values in groups of eight, each a point of a codebook of 256 with signs, 66 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..66 | `qs` | 8 bytes for each sub-block of 32 |
//!
//! The 8 bytes of a sub-block: points of its four groups, one byte each, then a `u32` with seven sign bits for each
//! group from bit 0 up (the eighth makes the count of negative values even) and the scale `s` in bits 28..32.
//!
//! `value = d * (s + 1/2) / 4 * sign * magnitude`, magnitudes as in the codebook.

use super::codebook::{IQ2_XXS, apply_signs, even_parity};
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::lattice::{LatticeSearch, Refit, Start, scale_steps};
use crate::quantize::rounding::write_f16;
use crate::quantize::{Importance, QuantizeBlock, blocks_of, neighbours};

/// The block type `IQ2_XXS`.
pub struct IQ2XXS;

const LEN: usize = 256;
const BYTES: usize = 2 + LEN / 4;
const _: () =
    assert!(BYTES == GgmlType::IQ2XXS.block_bytes() && LEN == GgmlType::IQ2XXS.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for IQ2XXS {
    const TYPE: GgmlType = GgmlType::IQ2XXS;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ2XXS {
    const CODE_BITS: u32 = 7;
    const OFFSET: i32 = 43;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        let subs = codes[..LEN].chunks_exact_mut(32).zip(&mut scales[..8]);
        for ((codes, scale), qs) in subs.zip(block[2..].as_chunks::<8>().0) {
            let packed = u32::from_le_bytes(*head(&qs[4..]));
            *scale = d * (0.5 + (packed >> 28) as f32) * 0.25;
            for (group, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let magnitudes = IQ2_XXS.grid[usize::from(qs[group])];
                let signs = even_parity((packed >> (7 * group)) as u8 & 127);
                *codes = apply_signs::<43>(magnitudes, signs);
            }
        }
    }
}

const SEARCH: LatticeSearch<8, 3> = LatticeSearch {
    book: neighbours::iq2_xxs,
    tries: 6,
    step: 0.1,
    start: Start::EvenSteps,
    refit: Refit::Always,
    even_signs: true,
    least: 1e-15,
    variance: 1.0,
    unweighted: None,
};

impl QuantizeBlock for IQ2XXS {
    const IMPORTANCE: Importance = Importance::Required;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            block.fill(0);
            let subs = SEARCH.sub_blocks::<8, 32>(x, importance);
            let Some((d, steps)) = scale_steps(&subs) else {
                continue;
            };
            write_f16(block, d);
            let all = block[2..].as_chunks_mut::<8>().0.iter_mut();
            for ((qs, sub), step) in all.zip(&subs).zip(steps) {
                let mut packed = u32::from(step) << 28;
                let (points, rest) = qs.split_at_mut(4);
                for (group, point) in points.iter_mut().enumerate() {
                    *point = sub.points[group] as u8;
                    packed |= u32::from(sub.signs_of(group) & 127) << (7 * group);
                }
                rest.copy_from_slice(&packed.to_le_bytes());
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
        words::{bits_to_bytes, half_to_f32, run_at, sign_bytes, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(
        words: &[u32],
        codebook: &[u32],
        block: usize,
        part: usize,
    ) -> PartCodes {
        let sub = run_at(words, block + 2 + part / 2 * 8, 2usize);
        let d = half_to_f32(u16_at(words, block));
        let scale = d * (f32::cast_from(sub[1] >> 28) + 0.5) * 0.25;
        let mut codes = PartCodes::new();
        #[unroll]
        for h in 0..2usize {
            let l = u32::cast_from(part % 2) * 2 + comptime!(h as u32);
            let signs = complete_signs(sub[1] >> (l * 7));
            push_eight(
                &mut codes,
                codebook,
                (sub[0] >> (l * 8)) & 0xff,
                signs,
                scale,
            );
        }
        codes
    }

    /// The low 7 bits with an eighth that makes their number even.
    #[cube]
    pub(crate) fn complete_signs(bits: u32) -> u32 {
        let bits = bits & 127;
        bits | ((bits.count_ones() & 1) << 7)
    }

    /// Two quads from entry `index` of a grid of 8 magnitudes; value `i` is negative where bit `i` of `signs` is set.
    #[cube]
    pub(crate) fn push_eight(
        codes: &mut PartCodes,
        codebook: &[u32],
        index: u32,
        signs: u32,
        scale: f32,
    ) {
        let entry = usize::cast_from(index) * 2;
        #[unroll]
        for i in 0..2usize {
            let signs = bits_to_bytes(signs >> comptime!(4 * i as u32));
            codes.push(sign_bytes(codebook[entry + i], signs, 43u32), scale);
        }
    }
}
