//! Blocks to floats, on the device.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{
    CubeError, CubeMatrix,
    matrix::check_operand,
    part::{PART_LEN, PART_QUADS, PartLayout, is_plain, part_base, quad_offset, unpack_part},
    words::{Quad, f32_to_bfloat, f32_to_half},
};
use crate::GgmlType;

pub(super) const UNITS: u32 = 64;

/// The float type of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatKind {
    /// IEEE single precision.
    F32,
    /// IEEE half precision, rounded to nearest even.
    F16,
    /// `bfloat16`, rounded to nearest even.
    BF16,
}

impl FloatKind {
    /// Bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            FloatKind::F32 => 4,
            FloatKind::F16 | FloatKind::BF16 => 2,
        }
    }
}

/// The values of a matrix: `[rows, cols]`, contiguous, of the asked float type.
///
/// `F32` is bit-equal to ggml's decoding for every type here: each value is a product (and a difference) of numbers
/// with few enough bits to be rounded at most once. The 16-bit kinds are packed with integer arithmetic, so the
/// device needs no 16-bit types.
///
/// # Errors
/// If the output is larger than one binding of the device may hold.
pub fn dequantize(
    client: &Client,
    matrix: &CubeMatrix,
    kind: FloatKind,
) -> Result<Handle, CubeError> {
    let values = matrix.rows().checked_mul(matrix.cols());
    let values = check_operand(client, "output", None, values)?;
    let ragged = !matrix.cols().is_multiple_of(PART_LEN);
    if ragged && kind != FloatKind::F32 {
        // Rows would end inside a word: go through a flat f32 buffer.
        let wide = dequantize(client, matrix, FloatKind::F32)?;
        return Ok(narrow(client, wide, values, kind));
    }
    let out = client.empty(values * kind.bytes());
    let layout = PartLayout::of(matrix.ty())?;
    let (vector, words) = match kind {
        FloatKind::F32 if ragged => (1, values),
        FloatKind::F32 => (4, values),
        _ => (2, values / 2),
    };
    for piece in matrix.pieces() {
        let piece_values = piece.rows * matrix.cols();
        let span = PART_LEN * layout.group;
        let parts = piece_values.div_ceil(span) * layout.group;
        let cube_dim = CubeDim::new_1d(UNITS);
        // SAFETY: the lengths are those of the buffers; the kernel reads the blocks of `parts` parts, which the piece
        // holds, clamps reads past its end, and writes only values below `piece_values`.
        unsafe {
            dequantize_kernel::launch_unchecked(
                client,
                calculate_cube_count_elemwise(client, parts, cube_dim),
                cube_dim,
                vector,
                BufferArg::from_raw_parts(piece.handle.clone(), piece.words),
                matrix.codebook().arg(),
                BufferArg::from_raw_parts(out.clone(), words / vector),
                piece.shift,
                parts,
                piece_values,
                piece.first_row * matrix.cols(),
                matrix.ty(),
                kind,
            );
        }
    }
    Ok(out)
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn dequantize_kernel<N: Size>(
    words: &[u32],
    codebook: &[u32],
    out: &mut [Vector<u32, N>],
    shift: usize,
    parts: usize,
    values: usize,
    out_start: usize,
    #[comptime] ty: GgmlType,
    #[comptime] kind: FloatKind,
) {
    let part = ABSOLUTE_POS;
    if part < parts {
        let quads = unpack_part(words, codebook, shift, part, ty);
        let base = part_base(part, ty);
        #[unroll]
        for q in 0..PART_QUADS {
            let offset = base + comptime!(quad_offset(ty, q));
            write_quad(
                out,
                out_start + offset,
                out_start + values,
                quads[q],
                ty,
                kind,
            );
        }
    }
}

/// Writes four values at value index `at` of `out`. Vectors of one word take values one by one up to index `end`;
/// longer ones hold a whole quad, and `at` is a multiple of four.
#[cube]
pub(crate) fn write_quad<N: Size>(
    out: &mut [Vector<u32, N>],
    at: usize,
    end: usize,
    quad: Quad,
    #[comptime] ty: GgmlType,
    #[comptime] kind: FloatKind,
) {
    let width = N::value();
    if comptime!(width == 1) {
        comptime!(assert!(is_plain(ty) && kind == FloatKind::F32));
        #[unroll]
        for i in 0..4usize {
            if at + i < end {
                out[at + i] = Vector::new(u32::reinterpret(quad.extract(i)));
            }
        }
    } else {
        let mut line = Vector::<u32, N>::empty();
        #[unroll]
        for i in 0..width {
            let word = if comptime!(kind == FloatKind::F32) {
                u32::reinterpret(quad.extract(i))
            } else {
                pair(
                    quad.extract(comptime!(2 * i)),
                    quad.extract(comptime!(2 * i + 1)),
                    kind,
                )
            };
            line.insert(i, word);
        }
        out[at / 4] = line;
    }
}

#[cube]
fn pair(low: f32, high: f32, #[comptime] kind: FloatKind) -> u32 {
    if comptime!(kind == FloatKind::F16) {
        f32_to_half(low) | (f32_to_half(high) << 16)
    } else {
        f32_to_bfloat(low) | (f32_to_bfloat(high) << 16)
    }
}

fn narrow(client: &Client, wide: Handle, values: usize, kind: FloatKind) -> Handle {
    let words = values.div_ceil(2);
    let out = client.empty(words * 4);
    if words > 0 {
        let cube_dim = CubeDim::new_1d(UNITS);
        // SAFETY: the lengths are those of the buffers, and the kernel compares every index with them.
        unsafe {
            narrow_kernel::launch_unchecked(
                client,
                calculate_cube_count_elemwise(client, words, cube_dim),
                cube_dim,
                BufferArg::from_raw_parts(wide, values),
                BufferArg::from_raw_parts(out.clone(), words),
                kind,
            );
        }
    }
    out.offset_end((words * 4 - values * 2) as u64)
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn narrow_kernel(wide: &[f32], out: &mut [u32], #[comptime] kind: FloatKind) {
    if ABSOLUTE_POS < out.len() {
        let low = ABSOLUTE_POS * 2;
        let high = min(low + 1, wide.len() - 1);
        out[ABSOLUTE_POS] = pair(wide[low], wide[high], kind);
    }
}
