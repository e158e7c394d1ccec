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
