//! The piece of a row that one unit decodes at a time: a *part* of 16 values.
//!
//! Block types pack values that lie far apart into one byte, so the 16 values of a part are not consecutive: they are
//! four quads of consecutive values, picked such that a part uses whole bytes. `group` neighbouring parts together cover
//! `16 * group` consecutive values, a *span*:
//!
//! | types | parts per block | `group` | quads of part `p` start at |
//! |---|---|---|---|
//! | `F32`, `F16`, `BF16` | 1 of 16 "blocks" | 1 | `16 p + {0, 4, 8, 12}` |
//! | `Q8_0` | 2 | 1 | `16 p + {0, 4, 8, 12}` |
//! | `Q4_0`, `Q5_0` | 2 | 2 | `32 (p / 2) + 8 (p % 2) + {0, 4, 16, 20}` |
//! | `Q4_K`, `Q5_K`, `Q6_K` | 16 | 4 | `64 (p / 4) + 8 (p % 4) + {0, 4, 32, 36}` |
//!
//! Neighbouring units take neighbouring parts, so that both the weight words and the activations of a plane are read
//! from neighbouring addresses.

use cubecl::prelude::*;

use super::{CubeError, words::Quad};
use crate::{
    GgmlType,
    blocks::device::{plain_bf16, plain_f16, plain_f32, q4_0, q4_k, q5_0, q5_k, q6_k, q8_0},
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
    /// Neighbouring parts that together cover consecutive values.
    pub group: usize,
}

impl PartLayout {
    /// The layout of `ty`, or an error naming the type when there is no device code for it.
    pub(crate) fn of(ty: GgmlType) -> Result<Self, CubeError> {
        let (per_block, group) = match ty {
            GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => (1, 1),
            GgmlType::Q8_0 => (2, 1),
            GgmlType::Q4_0 | GgmlType::Q5_0 => (2, 2),
            GgmlType::Q4K | GgmlType::Q5K | GgmlType::Q6K => (16, 4),
            _ => return Err(CubeError::UnsupportedType(ty)),
        };
        let blocks = per_block * PART_LEN / ty.block_len();
        Ok(Self {
            block_bytes: blocks * ty.block_bytes(),
            per_block,
            group,
        })
    }

    /// As [`PartLayout::of`], for kernels: the launch has checked the type.
    pub(crate) fn known(ty: GgmlType) -> Self {
        Self::of(ty).expect("the launch checked the type")
    }
}

/// Every block type with device code.
pub const DEVICE_TYPES: [GgmlType; 9] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::Q4_0,
    GgmlType::Q5_0,
    GgmlType::Q8_0,
    GgmlType::Q4K,
    GgmlType::Q5K,
    GgmlType::Q6K,
];

/// Whether the rows of `ty` may end anywhere, and not only after whole parts.
pub(crate) fn is_plain(ty: GgmlType) -> bool {
    ty.block_len() == 1
}

/// The value index in its row of the first value of `part`, counted along the row.
#[cube]
pub(crate) fn part_base(part: usize, #[comptime] ty: GgmlType) -> usize {
    let group = comptime!(PartLayout::known(ty).group);
    part / group * comptime!(PART_LEN * group) + part % group * 8
}

/// How far the first value of quad `quad` of a part lies behind the part's first value.
pub(crate) fn quad_offset(ty: GgmlType, quad: usize) -> usize {
    quad % 2 * 4 + quad / 2 * 8 * PartLayout::known(ty).group
}

/// Decodes part `part` (counted along the row) of the row that starts at byte `row`.
#[cube]
pub(crate) fn unpack_part(
    words: &[u32],
    row: usize,
    part: usize,
    #[comptime] ty: GgmlType,
) -> Sequence<Quad> {
    let layout = comptime!(PartLayout::known(ty));
    let block = row + part / comptime!(layout.per_block) * comptime!(layout.block_bytes);
    let part = part % comptime!(layout.per_block);
    match comptime!(ty) {
        GgmlType::F32 => plain_f32::unpack_part(words, block),
        GgmlType::F16 => plain_f16::unpack_part(words, block),
        GgmlType::BF16 => plain_bf16::unpack_part(words, block),
        GgmlType::Q4_0 => q4_0::unpack_part(words, block, part),
        GgmlType::Q5_0 => q5_0::unpack_part(words, block, part),
        GgmlType::Q8_0 => q8_0::unpack_part(words, block, part),
        GgmlType::Q4K => q4_k::unpack_part(words, block, part),
        GgmlType::Q5K => q5_k::unpack_part(words, block, part),
        GgmlType::Q6K => q6_k::unpack_part(words, block, part),
        _ => comptime!(unreachable!("the launch checked the type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_value_once() {
        for ty in DEVICE_TYPES {
            let group = PartLayout::of(ty).unwrap().group;
            let mut seen = [0; 256];
            for part in 0..256 / PART_LEN {
                let base = part / group * PART_LEN * group + part % group * 8;
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
            PartLayout::of(GgmlType::IQ2XS).unwrap_err().to_string(),
            "no CubeCL kernels for tensor type IQ2_XS"
        );
    }
}
