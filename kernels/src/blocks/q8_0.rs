//! `Q8_0`: 32 values of 8 bits and one scale, 34 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..34 | `qs` | value `i` as `i8` |
//!
//! `value = d * q`; as an unsigned code, `q + 128`.

use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{inverse, largest_magnitude, nearest_away, write_f16};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q8_0`.
pub struct Q8_0;

const LEN: usize = 32;
const BYTES: usize = 2 + LEN;
const _: () = assert!(BYTES == GgmlType::Q8_0.block_bytes() && LEN == GgmlType::Q8_0.block_len());

/// Writes the scale that takes the largest magnitude to 127, and returns it with the signed codes.
#[inline(always)]
pub(super) fn quantize_to_127(values: &[f32; LEN], scale: &mut [u8]) -> (f32, [i8; LEN]) {
    let d = largest_magnitude(values) / 127.0;
    let inverse = inverse(d);
    write_f16(scale, d);
    (
        d,
        values.map(|x| nearest_away(x * inverse, -127, 127) as i8),
    )
}

impl BlockType for Q8_0 {
    const TYPE: GgmlType = GgmlType::Q8_0;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        for (out, &q) in out[..LEN].iter_mut().zip(&block[2..]) {
            *out = f32::from(q as i8) * d;
        }
    }
}

impl CodeBlock for Q8_0 {
    const CODE_BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = read_f16(block);
        for (code, q) in codes[..LEN].iter_mut().zip(&block[2..]) {
            *code = q ^ 0x80;
        }
    }
}

impl QuantizeBlock for Q8_0 {
    const IMPORTANCE: Importance = Importance::Ignored;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let (_, codes) = quantize_to_127(values.first_chunk().expect("a block"), out);
            out[2..].copy_from_slice(&codes.map(|q| q as u8));
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{
        part::PartCodes,
        words::{half_to_f32, run_at, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let scale = half_to_f32(u16_at(words, block));
        let qs = run_at(words, block + 2 + part * 16, 4usize);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            // Flipping the sign bit turns a signed byte into that byte plus 128.
            codes.push(qs[q] ^ 0x8080_8080, scale);
        }
        codes
    }
}
