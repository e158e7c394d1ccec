//! `F16`: one little-endian IEEE half per block.

use super::{BlockType, FloatBlock, read_f16};
use crate::GgmlType;

/// The block type `F16`.
pub struct F16;

const _: () = assert!(GgmlType::F16.block_bytes() == 2);

impl BlockType for F16 {
    const TYPE: GgmlType = GgmlType::F16;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = read_f16(block);
    }
}

impl FloatBlock for F16 {}
