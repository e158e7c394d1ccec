//! `Q8_1`: 32 values of 8 bits, one scale and the sum of the values, 36 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..4 | `s` | `d` times the sum of the 32 codes, `f16`; what ggml's dot products use, not needed to decode |
//! | 4..36 | `qs` | value `i` as `i8` |
//!
//! `value = d * q`; as an unsigned code, `q + 128`.

use super::q8_0::quantize_to_127;
use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::write_f16;
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q8_1`.
pub struct Q8_1;

const LEN: usize = 32;
const BYTES: usize = 2 + 2 + LEN;
const _: () = assert!(BYTES == GgmlType::Q8_1.block_bytes() && LEN == GgmlType::Q8_1.block_len());

impl BlockType for Q8_1 {
    const TYPE: GgmlType = GgmlType::Q8_1;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(block);
        for (out, &q) in out[..LEN].iter_mut().zip(&block[4..]) {
            *out = f32::from(q as i8) * d;
        }
    }
}

impl CodeBlock for Q8_1 {
    const CODE_BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = read_f16(block);
        for (code, q) in codes[..LEN].iter_mut().zip(&block[4..]) {
            *code = q ^ 0x80;
        }
    }
}

impl QuantizeBlock for Q8_1 {
    const IMPORTANCE: Importance = Importance::Ignored;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let (d, codes) = quantize_to_127(values.first_chunk().expect("a block"), out);
            let sum: i32 = codes.iter().map(|&q| i32::from(q)).sum();
            write_f16(&mut out[2..], sum as f32 * d);
            out[4..].copy_from_slice(&codes.map(|q| q as u8));
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{part::PartCodes, words::half_to_f32};

    /// Values `16 part + 0..16` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let scale = half_to_f32(words[block] & 0xffff);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push(words[block + 1 + part * 4 + q] ^ 0x8080_8080, scale);
        }
        codes
    }
}
