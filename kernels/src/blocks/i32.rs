//! `I32`: one little-endian `i32` per block, decoded to the nearest `f32`.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;

/// The block type `I32`.
pub struct I32;

const BYTES: usize = 4;
const _: () = assert!(BYTES == GgmlType::I32.block_bytes());

impl BlockType for I32 {
    const TYPE: GgmlType = GgmlType::I32;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = i32::from_le_bytes(*head::<BYTES>(block)) as f32;
    }
}

impl FloatBlock for I32 {}
