//! `Q6_K`: 256 values of 6 bits in 16 sub-blocks of 16, each with an 8-bit scale, 210 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..128 | `ql` | bits 0..4 of the values, see below |
//! | 128..192 | `qh` | bits 4..6 of the values, see below |
//! | 192..208 | `scales` | scale of sub-block `j` as `i8` |
//! | 208..210 | `d` | scale of the scales, `f16` |
//!
//! `value = d * scale * (q - 32)`
//!
//! Each half of 128 values has 64 bytes of `ql` and 32 of `qh`. With `i < 32`, its values are
//!
//! | value | low bits | high bits |
//! |---|---|---|
//! | `i` | low nibble of `ql[i]` | bits 0..2 of `qh[i]` |
//! | `i + 32` | low nibble of `ql[i + 32]` | bits 2..4 of `qh[i]` |
//! | `i + 64` | high nibble of `ql[i]` | bits 4..6 of `qh[i]` |
//! | `i + 96` | high nibble of `ql[i + 32]` | bits 6..8 of `qh[i]` |

use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{largest, nearest, write_f16};
use crate::quantize::symmetric::{self, NOTHING};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q6_K`.
pub struct Q6K;

const LEN: usize = 256;
const BYTES: usize = LEN / 2 + LEN / 4 + LEN / 16 + 2;
const _: () = assert!(BYTES == GgmlType::Q6K.block_bytes() && LEN == GgmlType::Q6K.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for Q6K {
    const TYPE: GgmlType = GgmlType::Q6K;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales) = ([0; LEN], [0.0; 16]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut []);
        for (j, (out, codes)) in out[..LEN]
            .chunks_exact_mut(16)
            .zip(codes.chunks_exact(16))
            .enumerate()
        {
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = scales[j] * (i32::from(code) - Self::OFFSET) as f32;
            }
        }
    }
}

impl CodeBlock for Q6K {
    const CODE_BITS: u32 = 6;
    const OFFSET: i32 = 32;
    const SUB_LEN: usize = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(&block[208..]);
        for (scale, &sc) in scales[..16].iter_mut().zip(&block[192..208]) {
            *scale = d * f32::from(sc as i8);
        }
        for (half, codes) in codes[..LEN].chunks_exact_mut(128).enumerate() {
            let ql = head::<64>(&block[64 * half..]);
            let qh = head::<32>(&block[128 + 32 * half..]);
            for i in 0..32 {
                codes[i] = ql[i] & 15 | (qh[i] & 3) << 4;
                codes[i + 32] = ql[i + 32] & 15 | (qh[i] >> 2 & 3) << 4;
                codes[i + 64] = ql[i] >> 4 | (qh[i] >> 4 & 3) << 4;
                codes[i + 96] = ql[i + 32] >> 4 | (qh[i] >> 6) << 4;
            }
        }
    }
}

impl QuantizeBlock for Q6K {
    const IMPORTANCE: Importance = Importance::Optional;

    /// Scales are searched by sub-block, then packed so that the one of largest magnitude becomes -128, and the codes
    /// are rounded anew for what they became. The importance is the weight; without one, the square of the value is.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let subs: &[[f32; 16]; 16] = values.as_chunks().0.first_chunk().expect("a block");
            let (mut codes, mut scales) = ([0u8; LEN], [0.0; 16]);
            for (j, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let squares = subs[j].map(|x| x * x);
                let weights = importance.map_or(&squares[..], |weights| &weights[16 * j..][..16]);
                scales[j] = symmetric::search(&subs[j], weights, 32, codes);
            }
            let most = largest(&scales);
            if most.abs() < NOTHING {
                out.fill(0);
                continue;
            }
            let inverse = -128.0 / most;
            let d = write_f16(&mut out[208..], 1.0 / inverse);
            for (j, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let scale = nearest(inverse * scales[j]).min(127) as i8;
                out[192 + j] = scale as u8;
                let d = d * f32::from(scale);
                if d != 0.0 {
                    *codes = subs[j].map(|x| (nearest(x / d).clamp(-32, 31) + 32) as u8);
                }
            }
            for (half, codes) in codes.chunks_exact(128).enumerate() {
                for i in 0..32 {
                    let [a, b, c, d] = [0, 32, 64, 96].map(|at| codes[at + i]);
                    out[64 * half + i] = a & 15 | c << 4;
                    out[64 * half + i + 32] = b & 15 | d << 4;
                    out[128 + 32 * half + i] = a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6;
                }
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
        words::{half_to_f32, run_at, u8_at, u16_at},
    };

    /// Values `64 (part / 4) + 8 (part % 4) + {0..8, 32..40}` of the block at byte `block`.
    ///
    /// The quarter `part / 4` is a half of the block and a nibble: quarters 0 and 2 are the low nibbles.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let half = part / 8;
        let nibble = u32::cast_from(part / 4 % 2) * 4;
        let column = part % 4 * 8;
        let d = half_to_f32(u16_at(words, block + 208));
        let qh = run_at(words, block + 128 + half * 32 + column, 2usize);
        let scales = block + 192 + part / 4 * 4 + part % 4 / 2;
        let mut codes = PartCodes::new();
        #[unroll]
        for side in 0..2usize {
            let ql = run_at(words, block + half * 64 + side * 32 + column, 2usize);
            let biased = f32::cast_from(u8_at(words, scales + side * 2) ^ 0x80);
            let scale = d * (biased - 128.0);
            #[unroll]
            for i in 0..2usize {
                let low = (ql[i] >> nibble) & 0x0f0f_0f0f;
                let high = ((qh[i] >> (nibble + comptime!(2 * side as u32))) & 0x0303_0303) << 4;
                codes.push(low | high, scale);
            }
        }
        codes
    }
}
