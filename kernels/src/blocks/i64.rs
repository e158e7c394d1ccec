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

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::words::{Quad, run_at_clamped};

    /// The 16 values at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize) -> Sequence<Quad> {
        let run = run_at_clamped(words, block, 32usize);
        let mut quads = Sequence::<Quad>::new();
        #[unroll]
        for q in 0..4usize {
            let mut quad = Quad::empty();
            #[unroll]
            for i in 0..4usize {
                let at = comptime!(8 * q + 2 * i);
                quad.insert(i, nearest(run[at], run[comptime!(at + 1)]));
            }
            quads.push(quad);
        }
        quads
    }

    /// The `i64` `high:low` as the nearest `f32`.
    #[cube]
    fn nearest(low: u32, high: u32) -> f32 {
        let negative = high >> 31;
        // Two's complement: flip, then add one with its carry.
        let flip = 0u32 - negative;
        let low = (low ^ flip) + negative;
        let high = (high ^ flip) + select(low == 0, negative, 0u32);
        // The leading 32 bits, with a last bit that stands for all bits below: rounded once, by the conversion.
        let zeros = high.leading_zeros();
        let shift = min(zeros, 31);
        let top = (high << shift) | ((low >> 1) >> (31 - shift));
        let rest = select((low << shift) == 0, 0u32, 1u32);
        let power = f32::reinterpret((159 - shift) << 23);
        let large = f32::cast_from(top | rest) * power;
        let value = select(high == 0, f32::cast_from(low), large);
        select(negative == 1, -value, value)
    }
}
