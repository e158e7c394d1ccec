//! `Q4_K`: 256 values of 4 bits in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit min, 144 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | `d` | scale of the scales, `f16` |
//! | 2..4 | `dmin` | scale of the mins, `f16` |
//! | 4..16 | `scales` | 8 scales and 8 mins, 6 bits each, packed as drawn below |
//! | 16..144 | `qs` | 4 groups of 32 bytes; group `g` holds sub-block `2g` in its low nibbles, `2g + 1` in the high |
//!
//! `value = d * scale * q - dmin * min`
//!
//! The 12 bytes of `scales`, most significant bit first; capital letters are scales 0..7 (`A` to `H`), small letters
//! mins 0..7 (`a` to `h`), the digit is the bit:
//!
//! ```text
//!  0: E5 E4 A5 A4 A3 A2 A1 A0
//!  1: F5 F4 B5 B4 B3 B2 B1 B0
//!  2: G5 G4 C5 C4 C3 C2 C1 C0
//!  3: H5 H4 D5 D4 D3 D2 D1 D0
//!  4: e5 e4 a5 a4 a3 a2 a1 a0
//!  5: f5 f4 b5 b4 b3 b2 b1 b0
//!  6: g5 g4 c5 c4 c3 c2 c1 c0
//!  7: h5 h4 d5 d4 d3 d2 d1 d0
//!  8: e3 e2 e1 e0 E3 E2 E1 E0
//!  9: f3 f2 f1 f0 F3 F2 F1 F0
//! 10: g3 g2 g1 g0 G3 G2 G1 G0
//! 11: h3 h2 h1 h0 H3 H2 H1 H0
//! ```

use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head, read_f16};
use crate::GgmlType;
use crate::quantize::affine::{self, Error, Trials};
use crate::quantize::rounding::{nearest, write_f16};
use crate::quantize::weights::{sum, sum_of_squares, weigh};
use crate::quantize::{Importance, QuantizeBlock, blocks_of, positive};

/// The block type `Q4_K`.
pub struct Q4K;

const LEN: usize = 256;
const BYTES: usize = 2 + 2 + 12 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::Q4K.block_bytes() && LEN == GgmlType::Q4K.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

/// The 8 scales and the 8 mins of the 12 packed bytes, four lanes of a word at a time.
#[inline(always)]
pub(crate) fn unpack_scales_6bit(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let word =
        |i: usize| u32::from_le_bytes([packed[i], packed[i + 1], packed[i + 2], packed[i + 3]]);
    let (a, b, c) = (word(0), word(4), word(8));
    let pair = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    (
        pair(a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | a >> 2 & 0x3030_3030),
        pair(b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | b >> 2 & 0x3030_3030),
    )
}

/// The first 16 bytes, which `Q4_K` and `Q5_K` share, as 8 scales and 8 mins with their own scales applied.
#[inline(always)]
pub(super) fn unpack_header(block: &[u8], scales: &mut [f32], mins: &mut [f32]) {
    let block = head::<16>(block);
    let (d, dmin) = (read_f16(block), read_f16(&block[2..]));
    let (sc, m) = unpack_scales_6bit(head(&block[4..]));
    let (scales, mins) = (&mut scales[..8], &mut mins[..8]);
    for j in 0..8 {
        scales[j] = d * f32::from(sc[j]);
        mins[j] = dmin * f32::from(m[j]);
    }
}

/// 256 codes from 4 groups of 32 bytes, low nibbles before high nibbles.
#[inline(always)]
pub(super) fn unpack_nibble_groups(qs: &[u8; LEN / 2], codes: &mut [u8]) {
    for (qs, codes) in qs.chunks_exact(32).zip(codes[..LEN].chunks_exact_mut(64)) {
        let (low, high) = codes.split_at_mut(32);
        for ((byte, low), high) in qs.iter().zip(low).zip(high) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

/// `scale * code - min` for 8 sub-blocks of 32; product and difference are rounded separately, as ggml does.
#[inline(always)]
pub(super) fn scale_and_shift(
    codes: &[u8; LEN],
    scales: &[f32; 8],
    mins: &[f32; 8],
    out: &mut [f32],
) {
    for (j, (out, codes)) in out[..LEN]
        .chunks_exact_mut(32)
        .zip(codes.chunks_exact(32))
        .enumerate()
    {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scales[j] * f32::from(code) - mins[j];
        }
    }
}

/// The reverse of `unpack_scales_6bit`.
#[inline(always)]
fn pack_scales_6bit(scales: &[u8; 8], mins: &[u8; 8], packed: &mut [u8]) {
    for j in 0..4 {
        packed[j] = scales[j] | scales[j + 4] >> 4 << 6;
        packed[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        packed[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
}

/// The reverse of `unpack_nibble_groups`.
#[inline(always)]
pub(super) fn pack_nibble_groups(codes: &[u8; LEN], qs: &mut [u8]) {
    for (qs, codes) in qs.chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        let (low, high) = codes.split_at(32);
        for ((byte, low), high) in qs.iter_mut().zip(low).zip(high) {
            *byte = low & 15 | high << 4;
        }
    }
}

/// Packs the scales or the mins of the sub-blocks so that the largest becomes 63; returns their codes and scale.
#[inline(always)]
fn scale_to_63(values: &[f32; 8]) -> ([u8; 8], f32) {
    let most = values
        .iter()
        .fold(0.0, |most, &x| if x > most { x } else { most });
    let inverse = if most > 0.0 { 63.0 / most } else { 0.0 };
    (
        values.map(|x| (nearest(inverse * x) as u8).min(63)),
        most / 63.0,
    )
}

/// Writes the first 16 bytes, which `Q4_K` and `Q5_K` share, and returns the codes.
///
/// Scales and mins are searched by sub-block, then packed, and the codes are rounded anew for what they became.
/// `trials` are those without an importance matrix.
#[inline(always)]
pub(super) fn quantize_subs(
    values: &[f32],
    importance: Option<&[f32]>,
    max_code: i32,
    trials: Trials,
    header: &mut [u8],
) -> [u8; LEN] {
    let subs: &[[f32; 32]; 8] = values.as_chunks().0.first_chunk().expect("a block");
    let mut codes = [0u8; LEN];
    let (mut scales, mut mins, mut sums) = ([0.0; 8], [0.0; 8], [0.0; 8]);
    let energy = importance.map_or(0.0, |_| 2.0 * sum_of_squares(values) / LEN as f32);
    for (j, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (weights, trials) = match importance {
            None => {
                let mean = (sum_of_squares(&subs[j]) / 32.0).sqrt();
                (subs[j].map(|x| mean + x.abs()), trials)
            }
            Some(importance) => (
                weigh(&importance[32 * j..], &subs[j], energy),
                Trials::WEIGHTED,
            ),
        };
        sums[j] = sum(&weights);
        let found = affine::search(&subs[j], &weights, max_code, trials, codes);
        (scales[j], mins[j]) = (found.scale, found.min);
    }
    let ((sc, d), (m, dmin)) = match importance {
        None => (scale_to_63(&scales), scale_to_63(&mins)),
        Some(_) => {
            let pack = |values| {
                let mut codes = [0; 8];
                let scale = positive::search(values, &sums, 63, &mut codes);
                (codes.map(|code| code.min(63)), scale)
            };
            (pack(&scales), pack(&mins))
        }
    };
    pack_scales_6bit(&sc, &m, &mut header[4..16]);
    let (d, dmin) = (write_f16(header, d), write_f16(&mut header[2..], dmin));
    for (j, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (d, dmin) = (d * f32::from(sc[j]), dmin * f32::from(m[j]));
        if d != 0.0 {
            *codes = subs[j].map(|x| nearest((x + dmin) / d).clamp(0, max_code) as u8);
        }
    }
    codes
}

impl BlockType for Q4K {
    const TYPE: GgmlType = GgmlType::Q4K;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales, mut mins) = ([0; LEN], [0.0; 8], [0.0; 8]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut mins);
        scale_and_shift(&codes, &scales, &mins, out);
    }
}

impl CodeBlock for Q4K {
    const CODE_BITS: u32 = 4;
    const OFFSET: i32 = 0;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        unpack_header(block, scales, mins);
        unpack_nibble_groups(head(&block[16..]), codes);
    }
}

/// What is tried without an importance matrix.
const TRIALS: Trials = Trials {
    first: -1.0,
    step: 0.1,
    count: 20,
    error: Error::Squared,
};

impl QuantizeBlock for Q4K {
    const IMPORTANCE: Importance = Importance::Optional;

    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, importance, out) in blocks_of::<Self>(values, importance, out) {
            let codes = quantize_subs(values, importance, 15, TRIALS, out);
            pack_nibble_groups(&codes, &mut out[16..]);
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{part::PartCodes, words::half_to_f32};

    /// Scale and min of one sub-block.
    #[derive(CubeType, Clone, Copy)]
    pub(crate) struct SubScale {
        pub scale: f32,
        pub min: f32,
    }

    /// Scale and min of sub-block `sub` from the 16-byte header at word `header`, which `Q5_K` shares.
    #[cube]
    pub(crate) fn sub_scale(words: &[u32], header: usize, sub: usize) -> SubScale {
        let d = words[header];
        let shift = u32::cast_from(sub % 4) * 8;
        let a = (words[header + 1] >> shift) & 0xff;
        let b = (words[header + 2] >> shift) & 0xff;
        let c = (words[header + 3] >> shift) & 0xff;
        let first = sub < 4;
        let scale = select(first, a & 63, (c & 15) | ((a >> 6) << 4));
        let min = select(first, b & 63, (c >> 4) | ((b >> 6) << 4));
        SubScale {
            scale: half_to_f32(d & 0xffff) * f32::cast_from(scale),
            min: half_to_f32(d >> 16) * f32::cast_from(min),
        }
    }

    /// Values `64 (part / 4) + 8 (part % 4) + {0..8, 32..40}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let group = part / 4;
        let first = block + 4 + group * 8 + part % 4 * 2;
        let mut codes = PartCodes::new();
        #[unroll]
        for half in 0..2usize {
            let sub = sub_scale(words, block, group * 2 + half);
            #[unroll]
            for i in 0..2usize {
                let nibbles = words[first + i] >> comptime!(4 * half as u32);
                codes.push_with_min(nibbles & 0x0f0f_0f0f, sub.scale, sub.min);
            }
        }
        codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_follow_the_diagram() {
        // Scale j is 8j + 1 and min j is 63 - 8j: all six bits of each take both values.
        let (sc, m): (Vec<u8>, Vec<u8>) = (0..8u8).map(|j| (8 * j + 1, 63 - 8 * j)).unzip();
        let mut packed = [0u8; 12];
        for j in 0..4 {
            packed[j] = sc[j] | sc[j + 4] >> 4 << 6;
            packed[j + 4] = m[j] | m[j + 4] >> 4 << 6;
            packed[j + 8] = sc[j + 4] & 15 | m[j + 4] << 4;
        }
        let mut got = [0; 12];
        pack_scales_6bit(
            sc[..].try_into().unwrap(),
            m[..].try_into().unwrap(),
            &mut got,
        );
        assert_eq!(got, packed);
        let (got_sc, got_m) = unpack_scales_6bit(&packed);
        assert_eq!(got_sc, *sc);
        assert_eq!(got_m, *m);
    }
}
