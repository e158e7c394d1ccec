//! Whether the arguments of `linear` fit together.

use super::dequantize::check_bytes;
use super::error::CpuError;
use super::linear::{Matrix, Ops, PickOps};
use super::types::visit;

/// Checks all arguments, and returns the functions of every matrix's type.
pub(super) fn check(
    matrices: &[Matrix<'_>],
    x: &[f32],
    n: usize,
    outs: &[&mut [f32]],
) -> Result<Vec<Ops>, CpuError> {
    if matrices.len() != outs.len() {
        return Err(CpuError::OutputCount {
            matrices: matrices.len(),
            outputs: outs.len(),
        });
    }
    let mut ops = Vec::with_capacity(matrices.len());
    for (index, (matrix, out)) in matrices.iter().zip(outs).enumerate() {
        let &Matrix {
            ty,
            bytes,
            rows,
            cols,
        } = matrix;
        ops.push(visit(ty, "linear", PickOps)?);
        if cols != matrices[0].cols {
            return Err(CpuError::MixedColumns {
                index,
                expected: matrices[0].cols,
                actual: cols,
            });
        }
        if ty.row_bytes(cols).is_none() {
            return Err(CpuError::PartialBlock { ty, len: cols });
        }
        check_bytes(
            ty,
            rows.checked_mul(cols)
                .ok_or(CpuError::Overflow { rows, cols })?,
            bytes,
        )?;
        let expected = n
            .checked_mul(cols)
            .ok_or(CpuError::Overflow { rows: n, cols })?;
        if x.len() != expected {
            return Err(CpuError::BufferLength {
                what: "x",
                expected,
                actual: x.len(),
            });
        }
        let expected = n.checked_mul(rows).ok_or(CpuError::Overflow {
            rows: n,
            cols: rows,
        })?;
        if out.len() != expected {
            return Err(CpuError::BufferLength {
                what: "y",
                expected,
                actual: out.len(),
            });
        }
    }
    Ok(ops)
}
