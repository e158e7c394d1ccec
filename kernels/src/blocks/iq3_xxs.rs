//! `IQ3_XXS`: 256 values in groups of four, each a point of a codebook of 256 with signs, 98 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..66 | `qs` | point of group `g` |
//! | 66..98 | `signs` | a `u32` for each sub-block of 32: seven sign bits for each eight values from bit 0 up (the eighth makes the count of negative values even), scale `s` in bits 28..32 |
//!
//! `value = d * (s + 1/2) / 2 * sign * magnitude`, magnitudes as in the codebook.

use super::codebook::{IQ3_XXS, apply_signs, even_parity};
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::lattice::{LatticeSearch, Refit, Start, scale_steps};
use crate::quantize::rounding::write_f16;
use crate::quantize::{Importance, QuantizeBlock, blocks_of, neighbours};

/// The block type `IQ3_XXS`.
pub struct IQ3XXS;

const LEN: usize = 256;
const BYTES: usize = 2 + LEN / 4 + LEN / 8;
const _: () =
    assert!(BYTES == GgmlType::IQ3XXS.block_bytes() && LEN == GgmlType::IQ3XXS.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for IQ3XXS {
    const TYPE: GgmlType = GgmlType::IQ3XXS;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ3XXS {
    const CODE_BITS: u32 = 7;
    const OFFSET: i32 = 62;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        let subs = codes[..LEN].chunks_exact_mut(32).zip(&mut scales[..8]);
        for (sub, (codes, scale)) in subs.enumerate() {
            let qs = head::<8>(&block[2 + 8 * sub..]);
            let packed = u32::from_le_bytes(*head(&block[66 + 4 * sub..]));
            *scale = d * (0.5 + (packed >> 28) as f32) * 0.5;
            for (i, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let [low, high] = [0, 1].map(|j| IQ3_XXS.grid[usize::from(qs[2 * i + j])]);
                let signs = even_parity((packed >> (7 * i)) as u8 & 127);
                *codes = apply_signs::<62>(u64::from(low) | u64::from(high) << 32, signs);
            }
        }
    }
}

const SEARCH: LatticeSearch<4, 8> = LatticeSearch {
    book: neighbours::iq3_xxs,
    tries: 15,
    step: 0.2,
    start: Start::Largest,
    refit: Refit::Missed,
    even_signs: true,
    least: 1e-8,
    variance: 2.0,
    unweighted: Some(|_, square| square),
};

/// What the scale is multiplied by at last; found by experiment.
const SCALE_CORRECTION: f32 = 1.0125;

impl QuantizeBlock for IQ3XXS {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            block.fill(0);
            let subs = SEARCH.sub_blocks::<8, 32>(x, importance);
            let Some((d, steps)) = scale_steps(&subs) else {
                continue;
            };
            write_f16(block, d * SCALE_CORRECTION);
            let (qs, packed) = block[2..].split_at_mut(LEN / 4);
            let fields = qs
                .as_chunks_mut::<8>()
                .0
                .iter_mut()
                .zip(packed.as_chunks_mut().0);
            for ((qs, packed), (sub, step)) in fields.zip(subs.iter().zip(steps)) {
                *qs = sub.points.map(|point| point as u8);
                let signs = (0..4).map(|i| u32::from(sub.signs_of(i) & 127) << (7 * i));
                *packed = signs
                    .fold(u32::from(step) << 28, |all, signs| all | signs)
                    .to_le_bytes();
            }
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::iq2_xxs::device::complete_signs;
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
        let qs = run_at(words, block + 2 + part * 4, 1usize);
        let sub = run_at(words, block + 66 + part / 2 * 4, 1usize);
        let d = half_to_f32(u16_at(words, block));
        let scale = d * (f32::cast_from(sub[0] >> 28) + 0.5) * 0.5;
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4u32 {
            let index = (qs[0] >> comptime!(8 * q)) & 0xff;
            let l = u32::cast_from(part % 2) * 2 + comptime!(q / 2);
            let signs = complete_signs(sub[0] >> (l * 7)) >> comptime!(q % 2 * 4);
            let magnitudes = codebook[usize::cast_from(index)];
            codes.push(sign_bytes(magnitudes, bits_to_bytes(signs), 62u32), scale);
        }
        codes
    }
}
