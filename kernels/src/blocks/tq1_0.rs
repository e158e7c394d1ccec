//! `TQ1_0`: 256 values of -1, 0 or 1 and one scale, five to a byte, 54 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..32 | `qs` | values `32 n + i` as digit `n` of byte `i`, `n < 5` |
//! | 32..48 | `qs` | values `160 + 16 n + i` as digit `n` of byte `32 + i`, `n < 5` |
//! | 48..52 | `qh` | values `240 + 4 n + i` as digit `n` of byte `48 + i`, `n < 4` |
//! | 52..54 | `d` | scale, `f16` |
//!
//! `value = d * (digit - 1)`
//!
//! A byte is a fraction of 256 with five digits in base 3, most significant first, rounded up: digit `n` is the whole
//! part of three times the fraction that is left after dropping the `n` digits before it.

use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head, read_f16};
use crate::GgmlType;
use crate::quantize::rounding::{inverse, largest_magnitude, nearest_away, write_f16};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `TQ1_0`.
pub struct TQ1_0;

const LEN: usize = 256;
const BYTES: usize = 48 + 4 + 2;
const _: () = assert!(BYTES == GgmlType::TQ1_0.block_bytes() && LEN == GgmlType::TQ1_0.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

/// Where the bytes are, and how many digits each has: the values of a run are its digits 0, then its digits 1, ...
pub(super) const RUNS: [(std::ops::Range<usize>, usize); 3] =
    [(0..32, 5), (32..48, 5), (48..52, 4)];

/// The digits 0 of all `bytes`, then the digits 1, and so on until `codes` is full.
#[inline(always)]
fn unpack_digits(bytes: &[u8], codes: &mut [u8]) {
    let mut power = 1u8;
    for codes in codes.chunks_exact_mut(bytes.len()) {
        for (code, byte) in codes.iter_mut().zip(bytes) {
            let rest = byte.wrapping_mul(power);
            *code = ((u16::from(rest) * 3) >> 8) as u8;
        }
        power = power.wrapping_mul(3);
    }
}

impl BlockType for TQ1_0 {
    const TYPE: GgmlType = GgmlType::TQ1_0;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales) = ([0; LEN], [0.0; 8]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut []);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = (i32::from(code) - Self::OFFSET) as f32 * scales[0];
        }
    }
}

impl CodeBlock for TQ1_0 {
    const CODE_BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[..LEN / Self::SUB_LEN].fill(read_f16(&block[52..]));
        let mut rest = &mut codes[..LEN];
        for (bytes, digits) in RUNS {
            let (codes, after) = rest.split_at_mut(bytes.len() * digits);
            unpack_digits(&block[bytes], codes);
            rest = after;
        }
    }
}

impl QuantizeBlock for TQ1_0 {
    const IMPORTANCE: Importance = Importance::Ignored;

    /// The scale is the largest magnitude.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let d = largest_magnitude(values);
            let inverse = inverse(d);
            write_f16(&mut out[52..], d);
            let mut rest = values;
            for (bytes, digits) in RUNS {
                let stride = bytes.len();
                let (values, after) = rest.split_at(stride * digits);
                for (i, out) in out[bytes].iter_mut().enumerate() {
                    let number = values[i..].iter().step_by(stride).fold(0, |number, x| {
                        number * 3 + (nearest_away(x * inverse, -1, 1) + 1) as u16
                    });
                    // A missing fifth digit is zero.
                    let number = if digits == 5 { number } else { number * 3 };
                    *out = (number * 256).div_ceil(243) as u8;
                }
                rest = after;
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
        words::{half_to_f32, run_at, u16_at},
    };

    /// Values `16 part + 0..16` of the block at byte `block`.
    ///
    /// Parts 0..10 are trits 0..5 of bytes 0..32, parts 10..15 those of bytes 32..48, and the quads of part 15 trits 0..4
    /// of bytes 48..52.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let last = part == 15;
        let first = select(part < 10, part % 2 * 16, select(last, 36usize, 32usize));
        let trit = u32::cast_from(select(part < 10, part / 2, part - 10));
        // 3^trit, from the bytes 1, 3, 9, 27.
        let power = select(trit == 4, 81u32, (0x1b09_0301u32 >> (trit % 4 * 8)) & 0xff);
        let run = run_at(words, block + first, 4usize);
        let scale = half_to_f32(u16_at(words, block + 52));
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            let bytes = select(last, run[3], run[q]);
            let power = select(last, comptime!(3u32.pow(q as u32)).runtime(), power);
            let even = trits(bytes & 0x00ff_00ff, power);
            let odd = trits((bytes >> 8) & 0x00ff_00ff, power);
            codes.push(even | (odd << 8), scale);
        }
        codes
    }

    /// The leading trit of the fraction `byte * power / 256` of the byte in each half.
    #[cube]
    fn trits(bytes: u32, power: u32) -> u32 {
        let fraction = (bytes * power) & 0x00ff_00ff;
        ((fraction * 3) >> 8) & 0x0003_0003
    }
}
