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
                quad.insert(
                    i,
                    f32::reinterpret(nearest(run[at], run[comptime!(at + 1)])),
                );
            }
            quads.push(quad);
        }
        quads
    }

    /// The bits of the `f32` nearest to the `f64` `high:low`, ties to even.
    #[cube]
    fn nearest(low: u32, high: u32) -> u32 {
        let exponent = (high >> 20) & 0x7ff;
        let fraction = ((high & 0xf_ffff) << 3) | (low >> 29);
        let rest = low << 3;
        // From the exponent 897 on the result is normal; down to 873 some bits of it are left.
        let down = min(select(exponent < 897, 897 - exponent, 0u32), 31);
        let whole = fraction | 0x80_0000;
        let lost = (whole << 1) << (31 - down);
        let sticky = select(rest == 0, 0u32, 1u32);
        let tail = select(down == 0, rest, lost | sticky);
        let kept = select(
            down == 0,
            ((exponent - 896) << 23) | fraction,
            whole >> down,
        );
        let half = 0x8000_0000u32;
        let up = select(tail > half, 1u32, select(tail == half, kept & 1, 0u32));
        let finite = kept + up;
        let infinite = exponent > 1150;
        let nan = exponent == 0x7ff && (fraction | rest) != 0;
        let value = select(
            infinite,
            0x7f80_0000u32,
            select(exponent < 872, 0u32, finite),
        );
        select(nan, 0x7fc0_0000u32, value) | (high & 0x8000_0000)
    }
}
