//! `Q3_K`: 256 values of 3 bits in 16 sub-blocks of 16, each with a 6-bit scale, 110 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..32 | `hmask` | bit 2 of value `32 k + i` in bit `k` of byte `i`, `k < 8` |
//! | 32..96 | `qs` | bits 0..2 of the values, laid out as in `Q2_K` |
//! | 96..108 | `scales` | 16 scales of 6 bits, packed as drawn below |
//! | 108..110 | `d` | scale of the scales, `f16` |
//!
//! `value = d * (scale - 32) * (q - 4)`
//!
//! The 12 bytes of `scales`, most significant bit first; letters `A` to `P` are scales 0..16, the digit is the bit:
//!
//! ```text
//!  0: I3 I2 I1 I0 A3 A2 A1 A0
//!  1: J3 J2 J1 J0 B3 B2 B1 B0
//!  2: K3 K2 K1 K0 C3 C2 C1 C0
//!  3: L3 L2 L1 L0 D3 D2 D1 D0
//!  4: M3 M2 M1 M0 E3 E2 E1 E0
//!  5: N3 N2 N1 N0 F3 F2 F1 F0
//!  6: O3 O2 O1 O0 G3 G2 G1 G0
//!  7: P3 P2 P1 P0 H3 H2 H1 H0
//!  8: M5 M4 I5 I4 E5 E4 A5 A4
//!  9: N5 N4 J5 J4 F5 F4 B5 B4
//! 10: O5 O4 K5 K4 G5 G4 C5 C4
//! 11: P5 P4 L5 L4 H5 H4 D5 D4
//! ```

use super::q2_k::{pack_crumbs, unpack_crumbs};
use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{largest, nearest, write_f16};
use crate::quantize::weights::{sum, sum_of_squares, weigh};
use crate::quantize::{Importance, QuantizeBlock, blocks_of, symmetric};

/// The block type `Q3_K`.
pub struct Q3K;

const LEN: usize = 256;
const BYTES: usize = LEN / 8 + LEN / 4 + 12 + 2;
const _: () = assert!(BYTES == GgmlType::Q3K.block_bytes() && LEN == GgmlType::Q3K.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

/// The 16 scales of the 12 packed bytes, 0 to 63 each.
#[inline(always)]
pub(super) fn unpack_scales(packed: &[u8; 12]) -> [u8; 16] {
    std::array::from_fn(|j| {
        let low = packed[j % 8] >> (4 * (j / 8)) & 15;
        let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
        low | high << 4
    })
}

/// The reverse of `unpack_scales`.
#[inline(always)]
pub(super) fn pack_scales(scales: &[u8; 16], packed: &mut [u8]) {
    let packed = &mut packed[..12];
    packed.fill(0);
    for (j, scale) in scales.iter().enumerate() {
        packed[j % 8] |= (scale & 15) << (4 * (j / 8));
        packed[8 + j % 4] |= (scale >> 4) << (2 * (j / 4));
    }
}

impl BlockType for Q3K {
    const TYPE: GgmlType = GgmlType::Q3K;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales) = ([0; LEN], [0.0; 16]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut []);
        let subs = out[..LEN].chunks_exact_mut(16).zip(codes.chunks_exact(16));
        for (j, (out, codes)) in subs.enumerate() {
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = scales[j] * (i32::from(code) - Self::OFFSET) as f32;
            }
        }
    }
}

impl CodeBlock for Q3K {
    const CODE_BITS: u32 = 3;
    const OFFSET: i32 = 4;
    const SUB_LEN: usize = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = read_f16(&block[108..]);
        let packed = unpack_scales(head(&block[96..]));
        for (scale, sc) in scales[..16].iter_mut().zip(packed) {
            *scale = d * (i32::from(sc) - 32) as f32;
        }
        unpack_crumbs(head(&block[32..]), codes);
        for (k, codes) in codes[..LEN].chunks_exact_mut(32).enumerate() {
            for (code, high) in codes.iter_mut().zip(&block[..32]) {
                *code |= (high >> k & 1) << 2;
            }
        }
    }
}

/// Packs the scales of the sub-blocks so that the one of largest magnitude becomes -32; returns their codes and scale.
#[inline(always)]
fn scale_to_minus_32(scales: &[f32; 16]) -> ([u8; 16], f32) {
    let most = largest(scales);
    if most == 0.0 {
        return ([0; 16], 0.0);
    }
    let inverse = -32.0 / most;
    let code = |scale| i32::from(nearest(inverse * scale) as i8).clamp(-32, 31) + 32;
    (scales.map(|scale| code(scale) as u8), 1.0 / inverse)
}

impl QuantizeBlock for Q3K {
    const IMPORTANCE: Importance = Importance::Optional;

    /// Scales are searched by sub-block, then packed, and the codes are rounded anew for what they became.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let subs: &[[f32; 16]; 16] = values.as_chunks().0.first_chunk().expect("a block");
            let mut codes = [0u8; LEN];
            let (mut scales, mut sums) = ([0.0; 16], [0.0; 16]);
            let energy = importance.map_or(0.0, |_| 2.0 * sum_of_squares(values) / LEN as f32);
            for (j, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                scales[j] = match importance {
                    None => symmetric::descend(&subs[j], 4, codes),
                    Some(importance) => {
                        let weights = weigh::<16>(&importance[16 * j..], &subs[j], energy);
                        sums[j] = sum(&weights);
                        symmetric::search(&subs[j], &weights, 4, codes)
                    }
                };
            }
            let (packed, d) = match importance {
                None => scale_to_minus_32(&scales),
                Some(_) => {
                    let mut packed = [0; 16];
                    let d = symmetric::search(&scales, &sums, 32, &mut packed);
                    (packed, d)
                }
            };
            pack_scales(&packed, &mut out[96..]);
            let d = write_f16(&mut out[108..], d);
            for (j, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let d = d * (i32::from(packed[j]) - 32) as f32;
                if d != 0.0 {
                    *codes = subs[j].map(|x| (nearest(x / d).clamp(-4, 3) + 4) as u8);
                }
            }
            for (i, high) in out[..32].iter_mut().enumerate() {
                *high = (0..8).fold(0, |byte, k| byte | (codes[32 * k + i] >> 2) << k);
            }
            pack_crumbs(&codes, &mut out[32..]);
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
        let half = part / 8;
        let column = part % 8;
        let nibble = u32::cast_from(half) * 4;
        let hmask = run_at(words, block + column * 4, 1usize);
        let high = hmask[0] >> nibble;
        let qs = run_at(words, block + 32 + half * 32 + column * 4, 1usize);
        let scales = run_at(words, block + 96, 3usize);
        let d = half_to_f32(u16_at(words, block + 108));
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            // Scale `8 half + 2 q + column / 4` has its low bits in byte `2 q + column / 4`, in nibble `half`.
            let byte = (u32::cast_from(column / 4) + comptime!(q as u32 % 2 * 2)) * 8;
            let low = (scales[comptime!(q / 2)] >> (byte + nibble)) & 15;
            let top = (scales[2] >> (byte + nibble + comptime!(q as u32 / 2 * 2))) & 3;
            let scale = d * (f32::cast_from(low | (top << 4)) - 32.0);
            let bits = (high >> comptime!(q as u32)) & 0x0101_0101;
            let code = ((qs[0] >> comptime!(2 * q as u32)) & 0x0303_0303) | (bits << 2);
            codes.push(code, scale);
        }
        codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_follow_the_diagram() {
        // Scale j is 4j + 3 or its complement in turn: all six bits of each take both values across the block.
        let scales: [u8; 16] = std::array::from_fn(|j| {
            let j = j as u8;
            if j.is_multiple_of(2) {
                4 * j + 3
            } else {
                63 - 4 * j
            }
        });
        let mut want = [0u8; 12];
        for j in 0..4 {
            want[j] = scales[j] & 15 | scales[j + 8] << 4;
            want[j + 4] = scales[j + 4] & 15 | scales[j + 12] << 4;
            want[j + 8] = scales[j] >> 4
                | scales[j + 4] >> 4 << 2
                | scales[j + 8] >> 4 << 4
                | scales[j + 12] >> 4 << 6;
        }
        let mut packed = [0xff; 12];
        pack_scales(&scales, &mut packed);
        assert_eq!(packed, want);
        assert_eq!(unpack_scales(&packed), scales);
    }
}
