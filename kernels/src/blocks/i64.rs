//! `I64`: one little-endian `i64` per block, decoded to the nearest `f32`.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;

/// The block type `I64`.
pub struct I64;

const BYTES: usize = 8;
const _: () = assert!(BYTES == GgmlType::I64.block_bytes());

impl BlockType for I64 {
    const TYPE: GgmlType = GgmlType::I64;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = i64::from_le_bytes(*head::<BYTES>(block)) as f32;
    }
}

impl FloatBlock for I64 {}
