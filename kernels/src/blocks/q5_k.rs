//! `Q5_K`: 256 values of 5 bits in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit min, 176 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..4 | `dmin` | scale of the mins, `f16` |
//! | 4..16 | `scales` | 8 scales and 8 mins, 6 bits each, packed as in [`Q4_K`](super::Q4K) |
//! | 16..48 | `qh` | bit `j` of byte `i` is bit 4 of value `i` of sub-block `j` |
//! | 48..176 | `qs` | bits 0..4, in the order of `Q4_K` |
//!
//! `value = d * scale * q - dmin * min`

use super::q4_k::{
    pack_nibble_groups, quantize_subs, scale_and_shift, unpack_header, unpack_nibble_groups,
};
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head};
use crate::GgmlType;
use crate::quantize::affine::{Error, Trials};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q5_K`.
pub struct Q5K;

const LEN: usize = 256;
const BYTES: usize = 2 + 2 + 12 + LEN / 8 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::Q5K.block_bytes() && LEN == GgmlType::Q5K.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for Q5K {
    const TYPE: GgmlType = GgmlType::Q5K;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales, mut mins) = ([0; LEN], [0.0; 8], [0.0; 8]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut mins);
        scale_and_shift(&codes, &scales, &mins, out);
    }
}

impl CodeBlock for Q5K {
    const CODE_BITS: u32 = 5;
    const OFFSET: i32 = 0;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        unpack_header(block, scales, mins);
        unpack_nibble_groups(head(&block[48..]), codes);
        let qh = head::<32>(&block[16..]);
        for (j, codes) in codes[..LEN].chunks_exact_mut(32).enumerate() {
            for (code, high) in codes.iter_mut().zip(qh) {
                *code |= (high >> j & 1) << 4;
            }
        }
    }
}

/// What is tried without an importance matrix.
const TRIALS: Trials = Trials {
    first: -0.5,
    step: 0.1,
    count: 15,
    error: Error::Squared,
};

impl QuantizeBlock for Q5K {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let codes = quantize_subs(values, importance, 31, TRIALS, out);
            for (i, high) in out[16..48].iter_mut().enumerate() {
                *high = (0..8).fold(0, |byte, j| byte | (codes[32 * j + i] >> 4) << j);
            }
            pack_nibble_groups(&codes, &mut out[48..]);
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::q4_k::device::sub_scale;
    use crate::cube::part::PartCodes;

    /// Values `64 (part / 4) + 8 (part % 4) + {0..8, 32..40}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let group = part / 4;
        let column = part % 4 * 2;
        let mut codes = PartCodes::new();
        #[unroll]
        for half in 0..2usize {
            let index = group * 2 + half;
            let sub = sub_scale(words, block, index);
            #[unroll]
            for i in 0..2usize {
                let qs = words[block + 12 + group * 8 + column + i];
                let qh = words[block + 4 + column + i];
                let low = (qs >> comptime!(4 * half as u32)) & 0x0f0f_0f0f;
                let high = ((qh >> u32::cast_from(index)) & 0x0101_0101) << 4;
                codes.push_with_min(low | high, sub.scale, sub.min);
            }
        }
        codes
    }
}
