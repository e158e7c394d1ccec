//! Layer normalization of rows.

use cubecl::{client::Client, prelude::*, server::Handle};

use super::{
    CubeError, Reduction,
    matrix::check_operand,
    rms_norm::{RmsNormConfig, row_sum},
    route::spread,
};

/// `out[r, i] = (x[r, i] - mean_r) / sqrt(var_r + eps) * weight[i] + bias[i]`: `x` is `[rows, dim]`, `weight` and `bias`
/// `[dim]`, the result `[rows, dim]`, all `f32` and contiguous.
///
/// `reduction` is how the units of a row add up, `None` what suits the device.
///
/// # Errors
/// If an operand is too short, or over what one binding of the device may hold.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm(
    client: &Client,
    x: Handle,
    weight: Handle,
    bias: Handle,
    rows: usize,
    dim: usize,
    eps: f32,
    reduction: Option<Reduction>,
) -> Result<Handle, CubeError> {
    let values = check_operand(client, "x", Some(&x), rows.checked_mul(dim))?;
    check_operand(client, "weight", Some(&weight), Some(dim))?;
    check_operand(client, "bias", Some(&bias), Some(dim))?;
    let out = client.empty(values * 4);
    if values == 0 {
        return Ok(out);
    }
    let reduction = reduction.unwrap_or_else(|| Reduction::of(client.properties()));
    let config = RmsNormConfig::new(client.properties(), dim, reduction);
    let vector = if dim.is_multiple_of(4) { 4 } else { 1 };
    // SAFETY: the lengths are those of the buffers; rows are clamped to `rows`, and only existing ones are written.
    unsafe {
        layer_norm_kernel::launch_unchecked(
            client,
            spread(client, rows.div_ceil(config.slots())),
            config.cube_dim(),
            vector,
            BufferArg::from_raw_parts(x, values / vector),
            BufferArg::from_raw_parts(weight, dim / vector),
            BufferArg::from_raw_parts(bias, dim / vector),
            BufferArg::from_raw_parts(out.clone(), values / vector),
            rows,
            dim / vector,
            eps,
            config,
        );
    }
    Ok(out)
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn layer_norm_kernel<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Vector<f32, N>],
    bias: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    rows: usize,
    lines: usize,
    eps: f32,
    #[comptime] config: RmsNormConfig,
) {
    let units = comptime!(config.units());
    let width = N::value();
    let unit = UNIT_POS_X as usize;
    let slot = UNIT_POS_Y as usize;
    let row = CUBE_POS * comptime!(config.slots()) + slot;
    let start = min(row, rows - 1) * lines;
    let values = f32::cast_from(lines * width);

    let mut sums = Vector::<f32, N>::new(0.0);
    let mut i = unit;
    while i < lines {
        sums += x[start + i];
        i += units;
    }
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..width {
        sum += sums.extract(lane);
    }
    let mean = row_sum(sum, unit, slot, config) / values;

    // A second pass over the cached row: the difference of the moments would cancel.
    let shift = Vector::<f32, N>::new(mean);
    let mut squares = Vector::<f32, N>::new(0.0);
    let mut i = unit;
    while i < lines {
        let value = x[start + i] - shift;
        squares = fma(value, value, squares);
        i += units;
    }
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..width {
        sum += squares.extract(lane);
    }
    let variance = row_sum(sum, unit, slot, config) / values;
    let norm = 1.0f32 / f32::sqrt(variance + eps);
    if row < rows {
        let norm = Vector::<f32, N>::new(norm);
        let mut i = unit;
        while i < lines {
            out[start + i] = (x[start + i] - shift) * norm * weight[i] + bias[i];
            i += units;
        }
    }
}
