//! `BF16`: one little-endian bfloat16, the upper half of an `f32`, per block.

use super::{BlockType, FloatBlock, head};
use crate::GgmlType;
use crate::quantize::{Importance, QuantizeBlock};

/// The block type `BF16`.
pub struct BF16;

const BYTES: usize = 2;
const _: () = assert!(BYTES == GgmlType::BF16.block_bytes());

impl BlockType for BF16 {
    const TYPE: GgmlType = GgmlType::BF16;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from_bits(u32::from(u16::from_le_bytes(*head::<BYTES>(block))) << 16);
    }
}

impl FloatBlock for BF16 {}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::words::{Quad, bfloat_to_f32, run_at_clamped};

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
                let pair = run[comptime!(2 * q + i)];
                quad.insert(comptime!(2 * i), bfloat_to_f32(pair & 0xffff));
                quad.insert(comptime!(2 * i + 1), bfloat_to_f32(pair >> 16));
            }
            quads.push(quad);
        }
        quads
    }
}

impl QuantizeBlock for BF16 {
    const IMPORTANCE: Importance = Importance::Ignored;

    #[inline(always)]
    fn quantize_row(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        assert_eq!(out.len(), values.len() * 2);
        for (value, out) in values.iter().zip(out.as_chunks_mut().0) {
            *out = half::bf16::from_f32_const(*value).to_le_bytes();
        }
    }
}
