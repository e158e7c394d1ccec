//! `I8`: one `i8` per block, decoded exactly.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;

/// The block type `I8`.
pub struct I8;

const BYTES: usize = 1;
const _: () = assert!(BYTES == GgmlType::I8.block_bytes());

impl BlockType for I8 {
    const TYPE: GgmlType = GgmlType::I8;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from(i8::from_le_bytes(*head::<BYTES>(block)));
    }
}

impl FloatBlock for I8 {}
