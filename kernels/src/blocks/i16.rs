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

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::words::{Quad, run_at_clamped};

    /// The 16 values at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize) -> Sequence<Quad> {
        let run = run_at_clamped(words, block, 8usize);
        let mut quads = Sequence::<Quad>::new();
        #[unroll]
        for q in 0..4usize {
            let mut quad = Quad::empty();
            #[unroll]
            for i in 0..2usize {
                // Flipping the sign bit turns a signed half word into it plus 32768.
                let pair = run[comptime!(2 * q + i)] ^ 0x8000_8000;
                quad.insert(comptime!(2 * i), f32::cast_from(pair & 0xffff) - 32768.0);
                quad.insert(comptime!(2 * i + 1), f32::cast_from(pair >> 16) - 32768.0);
            }
            quads.push(quad);
        }
        quads
    }
}
