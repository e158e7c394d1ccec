//! `Q2_K`: 256 values of 2 bits in 16 sub-blocks of 16, each with a 4-bit scale and a 4-bit min, 84 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..16 | `scales` | sub-block `j`: scale in the low nibble, min in the high nibble |
//! | 16..80 | `qs` | 2 halves of 32 bytes; value `32 k + i` of a half in bits `2 k..` of byte `i`, `k < 4` |
//! | 80..82 | `d` | scale of the scales, `f16` |
//! | 82..84 | `dmin` | scale of the mins, `f16` |
//!
//! `value = d * scale * q - dmin * min`

use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head, read_f16};
use crate::GgmlType;
use crate::quantize::affine::{self, Error, Trials};
use crate::quantize::rounding::{nearest, write_f16};
use crate::quantize::weights::{mean_square, sum, weigh};
use crate::quantize::{Importance, QuantizeBlock, blocks_of, positive};

/// The block type `Q2_K`.
pub struct Q2K;

const LEN: usize = 256;
const BYTES: usize = LEN / 16 + LEN / 4 + 2 + 2;
const _: () = assert!(BYTES == GgmlType::Q2K.block_bytes() && LEN == GgmlType::Q2K.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

/// 256 codes of 2 bits from 2 halves of 32 bytes, 32 values at a time from the lowest bits up.
#[inline(always)]
pub(super) fn unpack_crumbs(qs: &[u8; LEN / 4], codes: &mut [u8]) {
    for (qs, codes) in qs.chunks_exact(32).zip(codes[..LEN].chunks_exact_mut(128)) {
        for (k, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, byte) in codes.iter_mut().zip(qs) {
                *code = byte >> (2 * k) & 3;
            }
        }
    }
}

/// The reverse of `unpack_crumbs`.
#[inline(always)]
pub(super) fn pack_crumbs(codes: &[u8; LEN], qs: &mut [u8]) {
    let halves = qs[..LEN / 4]
        .chunks_exact_mut(32)
        .zip(codes.chunks_exact(128));
    for (qs, codes) in halves {
        for (i, byte) in qs.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |byte, k| byte | (codes[32 * k + i] & 3) << (2 * k));
        }
    }
}

impl BlockType for Q2K {
    const TYPE: GgmlType = GgmlType::Q2K;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales, mut mins) = ([0; LEN], [0.0; 16], [0.0; 16]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut mins);
        let subs = out[..LEN].chunks_exact_mut(16).zip(codes.chunks_exact(16));
        for (j, (out, codes)) in subs.enumerate() {
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = scales[j] * f32::from(code) - mins[j];
            }
        }
    }
}

impl CodeBlock for Q2K {
    const CODE_BITS: u32 = 2;
    const OFFSET: i32 = 0;
    const SUB_LEN: usize = 16;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let (d, dmin) = (read_f16(&block[80..]), read_f16(&block[82..]));
        let (scales, mins) = (&mut scales[..16], &mut mins[..16]);
        for j in 0..16 {
            scales[j] = d * f32::from(block[j] & 15);
            mins[j] = dmin * f32::from(block[j] >> 4);
        }
        unpack_crumbs(head(&block[16..]), codes);
    }
}

/// What is tried without an importance matrix.
const TRIALS: Trials = Trials {
    first: -0.5,
    step: 0.1,
    count: 15,
    error: Error::Absolute,
};

/// Packs the scales or the mins of the sub-blocks so that the largest becomes 15; returns their codes and scale.
#[inline(always)]
fn scale_to_15(values: &[f32; 16]) -> ([u8; 16], f32) {
    let most = values
        .iter()
        .fold(0.0, |most, &x| if x > most { x } else { most });
    if most <= 0.0 {
        return ([0; 16], 0.0);
    }
    let inverse = 15.0 / most;
    (values.map(|x| nearest(inverse * x) as u8), most / 15.0)
}

impl QuantizeBlock for Q2K {
    const IMPORTANCE: Importance = Importance::Optional;

    /// Scales and mins are searched by sub-block, then packed, and the codes are rounded anew for what they became.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let subs: &[[f32; 16]; 16] = values.as_chunks().0.first_chunk().expect("a block");
            let mut codes = [0u8; LEN];
            let (mut scales, mut mins, mut sums) = ([0.0; 16], [0.0; 16], [0.0; 16]);
            let energy = importance.map_or(0.0, |_| mean_square(values));
            for (j, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let (weights, trials) = match importance {
                    None => (subs[j].map(f32::abs), TRIALS),
                    Some(importance) => (
                        weigh(&importance[16 * j..], &subs[j], energy),
                        Trials::WEIGHTED,
                    ),
                };
                sums[j] = sum(&weights);
                let found = affine::search(&subs[j], &weights, 3, trials, codes);
                (scales[j], mins[j]) = (found.scale, found.min);
            }
            let ((sc, d), (m, dmin)) = match importance {
                None => (scale_to_15(&scales), scale_to_15(&mins)),
                Some(_) => {
                    let pack = |values| {
                        let mut codes = [0; 16];
                        let scale = positive::search(values, &sums, 15, &mut codes);
                        (codes, scale)
                    };
                    (pack(&scales), pack(&mins))
                }
            };
            for j in 0..16 {
                out[j] = sc[j] | m[j] << 4;
            }
            let (d, dmin) = (
                write_f16(&mut out[80..], d),
                write_f16(&mut out[82..], dmin),
            );
            for (j, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let (d, dmin) = (d * f32::from(out[j] & 15), dmin * f32::from(out[j] >> 4));
                if d != 0.0 {
                    *codes = subs[j].map(|x| nearest((x + dmin) / d).clamp(0, 3) as u8);
                }
            }
            pack_crumbs(&codes, &mut out[16..]);
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{part::PartCodes, words::half_to_f32};

    /// Values `128 (part / 8) + 4 (part % 8) + {0..4, 32..36, 64..68, 96..100}` of the block at byte `block`: those of
    /// one word.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let half = part / 8;
        let column = part % 8;
        let qs = words[block + 4 + half * 8 + column];
        let header = words[block + 20];
        let d = half_to_f32(header & 0xffff);
        let dmin = half_to_f32(header >> 16);
        let shift = u32::cast_from(column / 4) * 8;
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            let pair = words[block + half * 2 + comptime!(q / 2)];
            let packed = pair >> (shift + comptime!(q as u32 % 2 * 16));
            let scale = d * f32::cast_from(packed & 15);
            let min = dmin * f32::cast_from((packed >> 4) & 15);
            codes.push_with_min((qs >> comptime!(2 * q as u32)) & 0x0303_0303, scale, min);
        }
        codes
    }
}
