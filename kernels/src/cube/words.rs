//! Reading bytes and small floats out of a buffer of `u32` words.
//!
//! WGSL has no 8-bit or 16-bit types, so everything here is shifts and masks on `u32`. Byte offsets count from the
//! start of the binding, little-endian.

use cubecl::prelude::*;

/// Four consecutive values.
pub type Quad = Vector<f32, Const<4>>;

/// The byte at `byte`.
#[cube]
pub(crate) fn u8_at(words: &[u32], byte: usize) -> u32 {
    (words[byte / 4] >> (u32::cast_from(byte % 4) * 8)) & 0xff
}

/// The two bytes at `byte`, which is even.
#[cube]
pub(crate) fn u16_at(words: &[u32], byte: usize) -> u32 {
    (words[byte / 4] >> (u32::cast_from(byte % 4) * 8)) & 0xffff
}

/// The low 32 bits of `high:low >> shift`, `shift < 32`; with `shift == 0` the value of `high` does not matter.
#[cube]
fn funnel(low: u32, high: u32, shift: u32) -> u32 {
    // Two steps because a shift by 32 is undefined.
    (low >> shift) | ((high << 1) << (31 - shift))
}

/// `count` consecutive 32-bit values from any byte offset, each word loaded once and none past the last byte.
#[cube]
pub(crate) fn run_at(words: &[u32], byte: usize, #[comptime] count: usize) -> Sequence<u32> {
    let first = byte / 4;
    let shift = u32::cast_from(byte % 4) * 8;
    let mut out = Sequence::<u32>::new();
    let mut low = words[first];
    #[unroll]
    for i in 0..count {
        // The last index stays inside the run when it is aligned, where the funnel ignores the upper word.
        let high = if comptime!(i + 1 == count) {
            words[(byte + comptime!(4 * count - 1)) / 4]
        } else {
            words[first + comptime!(i + 1)]
        };
        out.push(funnel(low, high, shift));
        low = high;
    }
    out
}

/// As [`run_at`], for runs that may pass the end of the buffer: the last word is repeated there.
#[cube]
pub(crate) fn run_at_clamped(
    words: &[u32],
    byte: usize,
    #[comptime] count: usize,
) -> Sequence<u32> {
    let last = words.len() - 1;
    let first = byte / 4;
    let shift = u32::cast_from(byte % 4) * 8;
    let mut out = Sequence::<u32>::new();
    let mut low = words[min(first, last)];
    #[unroll]
    for i in 0..count {
        let high = words[min(first + comptime!(i + 1), last)];
        out.push(funnel(low, high, shift));
        low = high;
    }
    out
}

/// An IEEE half in the low 16 bits as `f32`; exact for subnormals, infinities and NaN on devices that flush
/// `f32` subnormals too, since none is ever formed.
#[cube]
pub(crate) fn half_to_f32(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    let subnormal = u32::reinterpret(f32::cast_from(magnitude) * 5.960_464_5e-8f32);
    let rebias = select(magnitude >= 0x7c00, 0x7000_0000u32, 0x3800_0000u32);
    let normal = (magnitude << 13) + rebias;
    let value = select(magnitude < 0x400, subnormal, normal);
    f32::reinterpret(value | ((bits & 0x8000) << 16))
}

/// A `bfloat16` in the low 16 bits as `f32`.
#[cube]
pub(crate) fn bfloat_to_f32(bits: u32) -> f32 {
    f32::reinterpret(bits << 16)
}

/// The four bytes of a word as floats, lowest byte first.
#[cube]
pub(crate) fn bytes_to_quad(word: u32) -> Quad {
    let mut quad = Quad::empty();
    #[unroll]
    for i in 0..4usize {
        let shift = comptime!(8 * i as u32);
        quad.insert(i, f32::cast_from((word >> shift) & 0xff));
    }
    quad
}

/// Bits 0..4 of `bits`, each moved to the lowest bit of its own byte.
#[cube]
pub(crate) fn bits_to_bytes(bits: u32) -> u32 {
    // The four shifted copies of a nibble do not overlap, so the product is their union.
    ((bits & 0xf) * 0x0020_4081) & 0x0101_0101
}

/// Pairs of bits 0..8 of `bits`, each in the low bits of its own byte.
#[cube]
pub(crate) fn crumbs_to_bytes(bits: u32) -> u32 {
    let bits = bits & 0xff;
    let halves = (bits | (bits << 12)) & 0x000f_000f;
    (halves | (halves << 6)) & 0x0303_0303
}

/// In each byte, `offset - magnitude` where the byte of `signs` is 1 and `offset + magnitude` where it is 0. Neither
/// `offset + magnitude` nor twice the magnitude may exceed 255, nor the magnitude `offset`.
#[cube]
pub(crate) fn sign_bytes(magnitudes: u32, signs: u32, #[comptime] offset: u32) -> u32 {
    let negative = magnitudes & (signs * 255);
    comptime!(offset * 0x0101_0101) + magnitudes - (negative << 1)
}

/// The nearest half of `value`, ties to even, in the low 16 bits.
#[cube]
pub(crate) fn f32_to_half(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let rebased = magnitude - 0x3800_0000;
    let rounded = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
    let normal = select(magnitude >= 0x4780_0000, 0x7c00u32, rounded);
    // Below the normal halves the spacing is 2^-24: scaled by 2^24, adding 2^23 leaves the rounded integer in the
    // low bits of the sum.
    let scaled = f32::reinterpret(magnitude) * 16_777_216.0f32 + 8_388_608.0f32;
    let subnormal = u32::reinterpret(scaled) & 0x007f_ffff;
    let finite = select(magnitude < 0x3880_0000, subnormal, normal);
    let nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    select(magnitude > 0x7f80_0000, nan, finite) | sign
}

/// The nearest `bfloat16` of `value`, ties to even, in the low 16 bits.
#[cube]
pub(crate) fn f32_to_bfloat(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    let rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    select((bits & 0x7fff_ffff) > 0x7f80_0000, nan, rounded)
}
