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
            *code = (u16::from(rest) * 3 >> 8) as u8;
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
