//! Decoding of the code types that have no min: `value = scale * (code - OFFSET)`.

use super::{CodeBlock, MAX_BLOCK_LEN};

/// Decodes one block by way of its codes.
#[inline(always)]
pub(super) fn dequantize<T: CodeBlock>(block: &[u8], out: &mut [f32]) {
    const { assert!(!T::HAS_MIN) };
    let (mut codes, mut scales) = ([0; MAX_BLOCK_LEN], [0.0; MAX_BLOCK_LEN / 16]);
    T::unpack_block(block, &mut codes, &mut scales, &mut []);
    let subs = out[..T::LEN]
        .chunks_exact_mut(T::SUB_LEN)
        .zip(codes.chunks_exact(T::SUB_LEN));
    for ((out, codes), scale) in subs.zip(scales) {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * (i32::from(code) - T::OFFSET) as f32;
        }
    }
}
