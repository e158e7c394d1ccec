//! `Q1_0`: 128 signs and one scale, 18 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..18 | `qs` | value `i` in bit `i % 8` of byte `i / 8` |
//!
//! `value = d` where the bit is set, `-d` where not; as a code, `d * (2 bit - 1)`, which keeps the sign of a zero `d`.

use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::write_f16;
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q1_0`.
pub struct Q1_0;

const LEN: usize = 128;
const BYTES: usize = 2 + LEN / 8;
const _: () = assert!(BYTES == GgmlType::Q1_0.block_bytes() && LEN == GgmlType::Q1_0.block_len());

impl BlockType for Q1_0 {
    const TYPE: GgmlType = GgmlType::Q1_0;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        for (out, byte) in out[..LEN].chunks_exact_mut(8).zip(&block[2..]) {
            for (bit, out) in out.iter_mut().enumerate() {
                *out = if byte >> bit & 1 == 1 { d } else { -d };
            }
        }
    }
}

impl CodeBlock for Q1_0 {
    const CODE_BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[..LEN / Self::SUB_LEN].fill(read_f16(block));
        for (codes, byte) in codes[..LEN].chunks_exact_mut(8).zip(&block[2..]) {
            for (bit, code) in codes.iter_mut().enumerate() {
                *code = (byte >> bit & 1) << 1;
            }
        }
    }
}

impl QuantizeBlock for Q1_0 {
    const IMPORTANCE: Importance = Importance::Ignored;

    /// The scale is the mean magnitude; a zero counts as positive.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let sum = values.iter().fold(0.0, |sum, x| sum + x.abs());
            write_f16(out, sum / LEN as f32);
            for (values, out) in values.chunks_exact(8).zip(&mut out[2..]) {
                *out = (0..8).fold(0, |byte, bit| byte | u8::from(values[bit] >= 0.0) << bit);
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
        words::{bits_to_bytes, half_to_f32, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`, as codes 0 and 2: `value = d * (code - 1)`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let scale = half_to_f32(u16_at(words, block));
        let bits = u16_at(words, block + 2 + part * 2);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push(bits_to_bytes(bits >> comptime!(4 * q as u32)) << 1, scale);
        }
        codes
    }
}
