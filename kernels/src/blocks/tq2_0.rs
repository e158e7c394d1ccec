//! `TQ2_0`: 256 values of -1, 0 or 1 and one scale, four to a byte, 66 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..64 | `qs` | 2 halves of 32 bytes; value `32 k + i` of a half in bits `2 k..` of byte `i`, `k < 4` |
//! | 64..66 | `d` | scale, `f16` |
//!
//! `value = d * (q - 1)`. A `q` of 3 is not written but decodes to `2 d`.

use super::q2_k::{pack_crumbs, unpack_crumbs};
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{inverse, largest_magnitude, nearest_away, write_f16};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `TQ2_0`.
pub struct TQ2_0;

const LEN: usize = 256;
const BYTES: usize = LEN / 4 + 2;
const _: () = assert!(BYTES == GgmlType::TQ2_0.block_bytes() && LEN == GgmlType::TQ2_0.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for TQ2_0 {
    const TYPE: GgmlType = GgmlType::TQ2_0;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales) = ([0; LEN], [0.0; 8]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut []);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = (i32::from(code) - Self::OFFSET) as f32 * scales[0];
        }
    }
}

impl CodeBlock for TQ2_0 {
    const CODE_BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[..LEN / Self::SUB_LEN].fill(read_f16(&block[64..]));
        unpack_crumbs(head(block), codes);
    }
}

impl QuantizeBlock for TQ2_0 {
    const IMPORTANCE: Importance = Importance::Ignored;

    /// The scale is the largest magnitude.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let values: &[f32; LEN] = values.first_chunk().expect("a block");
            let d = largest_magnitude(values);
            let inverse = inverse(d);
            let codes = values.map(|x| (nearest_away(x * inverse, -1, 1) + 1) as u8);
            pack_crumbs(&codes, out);
            write_f16(&mut out[64..], d);
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

    /// Values `128 (part / 8) + 4 (part % 8) + {0..4, 32..36, 64..68, 96..100}` of the block at byte `block`: those of
    /// one word.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let qs = run_at(words, block + part * 4, 1usize);
        let scale = half_to_f32(u16_at(words, block + 64));
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push((qs[0] >> comptime!(2 * q as u32)) & 0x0303_0303, scale);
        }
        codes
    }
}
