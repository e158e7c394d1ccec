//! Block types: one file per ggml type with its layout, scalar dequantization, code unpacking and packing.
//!
//! Two kinds of type exist. [`FloatBlock`] types store numbers as they are (`F32`, `F16`, `BF16`, `F64`,
//! integers). [`CodeBlock`]
//! types store small integer codes with scales; all of them are affine per sub-block,
//! `value = scale * (code - OFFSET) - min`, which is what lets one matrix kernel serve every type.
//!
//! Adding a type: one file here, one line in the table at the end of this module; if it can be written, one in
//! [`crate::quantize`].

mod bf16;
mod centered;
pub(crate) mod codebook;
mod f16;
mod f32;
mod f64;
mod i16;
mod i32;
mod i64;
mod i8;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod tq1_0;
mod tq2_0;

#[cfg(test)]
pub(crate) mod golden;

pub use bf16::BF16;
pub use f16::F16;
pub use f32::F32;
pub use f64::F64;
pub use i8::I8;
pub use i16::I16;
pub use i32::I32;
pub use i64::I64;
pub use iq1_m::IQ1M;
pub use iq1_s::IQ1S;
pub use iq2_s::IQ2S;
pub use iq2_xs::IQ2XS;
pub use iq2_xxs::IQ2XXS;
pub use iq3_s::IQ3S;
pub use iq3_xxs::IQ3XXS;
pub use iq4_nl::IQ4NL;
pub use iq4_xs::IQ4XS;
pub use mxfp4::MXFP4;
pub use nvfp4::NVFP4;
pub use q1_0::Q1_0;
pub use q2_0::Q2_0;
pub use q2_k::Q2K;
pub use q3_k::Q3K;
pub use q4_0::Q4_0;
pub use q4_1::Q4_1;
pub use q4_k::Q4K;
pub use q5_0::Q5_0;
pub use q5_1::Q5_1;
pub use q5_k::Q5K;
pub use q6_k::Q6K;
pub use q8_0::Q8_0;
pub use q8_1::Q8_1;
pub use q8_k::Q8K;
pub use tq1_0::TQ1_0;
pub use tq2_0::TQ2_0;

#[cfg_attr(not(target_arch = "x86_64"), expect(unused_imports))]
pub(crate) use mxfp4::E2M1_CODES;
#[cfg(target_arch = "x86_64")]
pub(crate) use mxfp4::half_e8m0;
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_imports))]
pub(crate) use q4_k::unpack_scales_6bit;

use crate::GgmlType;

/// Longest block of any type, in values: the size of a stack buffer that holds one dequantized block.
pub const MAX_BLOCK_LEN: usize = 256;

/// A ggml type whose blocks can be turned into `f32`.
pub trait BlockType: Sized + 'static {
    /// The row of the type table this is.
    const TYPE: GgmlType;
    /// Values per block.
    const LEN: usize = Self::TYPE.block_len();
    /// Bytes per block.
    const BYTES: usize = Self::TYPE.block_bytes();

    /// Decodes one block of `BYTES` bytes into `LEN` values, bit-equal to ggml's own decoder.
    ///
    /// # Panics
    /// If either slice is shorter than one block. Longer slices are allowed; the rest is left alone.
    fn dequantize_block(block: &[u8], out: &mut [f32]);
}

/// A type of plain numbers, one per block.
pub trait FloatBlock: BlockType {}

/// A type of integer codes: within a sub-block of `SUB_LEN` values, `value = scale * (code - OFFSET) - min`.
pub trait CodeBlock: BlockType {
    /// Bits a code needs: every code is below `1 << CODE_BITS`.
    const CODE_BITS: u32;
    /// Subtracted from every code before scaling.
    const OFFSET: i32;
    /// Values that share a scale: 16 or 32.
    const SUB_LEN: usize;
    /// Whether sub-blocks have a `min`; where not, `unpack_block` leaves `mins` alone.
    const HAS_MIN: bool;

    /// Splits one block into `LEN` codes in the order of the values, and `LEN / SUB_LEN` scales and mins.
    ///
    /// # Panics
    /// If a slice is shorter than that (`mins` only where the type has them).
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]);
}

/// What to do with a block type that is only known at run time; see [`visit`].
pub trait BlockVisitor {
    /// What the visit returns.
    type Output;
    /// Called for a type of plain numbers.
    fn float<T: FloatBlock>(self) -> Self::Output;
    /// Called for a type of codes and scales.
    fn code<T: CodeBlock>(self) -> Self::Output;
}

macro_rules! block_types {
    (float: $($float:ident),*; code: $($code:ident),*;) => {
        /// Calls the visitor with the Rust type of `ty`; `None` if no file here implements it.
        pub fn visit<V: BlockVisitor>(ty: GgmlType, visitor: V) -> Option<V::Output> {
            match ty {
                $(GgmlType::$float => Some(visitor.float::<$float>()),)*
                $(GgmlType::$code => Some(visitor.code::<$code>()),)*
                _ => None,
            }
        }

        /// Every type implemented here.
        pub const IMPLEMENTED: &[GgmlType] = &[$(GgmlType::$float,)* $(GgmlType::$code,)*];
    };
}

block_types! {
    float: F32, F16, BF16, F64, I8, I16, I32, I64;
    code: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4K, Q5K, Q6K,
        Q1_0, Q2_0, Q8_1, Q2K, Q3K, Q8K, TQ1_0, TQ2_0, MXFP4, NVFP4,
        IQ1S, IQ1M, IQ2XXS, IQ2XS, IQ2S, IQ3XXS, IQ3S, IQ4NL, IQ4XS;
}

/// The first `N` bytes as an array, so that the indices after it need no checks.
#[inline(always)]
fn head<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a whole block")
}

/// The little-endian `f16` at the start of `bytes`.
///
/// Not `f16::to_f32`: that asks for the CPU's features on every call, which keeps it from being inlined.
#[inline(always)]
pub(crate) fn read_f16(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes(*bytes.first_chunk().expect("two bytes")).to_f32_const()
}

/// The device decoding of each type, under the type's name.
#[cfg(feature = "cube")]
pub(crate) mod device {
    pub(crate) use super::{
        bf16::device as plain_bf16, f16::device as plain_f16, f32::device as plain_f32,
        f64::device as plain_f64, i8::device as plain_i8, i16::device as plain_i16,
        i32::device as plain_i32, i64::device as plain_i64, iq1_m::device as iq1_m,
        iq1_s::device as iq1_s, iq2_s::device as iq2_s, iq2_xs::device as iq2_xs,
        iq2_xxs::device as iq2_xxs, iq3_s::device as iq3_s, iq3_xxs::device as iq3_xxs,
        iq4_nl::device as iq4_nl, iq4_xs::device as iq4_xs, mxfp4::device as mxfp4,
        nvfp4::device as nvfp4, q1_0::device as q1_0, q2_0::device as q2_0, q2_k::device as q2_k,
        q3_k::device as q3_k, q4_0::device as q4_0, q4_1::device as q4_1, q4_k::device as q4_k,
        q5_0::device as q5_0, q5_1::device as q5_1, q5_k::device as q5_k, q6_k::device as q6_k,
        q8_0::device as q8_0, q8_1::device as q8_1, q8_k::device as q8_k, tq1_0::device as tq1_0,
        tq2_0::device as tq2_0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Decode<'a>(&'a [u8]);

    impl BlockVisitor for Decode<'_> {
        type Output = Vec<f32>;

        fn float<T: FloatBlock>(self) -> Vec<f32> {
            decode::<T>(self.0)
        }

        fn code<T: CodeBlock>(self) -> Vec<f32> {
            decode::<T>(self.0)
        }
    }

    fn decode<T: BlockType>(bytes: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; bytes.len() / T::BYTES * T::LEN];
        for (block, out) in bytes
            .chunks_exact(T::BYTES)
            .zip(out.chunks_exact_mut(T::LEN))
        {
            T::dequantize_block(block, out);
        }
        out
    }

    #[test]
    fn dequantize_is_bit_equal_to_ggml() {
        for &ty in IMPLEMENTED {
            if ty.block_len() == 1 {
                continue;
            }
            for golden in golden::load(ty) {
                let got = visit(ty, Decode(&golden.bytes)).unwrap();
                assert_eq!(got.len(), golden.values.len());
                for (i, (a, b)) in got.iter().zip(&golden.values).enumerate() {
                    assert_eq!(
                        a.to_bits(),
                        b.to_bits(),
                        "{ty} {} value {i}: {a} is not {b}",
                        golden.name
                    );
                }
            }
        }
    }

    /// `scale * (code - OFFSET) - min` from the unpacked parts must give what `dequantize_block` gives.
    struct CheckCodes<'a>(&'a [u8]);

    impl BlockVisitor for CheckCodes<'_> {
        type Output = ();

        fn float<T: FloatBlock>(self) {}

        fn code<T: CodeBlock>(self) {
            let (mut codes, mut values) = ([0u8; MAX_BLOCK_LEN], [0.0f32; MAX_BLOCK_LEN]);
            let (mut scales, mut mins) = ([0.0f32; 16], [0.0f32; 16]);
            for block in self.0.chunks_exact(T::BYTES) {
                T::dequantize_block(block, &mut values);
                T::unpack_block(block, &mut codes, &mut scales, &mut mins);
                for i in 0..T::LEN {
                    assert!(u32::from(codes[i]) < 1 << T::CODE_BITS);
                    let sub = i / T::SUB_LEN;
                    let min = if T::HAS_MIN { mins[sub] } else { 0.0 };
                    let value = scales[sub] * (i32::from(codes[i]) - T::OFFSET) as f32 - min;
                    assert_eq!(value, values[i], "{} value {i}", T::TYPE);
                }
            }
        }
    }

    #[test]
    fn unpacked_codes_give_the_same_values() {
        for &ty in IMPLEMENTED {
            if ty.block_len() > 1 {
                for golden in golden::load(ty) {
                    visit(ty, CheckCodes(&golden.bytes)).unwrap();
                }
            }
        }
    }

    #[test]
    fn plain_numbers_decode_as_half_says() {
        let specials = [
            0u16, 1, 0x8000, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0x7c00, 0xfc00, 0x7f80, 0x1234,
        ];
        for bits in specials {
            let bytes = bits.to_le_bytes();
            assert_eq!(
                decode::<F16>(&bytes)[0].to_bits(),
                half::f16::from_bits(bits).to_f32().to_bits()
            );
            assert_eq!(
                decode::<BF16>(&bytes)[0].to_bits(),
                half::bf16::from_bits(bits).to_f32().to_bits()
            );
        }
        assert_eq!(decode::<F32>(&(-1.5f32).to_le_bytes()), [-1.5]);
    }

    #[test]
    fn wide_numbers_decode_to_the_nearest() {
        let f64s = [
            (0.1, 0.1f32),
            (-0.0, -0.0),
            (1e39, f32::INFINITY),
            (f64::MIN, f32::NEG_INFINITY),
            (f64::from(f32::MAX), f32::MAX),
            (1e-46, 0.0),
            (1e-45, f32::from_bits(1)),
            // Halfway between two neighbours: to the even one.
            (16_777_217.0, 16_777_216.0),
            (16_777_219.0, 16_777_220.0),
            (f64::INFINITY, f32::INFINITY),
        ];
        for (value, want) in f64s {
            let got = decode::<F64>(&f64::to_le_bytes(value))[0];
            assert_eq!(got.to_bits(), want.to_bits(), "{value}");
        }
        assert!(decode::<F64>(&f64::NAN.to_le_bytes())[0].is_nan());
        assert_eq!(
            decode::<I8>(&[0x80, 0xff, 0, 127]),
            [-128.0, -1.0, 0.0, 127.0]
        );
        let i16s = [i16::MIN, -1, 0, i16::MAX].map(i16::to_le_bytes).concat();
        assert_eq!(decode::<I16>(&i16s), [-32768.0, -1.0, 0.0, 32767.0]);
        let i32s = [i32::MIN, -3, 16_777_217, 16_777_219, i32::MAX];
        assert_eq!(
            decode::<I32>(&i32s.map(i32::to_le_bytes).concat()),
            [
                -2_147_483_648.0,
                -3.0,
                16_777_216.0,
                16_777_220.0,
                2_147_483_648.0
            ]
        );
        let i64s = [i64::MIN, -5, 1 << 40, (1 << 40) + (1 << 16) + 1, i64::MAX];
        assert_eq!(
            decode::<I64>(&i64s.map(i64::to_le_bytes).concat()),
            [
                -9.223_372e18,
                -5.0,
                1_099_511_627_776.0,
                1_099_511_758_848.0,
                9.223_372e18
            ]
        );
    }

    #[test]
    fn a_zero_scale_keeps_the_sign_ggml_gives() {
        let mut block = [0u8; Q1_0::BYTES];
        block[2] = 1;
        let values = decode::<Q1_0>(&block);
        assert_eq!([values[0], values[1]].map(f32::to_bits), [0, 1 << 31]);
    }

    #[test]
    fn a_type_without_a_file_is_none() {
        assert!(visit(GgmlType::Q4_0x4x4, Decode(&[])).is_none());
    }
}
