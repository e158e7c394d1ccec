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

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::words::{Quad, run_at_clamped};

    /// The 16 values at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize) -> Sequence<Quad> {
        let run = run_at_clamped(words, block, 16usize);
        let mut quads = Sequence::<Quad>::new();
        #[unroll]
        for q in 0..4usize {
            let mut quad = Quad::empty();
            #[unroll]
            for i in 0..4usize {
                quad.insert(
                    i,
                    f32::cast_from(i32::reinterpret(run[comptime!(4 * q + i)])),
                );
            }
            quads.push(quad);
        }
        quads
    }
}
