//! `Q5_0`: 32 values of 5 bits and one scale, 22 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..6 | `qh` | `u32`; bit `i` is bit 4 of value `i` |
//! | 6..22 | `qs` | bits 0..4: value `i` in the low nibble of byte `i`, value `i + 16` in its high nibble, `i < 16` |
//!
//! `value = d * (q - 16)`

use super::q4_0::{pack_nibbles, quantize_by_largest, quantize_by_search, unpack_nibbles};
use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::weights::mean_square;
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q5_0`.
pub struct Q5_0;

const LEN: usize = 32;
const BYTES: usize = 2 + 4 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::Q5_0.block_bytes() && LEN == GgmlType::Q5_0.block_len());

/// Sets bit 4 of code `i` where bit `i` of the 4 bytes of `qh` is set, eight codes in a word at a time.
#[inline(always)]
pub(super) fn add_fifth_bit(qh: &[u8], codes: &mut [u8]) {
    for (&byte, codes) in qh[..LEN / 8]
        .iter()
        .zip(codes[..LEN].as_chunks_mut::<8>().0)
    {
        // Bit `j` alone in byte `j`; any but zero carries into bit 7, which then moves to bit 4.
        let bits = (u64::from(byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let fifth = ((bits + 0x7f7f_7f7f_7f7f_7f7f) >> 3) & 0x1010_1010_1010_1010;
        *codes = (u64::from_le_bytes(*codes) | fifth).to_le_bytes();
    }
}

/// The reverse of `add_fifth_bit`.
#[inline(always)]
pub(super) fn pack_fifth_bit(codes: &[u8; LEN], qh: &mut [u8]) {
    for (byte, codes) in qh[..LEN / 8].iter_mut().zip(codes.chunks_exact(8)) {
        *byte = (0..8).fold(0, |byte, bit| byte | (codes[bit] >> 4 & 1) << bit);
    }
}

impl BlockType for Q5_0 {
    const TYPE: GgmlType = GgmlType::Q5_0;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scale) = ([0; LEN], [0.0]);
        Self::unpack_block(block, &mut codes, &mut scale, &mut []);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = (i32::from(code) - Self::OFFSET) as f32 * scale[0];
        }
    }
}

impl CodeBlock for Q5_0 {
    const CODE_BITS: u32 = 5;
    const OFFSET: i32 = 16;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = read_f16(block);
        unpack_nibbles(&block[6..], codes);
        add_fifth_bit(&block[2..], codes);
    }
}

impl QuantizeBlock for Q5_0 {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let mean_square = importance.map_or(0.0, |_| mean_square(values));
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let values = values.first_chunk().expect("a block");
            let codes = match importance {
                None => quantize_by_largest(values, 16, out),
                Some(importance) => quantize_by_search(values, importance, mean_square, 16, out),
            };
            pack_fifth_bit(&codes, &mut out[2..]);
            pack_nibbles(&codes, &mut out[6..]);
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{
        part::PartCodes,
        words::{bits_to_bytes, half_to_f32, run_at, u16_at},
    };

    /// Values `8 part + {0..8, 16..24}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let scale = half_to_f32(u16_at(words, block));
        let qh = run_at(words, block + 2, 1usize);
        let qs = run_at(words, block + 6 + part * 8, 2usize);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push(quad_codes(qs[comptime!(q % 2)], qh[0], part, q), scale);
        }
        codes
    }

    /// The codes of quad `q` of a part from its word of nibbles and the block's word of fifth bits.
    #[cube]
    pub(crate) fn quad_codes(qs: u32, qh: u32, part: usize, #[comptime] q: usize) -> u32 {
        let low = (qs >> comptime!(4 * (q as u32 / 2))) & 0x0f0f_0f0f;
        let first = u32::cast_from(part) * 8 + comptime!(q as u32 % 2 * 4 + q as u32 / 2 * 16);
        low | (bits_to_bytes(qh >> first) << 4)
    }
}
