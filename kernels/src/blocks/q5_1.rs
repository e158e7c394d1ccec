//! `Q5_1`: 32 values of 5 bits, a scale and a minimum, 24 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..4 | `m` | minimum, `f16` |
//! | 4..8 | `qh` | `u32`; bit `i` is bit 4 of value `i` |
//! | 8..24 | `qs` | bits 0..4: value `i` in the low nibble of byte `i`, value `i + 16` in its high nibble, `i < 16` |
//!
//! `value = d * q + m`

use super::q4_0::{pack_nibbles, unpack_nibbles};
use super::q4_1::{quantize_by_range, quantize_by_search};
use super::q5_0::{add_fifth_bit, pack_fifth_bit};
use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::weights::mean_square;
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q5_1`.
pub struct Q5_1;

const LEN: usize = 32;
const BYTES: usize = 2 + 2 + 4 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::Q5_1.block_bytes() && LEN == GgmlType::Q5_1.block_len());

impl BlockType for Q5_1 {
    const TYPE: GgmlType = GgmlType::Q5_1;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scale, mut min) = ([0; LEN], [0.0], [0.0]);
        Self::unpack_block(block, &mut codes, &mut scale, &mut min);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = scale[0] * f32::from(code) - min[0];
        }
    }
}

impl CodeBlock for Q5_1 {
    const CODE_BITS: u32 = 5;
    const OFFSET: i32 = 0;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = read_f16(block);
        mins[0] = -read_f16(&block[2..]);
        unpack_nibbles(&block[8..], codes);
        add_fifth_bit(&block[4..], codes);
    }
}

impl QuantizeBlock for Q5_1 {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let mean_square = importance.map_or(0.0, |_| mean_square(values));
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let values = values.first_chunk().expect("a block");
            let codes = match importance {
                None => quantize_by_range(values, 31, out),
                Some(importance) => quantize_by_search(values, importance, mean_square, 31, out),
            };
            pack_fifth_bit(&codes, &mut out[4..]);
            pack_nibbles(&codes, &mut out[8..]);
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::q5_0::device::quad_codes;
    use crate::cube::{part::PartCodes, words::half_to_f32};

    /// Values `8 part + {0..8, 16..24}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let header = words[block];
        let scale = half_to_f32(header & 0xffff);
        let min = -half_to_f32(header >> 16);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            let qs = words[block + 2 + part * 2 + comptime!(q % 2)];
            codes.push_with_min(quad_codes(qs, words[block + 1], part, q), scale, min);
        }
        codes
    }
}
