//! `IQ4_NL`: 32 values of 4 bits that index a table of unevenly spaced values, and one scale, 18 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..18 | `qs` | value `i` in the low nibble of byte `i`, value `i + 16` in its high nibble, `i < 16` |
//!
//! `value = d * table[q]`; codes are `table[q] + 128`.

use super::codebook::IQ4;
use super::{BlockType, CodeBlock, centered, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{inverse, write_f16};
use crate::quantize::weights::mean_square;
use crate::quantize::{Importance, QuantizeBlock, blocks_of, table};

/// The block type `IQ4_NL`.
pub struct IQ4NL;

const LEN: usize = 32;
const BYTES: usize = 2 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::IQ4NL.block_bytes() && LEN == GgmlType::IQ4NL.block_len());

/// 32 codes from 16 bytes, low nibbles before high nibbles.
#[inline(always)]
pub(super) fn unpack_table_nibbles(qs: &[u8; LEN / 2], codes: &mut [u8]) {
    let code = |nibble: u8| IQ4[usize::from(nibble)] as u8 ^ 0x80;
    let (low, high) = codes[..LEN].split_at_mut(LEN / 2);
    for ((byte, low), high) in qs.iter().zip(low).zip(high) {
        *low = code(byte & 15);
        *high = code(byte >> 4);
    }
}

impl BlockType for IQ4NL {
    const TYPE: GgmlType = GgmlType::IQ4NL;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        centered::dequantize::<Self>(block, out);
    }
}

impl CodeBlock for IQ4NL {
    const CODE_BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = read_f16(block);
        unpack_table_nibbles(head(&block[2..]), codes);
    }
}

impl QuantizeBlock for IQ4NL {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, importance, block) in blocks_of::<Self>(values, importance, out) {
            let variance = 2.0 * mean_square(x);
            let x = x.first_chunk().expect("a whole block");
            let d = table::fit(x, &table::weights(x, importance, variance));
            write_f16(block, d);
            block[2..].copy_from_slice(&table::round(x, inverse(d)));
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::GgmlType;
    use crate::blocks::codebook::grid_words;
    use crate::cube::{
        part::PartCodes,
        words::{half_to_f32, run_at, u16_at},
    };

    /// Values `8 part + {0..8, 16..24}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let scale = half_to_f32(u16_at(words, block));
        let qs = run_at(words, block + 2 + part * 8, 2usize);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push(
                look_up(qs[comptime!(q % 2)] >> comptime!(4 * (q as u32 / 2))),
                scale,
            );
        }
        codes
    }

    /// The code of the low nibble of each byte.
    #[cube]
    pub(crate) fn look_up(nibbles: u32) -> u32 {
        let table = comptime!(grid_words(GgmlType::IQ4NL).unwrap());
        let mut codes = 0u32;
        #[unroll]
        for i in 0..4u32 {
            let nibble = nibbles >> comptime!(8 * i);
            let odd = nibble & 4 != 0;
            let low = select(
                odd,
                comptime!(table[1]).runtime(),
                comptime!(table[0]).runtime(),
            );
            let high = select(
                odd,
                comptime!(table[3]).runtime(),
                comptime!(table[2]).runtime(),
            );
            let word = select(nibble & 8 != 0, high, low);
            codes |= ((word >> ((nibble & 3) * 8)) & 0xff) << comptime!(8 * i);
        }
        codes
    }
}
