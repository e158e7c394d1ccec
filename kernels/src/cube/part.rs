//! The piece of a row that one unit decodes at a time: a *part* of 16 values.
//!
//! Block types pack values that lie far apart into one byte, so the 16 values of a part are not consecutive: they are
//! four quads of consecutive values, picked such that a part uses whole bytes. `group` neighbouring parts together cover
//! `16 * group` consecutive values, a *span*:
//!
//! | types | `run` | `group` | quads of part `p` start at |
//! |---|---|---|---|
//! | plain numbers, `Q8_*`, `Q1_0`, `Q2_0`, `NVFP4`, `TQ1_0`, `IQ1_*`, `IQ2_*`, `IQ3_*` | 16 | 1 | `16 p + {0, 4, 8, 12}` |
//! | `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `IQ4_*`, `MXFP4` | 8 | 2 | `32 (p / 2) + 8 (p % 2) + {0, 4, 16, 20}` |
//! | `Q4_K`, `Q5_K`, `Q6_K` | 8 | 4 | `64 (p / 4) + 8 (p % 4) + {0, 4, 32, 36}` |
//! | `Q2_K`, `Q3_K`, `TQ2_0` | 4 | 8 | `128 (p / 8) + 4 (p % 8) + {0, 32, 64, 96}` |
//!
//! `run` is how many consecutive values a part has in a row. The decoding of a type of codes gives [`PartCodes`]: codes
//! as bytes with a scale per quad, like `unpack_block` of its scalar side. From those come values
//! ([`unpack_part`]) or signed bytes for integer products ([`signed_codes`]).
//!
//! Neighbouring units take neighbouring parts, so that both the weight words and the activations of a plane are read
//! from neighbouring addresses.

use cubecl::prelude::*;

use super::{
    CubeError,
    words::{Quad, bytes_to_quad},
};
use crate::{
    GgmlType,
    blocks::device::{
        iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, nvfp4,
        plain_bf16, plain_f16, plain_f32, plain_f64, plain_i8, plain_i16, plain_i32, plain_i64,
        q1_0, q2_0, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_1, q8_k, tq1_0,
        tq2_0,
    },
};

/// Values in a part.
pub(crate) const PART_LEN: usize = 16;
/// Quads in a part.
pub(crate) const PART_QUADS: usize = 4;

/// How a block type is split into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartLayout {
    /// Bytes of one block; for plain number types, of the 16 values of a part.
    pub block_bytes: usize,
    /// Parts in one block.
    pub per_block: usize,
    /// Consecutive values in a part: 4, 8 or 16.
    pub run: usize,
    /// Neighbouring parts that together cover consecutive values: `16 / run` or a multiple.
    pub group: usize,
    /// Subtracted from the codes.
    pub offset: u32,
    /// Whether there are mins.
    pub has_min: bool,
}

impl PartLayout {
    /// The layout of `ty`, or an error naming the type when there is no device code for it.
    pub(crate) fn of(ty: GgmlType) -> Result<Self, CubeError> {
        let (run, group) = match ty {
            GgmlType::Q4_0 | GgmlType::Q4_1 | GgmlType::Q5_0 | GgmlType::Q5_1 => (8, 2),
            GgmlType::IQ4NL | GgmlType::IQ4XS | GgmlType::MXFP4 => (8, 2),
            GgmlType::Q4K | GgmlType::Q5K | GgmlType::Q6K => (8, 4),
            GgmlType::Q2K | GgmlType::Q3K | GgmlType::TQ2_0 => (4, 8),
            _ => (16, 1),
        };
        let (offset, has_min) = match ty {
            GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 | GgmlType::F64 => (0, false),
            GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64 => (0, false),
            GgmlType::Q4_1 | GgmlType::Q5_1 => (0, true),
            GgmlType::Q2K | GgmlType::Q4K | GgmlType::Q5K => (0, true),
            GgmlType::Q1_0 | GgmlType::Q2_0 | GgmlType::TQ1_0 | GgmlType::TQ2_0 => (1, false),
            GgmlType::Q3K => (4, false),
            GgmlType::Q4_0 => (8, false),
            GgmlType::IQ1S | GgmlType::IQ1M => (9, false),
            GgmlType::MXFP4 | GgmlType::NVFP4 => (12, false),
            GgmlType::IQ3S => (15, false),
            GgmlType::Q5_0 => (16, false),
            GgmlType::Q6K => (32, false),
            GgmlType::IQ2XXS | GgmlType::IQ2XS | GgmlType::IQ2S => (43, false),
            GgmlType::IQ3XXS => (62, false),
            GgmlType::Q8_0 | GgmlType::Q8_1 | GgmlType::Q8K => (128, false),
            GgmlType::IQ4NL | GgmlType::IQ4XS => (128, false),
            _ => return Err(CubeError::UnsupportedType(ty)),
        };
        let per_block = (ty.block_len() / PART_LEN).max(1);
        let blocks = per_block * PART_LEN / ty.block_len();
        Ok(Self {
            block_bytes: blocks * ty.block_bytes(),
            per_block,
            run,
            group,
            offset,
            has_min,
        })
    }

    /// As [`PartLayout::of`], for kernels: the launch has checked the type.
    pub(crate) fn known(ty: GgmlType) -> Self {
        Self::of(ty).expect("the launch checked the type")
    }
}

/// Every block type with device code.
pub const DEVICE_TYPES: [GgmlType; 35] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::F64,
    GgmlType::I8,
    GgmlType::I16,
    GgmlType::I32,
    GgmlType::I64,
    GgmlType::Q1_0,
    GgmlType::Q2_0,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q8_1,
    GgmlType::Q2K,
    GgmlType::Q3K,
    GgmlType::Q4K,
    GgmlType::Q5K,
    GgmlType::Q6K,
    GgmlType::Q8K,
    GgmlType::IQ1S,
    GgmlType::IQ1M,
    GgmlType::IQ2XXS,
    GgmlType::IQ2XS,
    GgmlType::IQ2S,
    GgmlType::IQ3XXS,
    GgmlType::IQ3S,
    GgmlType::IQ4NL,
    GgmlType::IQ4XS,
    GgmlType::TQ1_0,
    GgmlType::TQ2_0,
    GgmlType::MXFP4,
    GgmlType::NVFP4,
];

/// Whether the rows of `ty` may end anywhere, and not only after whole parts.
pub(crate) fn is_plain(ty: GgmlType) -> bool {
    ty.block_len() == 1
}

/// The value index in its row of the first value of `part`, counted along the row.
#[cube]
pub(crate) fn part_base(part: usize, #[comptime] ty: GgmlType) -> usize {
    let group = comptime!(PartLayout::known(ty).group);
    let run = comptime!(PartLayout::known(ty).run);
    part / group * comptime!(PART_LEN * group) + part % group * run
}

/// How far the first value of quad `quad` of a part lies behind the part's first value.
pub(crate) fn quad_offset(ty: GgmlType, quad: usize) -> usize {
    let PartLayout { run, group, .. } = PartLayout::known(ty);
    4 * quad / run * run * group + 4 * quad % run
}

/// The four quads of a part as codes: bytes, lowest first, with a scale each, and a min where the type has them.
///
/// `value = scale * (code - offset) - min`, with the offset of [`PartLayout`].
#[derive(CubeType)]
pub(crate) struct PartCodes {
    pub codes: Sequence<u32>,
    pub scales: Sequence<f32>,
    pub mins: Sequence<f32>,
}

#[cube]
impl PartCodes {
    pub(crate) fn new() -> Self {
        PartCodes {
            codes: Sequence::new(),
            scales: Sequence::new(),
            mins: Sequence::new(),
        }
    }

    /// Adds a quad of a type without mins.
    pub(crate) fn push(&mut self, codes: u32, scale: f32) {
        self.codes.push(codes);
        self.scales.push(scale);
    }

    /// Adds a quad of a type with mins.
    pub(crate) fn push_with_min(&mut self, codes: u32, scale: f32, min: f32) {
        self.codes.push(codes);
        self.scales.push(scale);
        self.mins.push(min);
    }
}

/// The values of part `part` (counted along the row) of the row that starts at byte `row`.
#[cube]
pub(crate) fn unpack_part(
    words: &[u32],
    codebook: &[u32],
    row: usize,
    part: usize,
    #[comptime] ty: GgmlType,
) -> Sequence<Quad> {
    let layout = comptime!(PartLayout::known(ty));
    match comptime!(ty) {
        GgmlType::F32 => plain_f32::unpack_part(words, row + part * layout.block_bytes),
        GgmlType::F16 => plain_f16::unpack_part(words, row + part * layout.block_bytes),
        GgmlType::BF16 => plain_bf16::unpack_part(words, row + part * layout.block_bytes),
        GgmlType::F64 => plain_f64::unpack_part(words, row + part * layout.block_bytes),
        GgmlType::I8 => plain_i8::unpack_part(words, row + part * layout.block_bytes),
        GgmlType::I16 => plain_i16::unpack_part(words, row + part * layout.block_bytes),
        GgmlType::I32 => plain_i32::unpack_part(words, row + part * layout.block_bytes),
        GgmlType::I64 => plain_i64::unpack_part(words, row + part * layout.block_bytes),
        _ => {
            let codes = unpack_codes(words, codebook, row, part, ty);
            let mut quads = Sequence::<Quad>::new();
            #[unroll]
            for q in 0..PART_QUADS {
                quads.push(quad_values(&codes, q, ty));
            }
            quads
        }
    }
}

/// The values of quad `q` of a part.
#[cube]
fn quad_values(codes: &PartCodes, #[comptime] q: usize, #[comptime] ty: GgmlType) -> Quad {
    let layout = comptime!(PartLayout::known(ty));
    let mut quad = bytes_to_quad(codes.codes[q]);
    if comptime!(layout.offset > 0) {
        quad -= Quad::new(comptime!(layout.offset as f32));
    }
    quad *= Quad::new(codes.scales[q]);
    if comptime!(layout.has_min) {
        quad -= Quad::new(codes.mins[q]);
    }
    quad
}

/// The codes of a quad less the type's offset, as signed bytes.
#[cube]
pub(crate) fn signed_codes(codes: u32, #[comptime] ty: GgmlType) -> u32 {
    let offset = comptime!(PartLayout::known(ty).offset);
    if comptime!(offset == 0) {
        codes
    } else if comptime!(offset == 128) {
        codes ^ 0x8080_8080
    } else {
        // With the top bit of every byte set no byte borrows from the next.
        ((codes | 0x8080_8080) - comptime!(offset * 0x0101_0101)) ^ 0x8080_8080
    }
}

/// The codes of part `part` (counted along the row) of the row that starts at byte `row`.
#[cube]
pub(crate) fn unpack_codes(
    words: &[u32],
    codebook: &[u32],
    row: usize,
    part: usize,
    #[comptime] ty: GgmlType,
) -> PartCodes {
    let layout = comptime!(PartLayout::known(ty));
    let block = row + part / comptime!(layout.per_block) * comptime!(layout.block_bytes);
    let part = part % comptime!(layout.per_block);
    match comptime!(ty) {
        GgmlType::Q1_0 => q1_0::unpack_part(words, block, part),
        GgmlType::Q2_0 => q2_0::unpack_part(words, block, part),
        GgmlType::Q4_0 => q4_0::unpack_part(words, block, part),
        GgmlType::Q4_1 => q4_1::unpack_part(words, block, part),
        GgmlType::Q5_0 => q5_0::unpack_part(words, block, part),
        GgmlType::Q5_1 => q5_1::unpack_part(words, block, part),
        GgmlType::Q8_0 => q8_0::unpack_part(words, block, part),
        GgmlType::Q8_1 => q8_1::unpack_part(words, block, part),
        GgmlType::Q2K => q2_k::unpack_part(words, block, part),
        GgmlType::Q3K => q3_k::unpack_part(words, block, part),
        GgmlType::Q4K => q4_k::unpack_part(words, block, part),
        GgmlType::Q5K => q5_k::unpack_part(words, block, part),
        GgmlType::Q6K => q6_k::unpack_part(words, block, part),
        GgmlType::Q8K => q8_k::unpack_part(words, block, part),
        GgmlType::IQ1S => iq1_s::unpack_part(words, codebook, block, part),
        GgmlType::IQ1M => iq1_m::unpack_part(words, codebook, block, part),
        GgmlType::IQ2XXS => iq2_xxs::unpack_part(words, codebook, block, part),
        GgmlType::IQ2XS => iq2_xs::unpack_part(words, codebook, block, part),
        GgmlType::IQ2S => iq2_s::unpack_part(words, codebook, block, part),
        GgmlType::IQ3XXS => iq3_xxs::unpack_part(words, codebook, block, part),
        GgmlType::IQ3S => iq3_s::unpack_part(words, codebook, block, part),
        GgmlType::IQ4NL => iq4_nl::unpack_part(words, block, part),
        GgmlType::IQ4XS => iq4_xs::unpack_part(words, block, part),
        GgmlType::TQ1_0 => tq1_0::unpack_part(words, block, part),
        GgmlType::TQ2_0 => tq2_0::unpack_part(words, block, part),
        GgmlType::MXFP4 => mxfp4::unpack_part(words, block, part),
        GgmlType::NVFP4 => nvfp4::unpack_part(words, block, part),
        _ => comptime!(unreachable!("the launch checked the type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_value_once() {
        for ty in DEVICE_TYPES {
            let PartLayout { run, group, .. } = PartLayout::of(ty).unwrap();
            let mut seen = [0; 256];
            for part in 0..256 / PART_LEN {
                let base = part / group * PART_LEN * group + part % group * run;
                for quad in 0..PART_QUADS {
                    for i in 0..4 {
                        seen[base + quad_offset(ty, quad) + i] += 1;
                    }
                }
            }
            assert_eq!(seen, [1; 256], "{ty}");
        }
    }

    #[test]
    fn the_list_of_types_is_complete() {
        for &ty in GgmlType::ALL {
            assert_eq!(
                PartLayout::of(ty).is_ok(),
                DEVICE_TYPES.contains(&ty),
                "{ty}"
            );
        }
    }

    #[test]
    fn a_type_without_device_code_is_named() {
        assert_eq!(
            PartLayout::of(GgmlType::Q4_0x4x4).unwrap_err().to_string(),
            "no CubeCL kernels for tensor type Q4_0_4_4"
        );
    }
}
