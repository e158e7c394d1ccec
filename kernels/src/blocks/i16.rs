//! `I16`: one little-endian `i16` per block, decoded exactly.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;

/// The block type `I16`.
pub struct I16;

const BYTES: usize = 2;
const _: () = assert!(BYTES == GgmlType::I16.block_bytes());

impl BlockType for I16 {
    const TYPE: GgmlType = GgmlType::I16;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from(i16::from_le_bytes(*head::<BYTES>(block)));
    }
}

impl FloatBlock for I16 {}
