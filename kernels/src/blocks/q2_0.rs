//! `Q2_0`: 64 values of 2 bits and one scale, 18 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..18 | `qs` | value `i` in bits `2 (i % 4)..` of byte `i / 4` |
//!
//! `value = d * (q - 1)`: one of `-d`, `0`, `d`, `2 d`

use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{inverse, largest_magnitude, nearest_away, write_f16};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q2_0`.
pub struct Q2_0;

const LEN: usize = 64;
const BYTES: usize = 2 + LEN / 4;
const _: () = assert!(BYTES == GgmlType::Q2_0.block_bytes() && LEN == GgmlType::Q2_0.block_len());

impl BlockType for Q2_0 {
    const TYPE: GgmlType = GgmlType::Q2_0;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales) = ([0; LEN], [0.0; LEN / Self::SUB_LEN]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut []);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = (i32::from(code) - Self::OFFSET) as f32 * scales[0];
        }
    }
}

impl CodeBlock for Q2_0 {
    const CODE_BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[..LEN / Self::SUB_LEN].fill(read_f16(block));
        for (codes, byte) in codes[..LEN].chunks_exact_mut(4).zip(&block[2..]) {
            for (i, code) in codes.iter_mut().enumerate() {
                *code = byte >> (2 * i) & 3;
            }
        }
    }
}

impl QuantizeBlock for Q2_0 {
    const IMPORTANCE: Importance = Importance::Ignored;

    /// The scale is the largest magnitude, so that the code for twice the scale is left unused.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let d = largest_magnitude(values);
            let inverse = inverse(d);
            write_f16(out, d);
            for (values, out) in values.chunks_exact(4).zip(&mut out[2..]) {
                *out = (0..4).fold(0, |byte, i| {
                    let code = nearest_away(values[i] * inverse, -1, 2) + 1;
                    byte | (code as u8) << (2 * i)
                });
            }
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{
        part::PartCodes,
        words::{crumbs_to_bytes, half_to_f32, run_at, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let scale = half_to_f32(u16_at(words, block));
        let qs = run_at(words, block + 2 + part * 4, 1usize);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push(crumbs_to_bytes(qs[0] >> comptime!(8 * q as u32)), scale);
        }
        codes
    }
}
