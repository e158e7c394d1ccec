//! Embedding lookup: some rows of a matrix as floats, without widening the others.

use cubecl::{
    calculate_cube_count_elemwise,
    client::Client,
    ir::{ElemType, IntKind, UIntKind},
    prelude::*,
    server::Handle,
};

use super::{
    CubeError, CubeMatrix, FloatKind,
    dequantize::write_quad,
    matrix::check_operand,
    part::{PART_LEN, PART_QUADS, PartLayout, part_base, quad_offset, unpack_part},
    words::Quad,
};
use crate::GgmlType;

pub(super) const UNITS: u32 = 64;

/// Rows `ids` of the matrix: `[n, cols]` in `f32`, contiguous.
///
/// `ids` holds `n` integers of type `id_type`: `i32`, `u32` or `i64`. The device cannot report an id that is not a row
/// of the matrix; its row of the output is filled with NaN.
///
/// # Errors
/// If `id_type` is another type, `ids` is too short, or the output is over what one binding of the device may hold.
pub fn gather_rows(
    client: &Client,
    matrix: &CubeMatrix,
    ids: Handle,
    n: usize,
    id_type: ElemType,
) -> Result<Handle, CubeError> {
    let id_bytes = match id_type {
        ElemType::Int(IntKind::I32) | ElemType::UInt(UIntKind::U32) => 4,
        ElemType::Int(IntKind::I64) => 8,
        other => return Err(CubeError::BadIdType(other.to_string())),
    };
    let values = check_operand(client, "output", None, n.checked_mul(matrix.cols()))?;
    if ids.size_in_used() < (n * id_bytes) as u64 {
        return Err(CubeError::BadLength {
            what: "ids",
            expected: (n * id_bytes) as u64,
            got: ids.size_in_used(),
        });
    }
    let out = client.empty(values * 4);
    if values == 0 {
        return Ok(out);
    }
    let layout = PartLayout::of(matrix.ty())?;
    let parts = matrix.cols().div_ceil(PART_LEN * layout.group) * layout.group;
    let vector = if matrix.cols().is_multiple_of(PART_LEN) {
        4
    } else {
        1
    };
    // A matrix without rows still has to mark every id as missing.
    let pieces: Vec<_> = if matrix.pieces().is_empty() {
        vec![(ids.clone(), 1, 0, 0, 0)]
    } else {
        let piece = |p: &super::Piece| (p.handle.clone(), p.words, p.shift, p.first_row, p.rows);
        matrix.pieces().iter().map(piece).collect()
    };
    for (handle, words, shift, first_row, rows) in pieces {
        let cube_dim = CubeDim::new_1d(UNITS);
        // SAFETY: the lengths are those of the buffers; the kernel reads only rows below `rows`, which the piece holds,
        // clamps reads past its end, and writes only the `n` rows of the output.
        unsafe {
            gather_rows_kernel::launch_unchecked(
                client,
                calculate_cube_count_elemwise(client, n * parts, cube_dim),
                cube_dim,
                vector,
                BufferArg::from_raw_parts(handle, words),
                matrix.codebook().arg(),
                BufferArg::from_raw_parts(ids.clone(), n),
                BufferArg::from_raw_parts(out.clone(), values / vector),
                shift,
                matrix.row_bytes(),
                matrix.cols(),
                parts,
                first_row,
                rows,
                matrix.rows(),
                f32::NAN.to_bits(),
                matrix.ty(),
                id_type,
            );
        }
    }
    Ok(out)
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn gather_rows_kernel<I: Int, N: Size>(
    words: &[u32],
    codebook: &[u32],
    ids: &[I],
    out: &mut [Vector<u32, N>],
    shift: usize,
    row_bytes: usize,
    cols: usize,
    parts: usize,
    first_row: usize,
    rows: usize,
    all_rows: usize,
    // An argument because WGSL refuses a constant that is NaN.
    nan_bits: u32,
    #[comptime] ty: GgmlType,
    #[define(I)] _id_type: ElemType,
) {
    let index = ABSOLUTE_POS / parts;
    let part = ABSOLUTE_POS % parts;
    if index < ids.len() {
        let id = ids[index];
        let known = id >= I::new(0) && id < I::cast_from(all_rows);
        let row = usize::cast_from(id);
        let here = known && row >= first_row && row < first_row + rows;
        let base = part_base(part, ty);
        let start = index * cols;
        if here {
            let row = shift + (row - first_row) * row_bytes;
            let quads = unpack_part(words, codebook, row, part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                let offset = base + comptime!(quad_offset(ty, q));
                write_quad(
                    out,
                    start + offset,
                    start + cols,
                    quads[q],
                    ty,
                    FloatKind::F32,
                );
            }
        } else if !known {
            let nan = Quad::new(f32::reinterpret(nan_bits));
            #[unroll]
            for q in 0..PART_QUADS {
                let offset = base + comptime!(quad_offset(ty, q));
                write_quad(out, start + offset, start + cols, nan, ty, FloatKind::F32);
            }
        }
    }
}
