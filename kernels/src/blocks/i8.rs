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

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::words::{Quad, bytes_to_quad, run_at_clamped};

    /// The 16 values at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize) -> Sequence<Quad> {
        let run = run_at_clamped(words, block, 4usize);
        let mut quads = Sequence::<Quad>::new();
        #[unroll]
        for q in 0..4usize {
            quads.push(bytes_to_quad(run[q] ^ 0x8080_8080) - Quad::new(128.0));
        }
        quads
    }
}
