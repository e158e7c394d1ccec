//! `F16`: one little-endian IEEE half per block.

use super::{BlockType, FloatBlock, read_f16};
use crate::GgmlType;
use crate::quantize::{Importance, QuantizeBlock};
use half::slice::HalfFloatSliceExt;

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

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::words::{Quad, half_to_f32, run_at_clamped};

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
                quad.insert(comptime!(2 * i), half_to_f32(pair & 0xffff));
                quad.insert(comptime!(2 * i + 1), half_to_f32(pair >> 16));
            }
            quads.push(quad);
        }
        quads
    }
}

impl QuantizeBlock for F16 {
    const IMPORTANCE: Importance = Importance::Ignored;

    #[inline(always)]
    fn quantize_row(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        assert_eq!(out.len(), values.len() * 2);
        // By way of a buffer: the output may lie at any address, and a slice is converted by the CPU's instructions.
        let mut halves = [half::f16::ZERO; 256];
        for (values, out) in values.chunks(256).zip(out.chunks_mut(512)) {
            let halves = &mut halves[..values.len()];
            halves.convert_from_f32_slice(values);
            for (half, out) in halves.iter().zip(out.as_chunks_mut().0) {
                *out = half.to_le_bytes();
            }
        }
    }
}
