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
