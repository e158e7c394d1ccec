//! `Q4_0`: 32 values of 4 bits and one scale, 18 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..18 | `qs` | value `i` in the low nibble of byte `i`, value `i + 16` in its high nibble, `i < 16` |
//!
//! `value = d * (q - 8)`

use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{inverse, largest, truncate, write_f16};
use crate::quantize::weights::{mean_square, weigh};
use crate::quantize::{Importance, QuantizeBlock, blocks_of, symmetric};

/// The block type `Q4_0`.
pub struct Q4_0;

const LEN: usize = 32;
const BYTES: usize = 2 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::Q4_0.block_bytes() && LEN == GgmlType::Q4_0.block_len());

/// The codes of one block from its 16 bytes of nibbles.
#[inline(always)]
pub(super) fn unpack_nibbles(qs: &[u8], codes: &mut [u8]) {
    let (low, high) = codes[..LEN].split_at_mut(LEN / 2);
    for ((byte, low), high) in qs[..LEN / 2].iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// The reverse of `unpack_nibbles`.
#[inline(always)]
pub(super) fn pack_nibbles(codes: &[u8; LEN], qs: &mut [u8]) {
    let (low, high) = codes.split_at(LEN / 2);
    for ((byte, low), high) in qs[..LEN / 2].iter_mut().zip(low).zip(high) {
        *byte = low & 15 | high << 4;
    }
}

/// Writes the scale that takes the value of largest magnitude to code 0, and returns the codes, around `half`.
#[inline(always)]
pub(super) fn quantize_by_largest(values: &[f32; LEN], half: u8, scale: &mut [u8]) -> [u8; LEN] {
    let d = largest(values) / -f32::from(half);
    let inverse = inverse(d);
    write_f16(scale, d);
    let (middle, most) = (f32::from(half) + 0.5, f32::from(2 * half - 1));
    values.map(|x| truncate(x * inverse + middle, 0.0, most) as u8)
}

/// Writes the scale a search by weighted error finds, and returns the codes, around `half`.
#[inline(always)]
pub(super) fn quantize_by_search(
    values: &[f32; LEN],
    importance: &[f32],
    mean_square: f32,
    half: u8,
    scale: &mut [u8],
) -> [u8; LEN] {
    let mut codes = [0; LEN];
    let weights = weigh::<LEN>(importance, values, mean_square);
    let d = symmetric::search(values, &weights, i32::from(half), &mut codes);
    write_f16(scale, d);
    codes
}

impl BlockType for Q4_0 {
    const TYPE: GgmlType = GgmlType::Q4_0;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scale) = ([0; LEN], [0.0]);
        Self::unpack_block(block, &mut codes, &mut scale, &mut []);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = (i32::from(code) - Self::OFFSET) as f32 * scale[0];
        }
    }
}

impl CodeBlock for Q4_0 {
    const CODE_BITS: u32 = 4;
    const OFFSET: i32 = 8;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = read_f16(block);
        unpack_nibbles(&block[2..], codes);
    }
}

impl QuantizeBlock for Q4_0 {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let mean_square = importance.map_or(0.0, |_| mean_square(values));
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let values = values.first_chunk().expect("a block");
            let codes = match importance {
                None => quantize_by_largest(values, 8, out),
                Some(importance) => quantize_by_search(values, importance, mean_square, 8, out),
            };
            pack_nibbles(&codes, &mut out[2..]);
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

    /// Values `8 part + {0..8, 16..24}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let scale = half_to_f32(u16_at(words, block));
        let qs = run_at(words, block + 2 + part * 8, 2usize);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            let nibbles = qs[comptime!(q % 2)] >> comptime!(4 * (q as u32 / 2));
            codes.push(nibbles & 0x0f0f_0f0f, scale);
        }
        codes
    }
}
