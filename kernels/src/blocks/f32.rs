//! `F32`: one little-endian `f32` per block.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;
use crate::quantize::{Importance, QuantizeBlock};

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
                quad.insert(i, f32::reinterpret(run[comptime!(4 * q + i)]));
            }
            quads.push(quad);
        }
        quads
    }
}

impl QuantizeBlock for F32 {
    const IMPORTANCE: Importance = Importance::Ignored;

    #[inline(always)]
    fn quantize_row(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        assert_eq!(out.len(), values.len() * 4);
        for (value, out) in values.iter().zip(out.as_chunks_mut().0) {
            *out = value.to_le_bytes();
        }
    }
}
