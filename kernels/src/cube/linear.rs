//! `y = x . W^T` on the device: picks the kernel.

use cubecl::{client::Client, server::Handle};

use super::{CubeError, CubeMatrix, Reduction, gemm, gemv, matrix::check_operand, route::Product};

/// Choices that [`linear`] makes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinearOptions {
    /// How partial sums of the matrix-vector kernel are added up; by default what suits the device.
    ///
    /// A plane sum asked for where the device cannot do it is an error of the device.
    pub reduction: Option<Reduction>,
    /// Up to how many rows of `x` the matrix-vector kernel is used; the tiled one, which needs shared memory, takes over
    /// beyond. By default 8, and any number where [`Reduction::Alone`] is used.
    pub gemv_rows: Option<usize>,
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
        let reduction = options
            .reduction
            .unwrap_or_else(|| Reduction::of(client.properties()));
        let gemv_rows = options.gemv_rows.unwrap_or(match reduction {
            Reduction::Alone => usize::MAX,
            _ => gemv::MAX_ROWS,
        });
        let product = Product {
            x,
            x_rows: n,
            n,
            out: out.clone(),
            experts: None,
        };
        for piece in matrix.pieces() {
            if n <= gemv_rows {
                gemv::launch(client, matrix, piece, &product, reduction);
            } else {
                gemm::launch(client, matrix, piece, &product);
            }
        }
    }
    Ok(out)
}
