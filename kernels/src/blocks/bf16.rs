//! `BF16`: one little-endian bfloat16, the upper half of an `f32`, per block.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;

/// The block type `BF16`.
pub struct BF16;

const BYTES: usize = 2;
const _: () = assert!(BYTES == GgmlType::BF16.block_bytes());

impl BlockType for BF16 {
    const TYPE: GgmlType = GgmlType::BF16;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from_bits(u32::from(u16::from_le_bytes(*head::<BYTES>(block))) << 16);
    }
}

impl FloatBlock for BF16 {}
