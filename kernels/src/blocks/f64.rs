//! `F64`: one little-endian `f64` per block, decoded to the nearest `f32` (an infinity where it is out of range).

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;

/// The block type `F64`.
pub struct F64;

const BYTES: usize = 8;
const _: () = assert!(BYTES == GgmlType::F64.block_bytes());

impl BlockType for F64 {
    const TYPE: GgmlType = GgmlType::F64;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = f64::from_le_bytes(*head::<BYTES>(block)) as f32;
    }
}

impl FloatBlock for F64 {}
