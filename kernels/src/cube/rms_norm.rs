//! Root-mean-square norm of rows, in one pass over memory and one over the cache.

use cubecl::{client::Client, prelude::*, server::Handle};

use super::{CubeError, Reduction, matrix::check_operand, route::spread};

/// Rows of at least this many values get a whole cube where the device has planes or shared memory.
const LONG_ROW: usize = 1024;

/// `out[r, i] = x[r, i] / sqrt(mean_i(x[r, i]^2) + eps) * weight[i]`: `x` is `[rows, dim]`, `weight` `[dim]`, the
/// result `[rows, dim]`, all `f32` and contiguous.
///
/// `reduction` is how the units of a row add up their squares, `None` what suits the device.
///
/// # Errors
/// If `x` or `weight` is too short, or an operand is over what one binding of the device may hold.
pub fn rms_norm(
    client: &Client,
    x: Handle,
    weight: Handle,
    rows: usize,
    dim: usize,
    eps: f32,
    reduction: Option<Reduction>,
) -> Result<Handle, CubeError> {
    let values = check_operand(client, "x", Some(&x), rows.checked_mul(dim))?;
    check_operand(client, "weight", Some(&weight), Some(dim))?;
    let out = client.empty(values * 4);
    if values == 0 {
        return Ok(out);
    }
    let reduction = reduction.unwrap_or_else(|| Reduction::of(client.properties()));
    let config = RmsNormConfig::new(client.properties(), dim, reduction);
    let vector = if dim.is_multiple_of(4) { 4 } else { 1 };
    // SAFETY: the lengths are those of the buffers; rows are clamped to `rows`, and only existing ones are written.
    unsafe {
        rms_norm_kernel::launch_unchecked(
            client,
            spread(client, rows.div_ceil(config.slots)),
            config.cube_dim(),
            vector,
            BufferArg::from_raw_parts(x, values / vector),
            BufferArg::from_raw_parts(weight, dim / vector),
            BufferArg::from_raw_parts(out.clone(), values / vector),
            rows,
            dim / vector,
            eps,
            config,
        );
    }
    Ok(out)
}

/// What the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RmsNormConfig {
    reduction: Reduction,
    /// Units that share a row.
    units: usize,
    /// Rows of one cube.
    slots: usize,
}

impl RmsNormConfig {
    pub(super) fn new(properties: &DeviceProperties, dim: usize, reduction: Reduction) -> Self {
        let (reduction, units, slots) = match reduction {
            Reduction::Alone => (reduction, 1, 32),
            _ if dim >= LONG_ROW => (Reduction::Shared, 256, 1),
            Reduction::Plane => (reduction, properties.hardware.plane_size_max as usize, 4),
            Reduction::Shared => (reduction, 32, 4),
        };
        Self {
            reduction,
            units,
            slots,
        }
    }

    /// Units that share a row.
    pub(super) fn units(&self) -> usize {
        self.units
    }

    /// Rows of one cube.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        CubeDim::new_2d(self.units as u32, self.slots as u32)
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn rms_norm_kernel<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    rows: usize,
    lines: usize,
    eps: f32,
    #[comptime] config: RmsNormConfig,
) {
    let units = comptime!(config.units);
    let width = N::value();
    let unit = UNIT_POS_X as usize;
    let slot = UNIT_POS_Y as usize;
    let row = CUBE_POS * comptime!(config.slots) + slot;
    let start = min(row, rows - 1) * lines;

    let mut squares = Vector::<f32, N>::new(0.0);
    let mut i = unit;
    while i < lines {
        let value = x[start + i];
        squares = fma(value, value, squares);
        i += units;
    }
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..width {
        sum += squares.extract(lane);
    }
    let sum = row_sum(sum, unit, slot, config);
    let norm = 1.0f32 / f32::sqrt(sum / f32::cast_from(lines * width) + eps);
    if row < rows {
        let norm = Vector::<f32, N>::new(norm);
        let mut i = unit;
        while i < lines {
            out[start + i] = x[start + i] * norm * weight[i];
            i += units;
        }
    }
}

/// The sum of what the units of a row have, for each of them.
#[cube]
pub(super) fn row_sum(
    own: f32,
    unit: usize,
    slot: usize,
    #[comptime] config: RmsNormConfig,
) -> f32 {
    let mut sum = own;
    if comptime!(config.reduction == Reduction::Plane) {
        sum = plane_sum(own);
    } else if comptime!(config.reduction == Reduction::Shared) {
        let units = comptime!(config.units);
        let mut sums = Shared::<[f32]>::new_slice(comptime!(config.units * config.slots));
        let first = slot * units;
        sums[first + unit] = own;
        sync_cube();
        #[unroll]
        for level in 0..comptime!(config.units.ilog2() as usize) {
            let half = comptime!(config.units >> (level + 1));
            if unit < half {
                sums[first + unit] += sums[first + unit + half];
            }
            sync_cube();
        }
        sum = sums[first];
    }
    sum
}
