//! `gather_rows`: single rows of a matrix, as an embedding table needs them.

use super::dequantize::{check_bytes, decoder};
use super::error::CpuError;
use super::isa::Isa;
use crate::GgmlType;

/// Decodes row `ids[i]` of a `[rows, row_len]` matrix into `out[i * row_len..]`; `out` is `[ids.len(), row_len]`.
///
/// # Errors
/// If the type is not implemented, a size does not fit, or an id is outside the matrix.
pub fn gather_rows(
    ty: GgmlType,
    bytes: &[u8],
    row_len: usize,
    ids: &[i64],
    out: &mut [f32],
) -> Result<(), CpuError> {
    let decode = decoder(ty, "gather_rows")?;
    let overflow = CpuError::Overflow {
        rows: ids.len(),
        cols: row_len,
    };
    let expected = ids.len().checked_mul(row_len).ok_or(overflow)?;
    if out.len() != expected {
        return Err(CpuError::BufferLength {
            what: "out",
            expected,
            actual: out.len(),
        });
    }
    let Some(row_bytes) = ty.row_bytes(row_len) else {
        return Err(CpuError::PartialBlock { ty, len: row_len });
    };
    if row_bytes == 0 {
        return Ok(());
    }
    let rows = bytes.len() / row_bytes;
    check_bytes(ty, rows * row_len, bytes)?;
    let row_of = |position: usize| {
        let id = ids[position];
        let row = usize::try_from(id).ok().filter(|&row| row < rows);
        row.ok_or(CpuError::RowOutOfRange { id, position, rows })
    };
    for position in 0..ids.len() {
        row_of(position)?;
    }
    let isa = Isa::current();
    for (position, out) in out.chunks_exact_mut(row_len).enumerate() {
        decode(
            isa,
            &bytes[row_of(position)? * row_bytes..][..row_bytes],
            out,
        );
    }
    Ok(())
}
