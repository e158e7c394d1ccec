//! `Q8_K`: 256 values of 8 bits, one `f32` scale and the sums of sixteen values each, 292 bytes.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..4 | `d` | scale, `f32` |
//! | 4..260 | `qs` | value `i` as `i8` |
//! | 260..292 | `bsums` | sum of codes `16 j..16 j + 16` as `i16`; what ggml's dot products use, not needed to decode |
//!
//! `value = d * q`; as an unsigned code, `q + 128`.

use super::{BlockType, CodeBlock, MAX_BLOCK_LEN, head};
use crate::GgmlType;
use crate::quantize::rounding::{largest, nearest};
use crate::quantize::{Importance, QuantizeBlock, blocks_of};

/// The block type `Q8_K`.
pub struct Q8K;

const LEN: usize = 256;
const BYTES: usize = 4 + LEN + LEN / 16 * 2;
const _: () = assert!(BYTES == GgmlType::Q8K.block_bytes() && LEN == GgmlType::Q8K.block_len());
const _: () = assert!(LEN <= MAX_BLOCK_LEN);

impl BlockType for Q8K {
    const TYPE: GgmlType = GgmlType::Q8K;

    #[inline(always)]
    fn dequantize_block(block: &[u8], out: &mut [f32]) {
        let block = head::<BYTES>(block);
        let d = f32::from_le_bytes(*head(block));
        for (out, &q) in out[..LEN].iter_mut().zip(&block[4..]) {
            *out = d * f32::from(q as i8);
        }
    }
}

impl CodeBlock for Q8K {
    const CODE_BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB_LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack_block(block: &[u8], codes: &mut [u8], scales: &mut [f32], _mins: &mut [f32]) {
        let block = head::<BYTES>(block);
        scales[..LEN / Self::SUB_LEN].fill(f32::from_le_bytes(*head(block)));
        for (code, q) in codes[..LEN].iter_mut().zip(&block[4..]) {
            *code = q ^ 0x80;
        }
    }
}

impl QuantizeBlock for Q8K {
    const IMPORTANCE: Importance = Importance::Ignored;

    /// The value of largest magnitude becomes -127.
    #[inline(always)]
    fn quantize_row(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (values, _, out) in blocks_of::<Self>(values, importance, out) {
            let most = largest(values);
            if most == 0.0 {
                out.fill(0);
                continue;
            }
            let inverse = -127.0 / most;
            let (d, out) = out.split_at_mut(4);
            let (qs, sums) = out.split_at_mut(LEN);
            d.copy_from_slice(&(1.0 / inverse).to_le_bytes());
            for (out, &x) in qs.iter_mut().zip(values) {
                *out = nearest(inverse * x).min(127) as u8;
            }
            for (qs, sum) in qs.chunks_exact(16).zip(sums.as_chunks_mut().0) {
                *sum = qs
                    .iter()
                    .map(|&q| i16::from(q as i8))
                    .sum::<i16>()
                    .to_le_bytes();
            }
        }
    }
}

/// Decoding on a CubeCL device.
#[cfg(feature = "cube")]
pub(crate) mod device {
    use cubecl::prelude::*;

    use crate::cube::part::PartCodes;

    /// Values `16 part + 0..16` of the block at byte `block`.
    #[cube]
    pub(crate) fn unpack_part(words: &[u32], block: usize, part: usize) -> PartCodes {
        let block = block / 4;
        let scale = f32::reinterpret(words[block]);
        let mut codes = PartCodes::new();
        #[unroll]
        for q in 0..4usize {
            codes.push(words[block + 1 + part * 4 + q] ^ 0x8080_8080, scale);
        }
        codes
    }
}
