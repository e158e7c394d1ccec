//! `Q4_1`: 32 values of 4 bits, a scale and a minimum, 20 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale, `f16` |
//! | 2..4 | `m` | minimum, `f16` |
//! | 4..20 | `qs` | value `i` in the low nibble of byte `i`, value `i + 16` in its high nibble, `i < 16` |
//!
//! `value = d * q + m`

use super::q4_0::{pack_nibbles, unpack_nibbles};
use super::{BlockType, CodeBlock, head, read_f16};
use crate::GgmlType;
use crate::quantize::affine::{self, Trials};
use crate::quantize::rounding::{inverse, range, truncate, write_f16};
use crate::quantize::weights::{mean_square, weigh};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q4_1`.
pub struct Q4_1;

const LEN: usize = 32;
const BYTES: usize = 2 + 2 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::Q4_1.block_bytes() && LEN == GgmlType::Q4_1.block_len());

/// Writes the scale and the minimum that spread the codes over the range of the values, and returns the codes.
#[inline(always)]
pub(super) fn quantize_by_range(values: &[f32; LEN], max_code: u8, header: &mut [u8]) -> [u8; LEN] {
    let (lowest, highest) = range(values);
    let d = (highest - lowest) / f32::from(max_code);
    let inverse = inverse(d);
    write_f16(header, d);
    write_f16(&mut header[2..], lowest);
    let most = f32::from(max_code);
    values.map(|x| truncate((x - lowest) * inverse + 0.5, 0.0, most) as u8)
}

/// Writes the scale and the minimum a search by weighted error finds, and returns the codes.
#[inline(always)]
pub(super) fn quantize_by_search(
    values: &[f32; LEN],
    importance: &[f32],
    mean_square: f32,
    max_code: u8,
    header: &mut [u8],
) -> [u8; LEN] {
    let mut codes = [0; LEN];
    let weights = weigh(importance, values, mean_square);
    let found = affine::search(
        values,
        &weights,
        max_code.into(),
        Trials::WEIGHTED,
        &mut codes,
    );
    write_f16(header, found.scale);
    write_f16(&mut header[2..], -found.min);
    codes
}

impl BlockType for Q4_1 {
    const TYPE: GgmlType = GgmlType::Q4_1;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scale, mut min) = ([0; LEN], [0.0], [0.0]);
        Self::unpack_block(block, &mut codes, &mut scale, &mut min);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = scale[0] * f32::from(code) - min[0];
        }
    }
}

impl CodeBlock for Q4_1 {
    const CODE_BITS: u32 = 4;
    const OFFSET: i32 = 0;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = read_f16(block);
        mins[0] = -read_f16(&block[2..]);
        unpack_nibbles(&block[4..], codes);
    }
}

impl QuantizeBlock for Q4_1 {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let mean_square = importance.map_or(0.0, |_| mean_square(values));
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let values = values.first_chunk().expect("a block");
            let codes = match importance {
                None => quantize_by_range(values, 15, out),
                Some(importance) => quantize_by_search(values, importance, mean_square, 15, out),
            };
            pack_nibbles(&codes, &mut out[4..]);
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

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
            let qs = words[block + 1 + part * 2 + comptime!(q % 2)];
            let nibbles = qs >> comptime!(4 * (q as u32 / 2));
            codes.push_with_min(nibbles & 0x0f0f_0f0f, scale, min);
        }
        codes
    }
}
