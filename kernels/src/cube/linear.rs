//! `y = x . W^T` on the device: picks the kernel.

use cubecl::{
    client::Client,
    server::Handle,
    tune::{LocalTuner, Tunable, TunableSet, local_tuner},
};

use super::{
    CubeError, CubeMatrix, Reduction, gemm, gemm_cmma, gemv, gemv_q8, matrix::check_operand,
    route::Product,
};
use crate::cpu::Arithmetic;

/// The kernels that compute `y = x . W^T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinearKernel {
    /// Matrix-vector, for a few rows of `x`.
    Gemv,
    /// Matrix-vector on 8-bit activations; not for plain number types.
    GemvQ8,
    /// Tiles in shared memory, for many rows of `x`.
    Gemm,
    /// Tiles in shared memory, multiplied as `bfloat16` by tensor cores; not for plain number types.
    GemmCmma,
}

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
    /// What may be rounded; by default nothing (`Exact`). With `Fast`, the kernels that round activations are measured
    /// against those that do not on first use of a size, and the faster one is used.
    pub arithmetic: Option<Arithmetic>,
    /// This kernel, and no other. One that the device cannot run is an error of the device.
    pub kernel: Option<LinearKernel>,
}

/// `y = x . W^T`: `x` is `[n, cols]`, the result `[n, rows]`, both `f32` and contiguous.
///
/// The arithmetic is exact in the sense that weights are decoded to `f32` in registers and activations are not
/// quantized; sums are kept in `f32`, several per output. See [`LinearOptions::arithmetic`] for the other.
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
/// As [`linear`], and if the type has no form of the kernel asked for.
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
        let product = Product {
            x,
            x_rows: n,
            n,
            out: out.clone(),
            experts: None,
        };
        let (plain, rounded) = kernels(client, matrix, n, reduction, options)?;
        match rounded {
            None => run(plain, client, matrix, &product, reduction),
            Some(rounded) => faster(plain, rounded, client, matrix, &product, reduction),
        }
    }
    Ok(out)
}

/// The kernel for `n` rows, and the one that rounds activations, where it may be used.
fn kernels(
    client: &Client,
    matrix: &CubeMatrix,
    n: usize,
    reduction: Reduction,
    options: LinearOptions,
) -> Result<(LinearKernel, Option<LinearKernel>), CubeError> {
    let ty = matrix.ty();
    if let Some(kernel) = options.kernel {
        return match kernel {
            LinearKernel::GemvQ8 if !gemv_q8::takes(ty) => Err(CubeError::UnsupportedType(ty)),
            LinearKernel::GemmCmma if !gemm_cmma::takes(client.properties(), ty) => {
                Err(CubeError::UnsupportedType(ty))
            }
            _ => Ok((kernel, None)),
        };
    }
    let gemv_rows = options.gemv_rows.unwrap_or(match reduction {
        Reduction::Alone => usize::MAX,
        _ => gemv::MAX_ROWS,
    });
    let fast = options.arithmetic == Some(Arithmetic::Fast);
    Ok(if n <= gemv_rows {
        // Without integer dot products of the hardware, as on a software device, nothing is gained.
        let rounds = fast && reduction != Reduction::Alone && gemv_q8::takes(ty);
        (LinearKernel::Gemv, rounds.then_some(LinearKernel::GemvQ8))
    } else {
        // `GemmCmma` compiles for tensor cores but has run on none yet: it has to be asked for.
        (LinearKernel::Gemm, None)
    })
}

fn run(
    kernel: LinearKernel,
    client: &Client,
    matrix: &CubeMatrix,
    product: &Product,
    reduction: Reduction,
) {
    if kernel == LinearKernel::GemvQ8 {
        return gemv_q8::launch(client, matrix, product, reduction);
    }
    for piece in matrix.pieces() {
        match kernel {
            LinearKernel::Gemv => gemv::launch(client, matrix, piece, product, reduction),
            LinearKernel::Gemm => gemm::launch(client, matrix, piece, product),
            _ => gemm_cmma::launch(client, matrix, piece, product),
        }
    }
}

/// What a tuned product is run with.
#[derive(Clone)]
struct Tuned {
    client: Client,
    matrix: CubeMatrix,
    product: Product,
    reduction: Reduction,
}

/// Runs whichever of the two kernels was measured to be the faster one for a product of about this size. One that fails
/// to compile or launch while it is measured loses.
fn faster(
    plain: LinearKernel,
    rounded: LinearKernel,
    client: &Client,
    matrix: &CubeMatrix,
    product: &Product,
    reduction: Reduction,
) {
    static TUNER: LocalTuner<String, String> = local_tuner!();
    let device = format!("{} {:?}", client.name(), client.service_id().device);
    let key = |tuned: &Tuned| {
        let (matrix, n) = (&tuned.matrix, tuned.product.n.next_power_of_two());
        let (rows, cols) = (matrix.rows().next_power_of_two(), matrix.cols());
        format!("{} {rows} {cols} {n} {:?}", matrix.ty(), tuned.reduction)
    };
    let candidate = |kernel: LinearKernel| {
        Tunable::<String, Tuned, ()>::new(&format!("{kernel:?}"), move |tuned: Tuned| {
            let Tuned {
                client,
                matrix,
                product,
                reduction,
            } = &tuned;
            run(kernel, client, matrix, product, *reduction);
            Ok::<(), String>(())
        })
    };
    let tuned = Tuned {
        client: client.clone(),
        matrix: matrix.clone(),
        product: product.clone(),
        reduction,
    };
    let execute = |set| TUNER.execute(&device, client, set, tuned);
    // A set belongs to the place in the code that makes it.
    match plain {
        LinearKernel::Gemv => execute(TUNER.init(&device, move || {
            TunableSet::new_cloning_inputs(key)
                .with(candidate(plain))
                .with(candidate(rounded))
        })),
        _ => execute(TUNER.init(&device, move || {
            TunableSet::new_cloning_inputs(key)
                .with(candidate(plain))
                .with(candidate(rounded))
        })),
    }
}
