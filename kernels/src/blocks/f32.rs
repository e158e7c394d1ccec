//! `F32`: one little-endian `f32` per block.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;

/// The block type `F32`.
pub struct F32;

const BYTES: usize = 4;
const _: () = assert!(BYTES == GgmlType::F32.block_bytes());

impl BlockType for F32 {
    const TYPE: GgmlType = GgmlType::F32;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from_le_bytes(*head::<BYTES>(block));
    }
}

impl FloatBlock for F32 {}
