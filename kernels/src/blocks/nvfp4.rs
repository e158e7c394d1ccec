//! `NVFP4`: 64 values of 4-bit floats (`E2M1`) in 4 sub-blocks of 16, each with a scale of 7 bits (`UE4M3`), 36 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..4 | `d` | scale of sub-block `j`: four exponent bits of bias 7, three fraction bits; the top bit is ignored |
//! | 4..36 | `qs` | 8 bytes per sub-block: its value `i` in the low nibble of byte `i`, value `i + 8` in the high, `i < 8` |
//!
//! `value = scale * e2m1(q)`; kept doubled as in `MXFP4`: `value = scale / 2 * E2M1[q]`. The byte `0x7f`, NaN in the
//! format's standard, is a zero scale in ggml; `0xff` is not.

use super::mxfp4::{E2M1_OFFSET, pack_e2m1, unpack_e2m1};
use super::{BlockType, CodeBlock, head};
use crate::GgmlType;
use crate::quantize::rounding::largest_magnitude;
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `NVFP4`.
pub struct NVFP4;

const LEN: usize = 64;
const SUB: usize = 16;
const BYTES: usize = LEN / SUB + LEN / 2;
const _: () = assert!(BYTES == GgmlType::NVFP4.block_bytes() && LEN == GgmlType::NVFP4.block_len());

/// Half of the number that `bits` stands for.
#[inline(always)]
pub(super) fn half_ue4m3(bits: u8) -> f32 {
    if bits == 0x7f {
        return 0.0;
    }
    let (exponent, fraction) = (u32::from(bits >> 3 & 15), u32::from(bits & 7));
    if exponent == 0 {
        // Steps of 2^-9, halved.
        return fraction as f32 * f32::from_bits((127 - 10) << 23);
    }
    f32::from_bits((exponent + 127 - 8) << 23 | fraction << 20)
}

impl BlockType for NVFP4 {
    const TYPE: GgmlType = GgmlType::NVFP4;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let (mut codes, mut scales) = ([0; LEN], [0.0; LEN / SUB]);
        Self::unpack_block(block, &mut codes, &mut scales, &mut []);
        let subs = out[..LEN]
            .chunks_exact_mut(SUB)
            .zip(codes.chunks_exact(SUB));
        for (j, (out, codes)) in subs.enumerate() {
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = (i32::from(code) - Self::OFFSET) as f32 * scales[j];
            }
        }
    }
}

impl CodeBlock for NVFP4 {
    const CODE_BITS: u32 = 5;
    const OFFSET: i32 = E2M1_OFFSET;
    const SUB_LEN: usize = SUB;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let (d, qs) = head::<BYTES>(block).split_at(LEN / SUB);
        for (scale, &d) in scales[..LEN / SUB].iter_mut().zip(d) {
            *scale = half_ue4m3(d);
        }
        let subs = qs
            .chunks_exact(SUB / 2)
            .zip(codes[..LEN].chunks_exact_mut(SUB));
        for (qs, codes) in subs {
            unpack_e2m1(qs, codes);
        }
    }
}

/// The bits of about the nearest scale: ties go up, and from 256 everything is 448.
#[inline(always)]
fn to_ue4m3(value: f32) -> u8 {
    const LARGEST: u8 = 0x7e;
    if value.is_nan() || value <= 0.0 {
        return 0;
    }
    // Exponent and three fraction bits, as if the exponent's bias were 7; below one the number is subnormal.
    let exponent = (value.to_bits() >> 23) as i32 - 127 + 7;
    if exponent <= 0 {
        return ((value * 512.0 + 0.5) as u8).min(7);
    }
    let rounded = (((value.to_bits() >> 19) + 1) >> 1) as i32 - ((127 - 7) << 3);
    if rounded < 15 << 3 {
        rounded as u8
    } else {
        LARGEST
    }
}

impl QuantizeBlock for NVFP4 {
    const IMPORTANCE: Importance = Importance::Ignored;

    /// A scale takes the largest magnitude of its sub-block to 6.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let (d, qs) = out.split_at_mut(LEN / SUB);
            let subs = values.as_chunks::<SUB>().0.iter().zip(d);
            for ((values, d), qs) in subs.zip(qs.chunks_exact_mut(SUB / 2)) {
                *d = to_ue4m3(largest_magnitude(values) / 6.0);
                pack_e2m1(values, half_ue4m3(*d), qs);
            }
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::blocks::mxfp4::device::e2m1_codes;
    use crate::cube::part::PartCodes;

    /// Values `16 part + 0..16` of the block at byte `block`: a sub-block.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let scale = half_of_ue4m3((words[block] >> (u32::cast_from(part) * 8)) & 0xff);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            let qs = words[block + 1 + part * 2 + comptime!(q % 2)];
            codes.push(e2m1_codes(qs >> comptime!(4 * (q as u32 / 2))), scale);
        }
        codes
    }

    /// Half of the number with 4 bits of exponent and 3 of mantissa; the top bit is ignored, and 0x7f is 0.
    #[cube]
    fn half_of_ue4m3(bits: u32) -> f32 {
        let exponent = (bits >> 3) & 15;
        let mantissa = bits & 7;
        let significand = select(exponent == 0, mantissa, mantissa + 8);
        let power = select(exponent == 0, 117u32, exponent + 116);
        let value = f32::cast_from(significand) * f32::reinterpret(power << 23);
        select(bits == 0x7f, 0.0, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_what_their_bits_say() {
        for bits in (0..=255u8).filter(|bits| *bits != 0x7f) {
            let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7) / 8.0);
            let want = match exponent {
                0 => fraction * 2f64.powi(-6),
                _ => (1.0 + fraction) * 2f64.powi(exponent - 7),
            };
            assert_eq!(f64::from(half_ue4m3(bits)), want / 2.0, "{bits:#x}");
        }
        assert_eq!(half_ue4m3(0x7f), 0.0);
    }
}
