//! `y = x . W^T` on the device: picks the kernel.

use cubecl::{client::Client, server::Handle};

use super::{CubeError, CubeMatrix, gemm, gemv, matrix::check_operand};

/// Choices that [`linear`] makes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearOptions {
    /// Whether plane (subgroup) operations may be used where the device has them.
    pub plane: bool,
    /// Up to how many rows of `x` the matrix-vector kernel is used, at most 8; the tiled one takes over beyond.
    pub gemv_rows: usize,
}

impl Default for LinearOptions {
    fn default() -> Self {
        Self {
            plane: true,
            gemv_rows: gemv::MAX_ROWS,
        }
    }
}

/// `y = x . W^T`: `x` is `[n, cols]`, the result `[n, rows]`, both `f32` and contiguous.
///
/// The arithmetic is exact in the sense that weights are decoded to `f32` in registers and activations are not
/// quantized; sums are kept in `f32`, several per output.
///
/// # Errors
/// If `x` is too short, or `x` or the result is over what one binding of the device may hold.
pub fn linear(
    client: &Client,
    matrix: &CubeMatrix,
    x: Handle,
    n: usize,
) -> Result<Handle, CubeError> {
    linear_with(client, matrix, x, n, LinearOptions::default())
}

/// [`linear`] with the choice of kernel in the caller's hands.
///
/// # Errors
/// As [`linear`].
pub fn linear_with(
    client: &Client,
    matrix: &CubeMatrix,
    x: Handle,
    n: usize,
    options: LinearOptions,
) -> Result<Handle, CubeError> {
    check_operand(client, "x", Some(&x), n.checked_mul(matrix.cols()))?;
    let values = check_operand(client, "output", None, n.checked_mul(matrix.rows()))?;
    if values > 0 && matrix.cols() == 0 {
        // A sum over nothing.
        return Ok(client.create_from_slice(&vec![0; values * 4]));
    }
    let out = client.empty(values * 4);
    if values > 0 {
        for piece in matrix.pieces() {
            if n <= options.gemv_rows.min(gemv::MAX_ROWS) {
                let (x, out) = (x.clone(), out.clone());
                gemv::launch(client, matrix, piece, x, n, out, options.plane);
            } else {
                gemm::launch(client, matrix, piece, x.clone(), n, out.clone());
            }
        }
    }
    Ok(out)
}
