//! `MXFP4`: 32 values of 4-bit floats (`E2M1`) and one power of two (`E8M0`), 17 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..1 | `e` | scale `2^(e - 127)` |
//! | 1..17 | `qs` | value `i` in the low nibble of byte `i`, value `i + 16` in its high nibble, `i < 16` |
//!
//! `value = scale * e2m1(q)`. Everything is kept doubled, so that the codes are integers: `value = scale / 2 * E2M1[q]`,
//! and as an unsigned code `E2M1[q] + 12`. An `e` of 255, NaN in the format's standard, is `2^128` here as in ggml.

use super::{BlockType, CodeBlock, head};
use crate::GgmlType;
use crate::quantize::rounding::largest_magnitude;
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `MXFP4`.
pub struct MXFP4;

const LEN: usize = 32;
const BYTES: usize = 1 + LEN / 2;
const _: () = assert!(BYTES == GgmlType::MXFP4.block_bytes() && LEN == GgmlType::MXFP4.block_len());

/// Twice the value of each 4-bit float: one sign bit, two exponent bits of bias 1, one fraction bit.
pub(super) const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The largest of `E2M1`: what makes its values unsigned.
pub(super) const E2M1_OFFSET: i32 = 12;

/// `E2M1` as codes.
pub(crate) const E2M1_CODES: [u8; 16] = {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = (E2M1[i] as i32 + E2M1_OFFSET) as u8;
        i += 1;
    }
    codes
};

/// Codes of the nibbles of `qs`: the low ones first, then the high ones.
#[inline(always)]
pub(super) fn unpack_e2m1(qs: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(qs.len());
    for ((byte, low), high) in qs.iter().zip(low).zip(high) {
        *low = E2M1_CODES[usize::from(byte & 15)];
        *high = E2M1_CODES[usize::from(byte >> 4)];
    }
}

/// Half of `2^(e - 127)`.
#[inline(always)]
pub(crate) const fn half_e8m0(e: u8) -> f32 {
    // Exponents below 2 are subnormal once halved.
    f32::from_bits(match e {
        0 | 1 => 0x0020_0000 << e,
        _ => (e as u32 - 1) << 23,
    })
}

impl BlockType for MXFP4 {
    const TYPE: GgmlType = GgmlType::MXFP4;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scale) = ([0; LEN], [0.0]);
        Self::unpack_block(block, &mut codes, &mut scale, &mut []);
        for (out, code) in out[..LEN].iter_mut().zip(codes) {
            *out = (i32::from(code) - Self::OFFSET) as f32 * scale[0];
        }
    }
}

impl CodeBlock for MXFP4 {
    const CODE_BITS: u32 = 5;
    const OFFSET: i32 = E2M1_OFFSET;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[0] = half_e8m0(block[0]);
        unpack_e2m1(&block[1..], &mut codes[..LEN]);
    }
}

/// Packs the index of the nearest of `E2M1` times `scale` of each value, the first of equally near ones, in the order of
/// `unpack_e2m1`.
#[inline(always)]
pub(super) fn pack_e2m1<const N: usize>(values: &[f32; N], scale: f32, qs: &mut [u8]) {
    let (mut nearest, mut least) = ([0u32; N], values.map(|x| (0.0 * scale - x).abs()));
    for (index, doubled) in E2M1.iter().enumerate().skip(1) {
        let candidate = f32::from(*doubled) * scale;
        for i in 0..N {
            let error = (candidate - values[i]).abs();
            let nearer = error < least[i];
            least[i] = if nearer { error } else { least[i] };
            nearest[i] = if nearer { index as u32 } else { nearest[i] };
        }
    }
    let (low, high) = nearest.split_at(N / 2);
    for ((byte, low), high) in qs[..N / 2].iter_mut().zip(low).zip(high) {
        *byte = (low | high << 4) as u8;
    }
}

/// The logarithm as `f32`, without its fraction: a number just below a power of two counts as that power.
#[inline(always)]
fn floor_log2(value: f32) -> i32 {
    let bits = value.to_bits();
    if bits & 0x007f_ff00 != 0x007f_ff00 {
        // Too far below for rounding to matter. Zero and subnormals come out below everything else.
        return (bits >> 23) as i32 - 127;
    }
    (f64::from(value).log2() as f32).floor() as i32
}

impl QuantizeBlock for MXFP4 {
    const IMPORTANCE: Importance = Importance::Ignored;

    /// The scale is the power of two that takes the largest magnitude to 4 or above, but below 8.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let values: &[f32; LEN] = values.first_chunk().expect("a block");
            let most = largest_magnitude(values);
            out[0] = (floor_log2(most) - 2 + 127).clamp(0, 255) as u8;
            pack_e2m1(values, half_e8m0(out[0]), &mut out[1..]);
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::{
        part::PartCodes,
        words::{run_at, sign_bytes, u8_at},
    };

    /// Values `8 part + {0..8, 16..24}` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let e = u8_at(words, block);
        // 2^(e - 128), subnormal below 2.
        let bits = select(e < 2, 0x0020_0000u32 << (e & 1), (e - 1) << 23);
        let scale = f32::reinterpret(bits);
        let qs = run_at(words, block + 1 + part * 8, 2usize);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push(
                e2m1_codes(qs[comptime!(q % 2)] >> comptime!(4 * (q as u32 / 2))),
                scale,
            );
        }
        codes
    }

    /// Twice the e2m1 number in the low nibble of each byte, plus 12.
    #[cube]
    pub(crate) fn e2m1_codes(nibbles: u32) -> u32 {
        let mantissa = nibbles & 0x0101_0101;
        let low = (nibbles >> 1) & 0x0101_0101;
        let high = (nibbles >> 2) & 0x0101_0101;
        // The implied bit, then one doubling from exponent 2 on and one more at 3.
        let normal = mantissa | ((low | high) << 1);
        let doubled = normal + (normal & (high * 255));
        let magnitudes = doubled + (doubled & ((low & high) * 255));
        sign_bytes(magnitudes, (nibbles >> 3) & 0x0101_0101, 12u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_halved_powers_of_two() {
        for e in 0..=255u8 {
            let want = 2f64.powi(i32::from(e) - 128);
            assert_eq!(f64::from(half_e8m0(e)), want, "{e}");
        }
    }

    #[test]
    fn logarithms_are_rounded_before_they_are_cut() {
        for power in -120..=127 {
            let exact = 2f32.powi(power);
            assert_eq!(floor_log2(exact), power);
            for steps in 1..600 {
                let below = f32::from_bits(exact.to_bits() - steps);
                let want = (f64::from(below).log2() as f32).floor() as i32;
                assert_eq!(floor_log2(below), want, "{below:e}");
            }
        }
        // 1.4427 * 2^-24 below 16 is less than half a step of f32 there, below 2 it is more.
        assert_eq!(floor_log2(16f32.next_down()), 4);
        assert_eq!(floor_log2(2f32.next_down()), 0);
        assert_eq!(floor_log2(0.0), -127);
    }

    #[test]
    fn e2m1_is_what_its_bits_say() {
        for (bits, &doubled) in E2M1.iter().enumerate() {
            let (exponent, fraction) = (bits as i32 >> 1 & 3, (bits & 1) as f32);
            let magnitude = match exponent {
                0 => fraction / 2.0,
                _ => (1.0 + fraction / 2.0) * 2f32.powi(exponent - 1),
            };
            let sign = if bits < 8 { 1.0 } else { -1.0 };
            assert_eq!(f32::from(doubled), 2.0 * sign * magnitude);
        }
    }
}
