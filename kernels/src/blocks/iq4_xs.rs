//! `IQ4_XS`: 256 values of 4 bits that index the table of `IQ4_NL`, in 8 sub-blocks of 32, each with a 6-bit scale,
//! 136 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..4 | `scales_h` | bits 4..6 of the scale `s` of sub-block `j` in bits `2 j..` of a `u16` |
//! | 4..8 | `scales_l` | its bits 0..4, even `j` in the low nibble of byte `j / 2` |
//! | 8..136 | `qs` | 16 bytes for each sub-block, laid out as in `IQ4_NL` |
//!
//! `value = d * (s - 32) * table[q]`; codes are `table[q] + 128`.

use super::iq4_nl::unpack_table_nibbles;
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{inverse, largest, nearest, write_f16};
use crate::quantize::weights::mean_square;
use crate::quantize::{Importance, QuantizeBlock, blocks_of, table};

/// The block type `IQ4_XS`.
pub struct IQ4XS;

const LEN: usize = 256;
const BYTES: usize = 2 + 2 + LEN / 64 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::IQ4XS.block_bytes() && LEN == GgmlType::IQ4XS.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for IQ4XS {
    const TYPE: GgmlType = GgmlType::IQ4XS;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ4XS {
    const CODE_BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        let high = u16::from_le_bytes(*head(&block[2..]));
        let low = u32::from_le_bytes(*head(&block[4..]));
        let subs = codes[..LEN].chunks_exact_mut(32).zip(&mut scales[..8]);
        for (j, (codes, scale)) in subs.enumerate() {
            let s = low >> (4 * j) & 15 | u32::from(high >> (2 * j) & 3) << 4;
            *scale = d * (s as f32 - 32.0);
            unpack_table_nibbles(head(&block[8 + 16 * j..]), codes);
        }
    }
}

impl QuantizeBlock for IQ4XS {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            let variance = 2.0 * mean_square(x);
            let x = x.as_chunks::<32>().0;
            let scales: [f32; 8] = std::array::from_fn(|i| {
                let importance = importance.map(|all| &all[32 * i..]);
                table::fit(&x[i], &table::weights(&x[i], importance, variance))
            });
            // The scale farthest from zero becomes -32, which has no positive counterpart.
            let d = -largest(&scales) / 32.0;
            write_f16(block, d);
            let (mut low, mut high) = (0u32, 0u16);
            for (i, (x, qs)) in x.iter().zip(block[8..].as_chunks_mut().0).enumerate() {
                let step = nearest(inverse(d) * scales[i]).clamp(-32, 31);
                *qs = table::round(x, inverse(d * step as f32));
                let step = (step + 32) as u16;
                low |= u32::from(step & 15) << (4 * i);
                high |= (step >> 4) << (2 * i);
            }
            block[2..4].copy_from_slice(&high.to_le_bytes());
            block[4..8].copy_from_slice(&low.to_le_bytes());
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::iq4_nl::device::look_up;
    use crate::cube::{part::PartCodes, words::half_to_f32};

    /// Values `32 (part / 2) + 8 (part % 2) + {0..8, 16..24}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let header = words[block];
        let sub = u32::cast_from(part / 2);
        let low = (words[block + 1] >> (sub * 4)) & 15;
        let high = (header >> (sub * 2 + 16)) & 3;
        let scale = half_to_f32(header & 0xffff) * (f32::cast_from(low | (high << 4)) - 32.0);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            let qs = words[block + 2 + part * 2 + comptime!(q % 2)];
            codes.push(look_up(qs >> comptime!(4 * (q as u32 / 2))), scale);
        }
        codes
    }
}
