//! The gated delta rule on the device; the state never leaves it.
//!
//! A column of a head's state meets no other column, so columns are worked on at the same time and tokens one after the
//! other. Where the device has planes, a plane has a column in its registers, some rows a unit, for all tokens of the
//! call. Elsewhere a unit has a column, which stays in memory.
//!
//! What the columns of a head share (norms, decay, strength, `q . k`) a first kernel computes. Norm and gate of the
//! output are those of [`rms_norm`](super::rms_norm()) and [`glu`](super::glu()).

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{CubeError, GluKind, Reduction, glu, matrix::check_operand, rms_norm, route::spread};
use crate::cpu::GatedDeltaShape;

pub(super) const UNITS: u32 = 64;
/// Columns of a cube where a plane has a column: as many as lie in one transaction of memory.
const SLOTS: usize = 8;
/// Values a head has in `factors`.
const FACTORS: usize = 5;
/// Most turns of all loops of a unit: some software devices leave the loops after 65535.
const TURNS: usize = 60_000;

/// The operands of [`gated_delta`], shaped as [`GatedDeltaInput`](crate::cpu::GatedDeltaInput) says.
#[derive(Clone)]
pub struct DeltaHandles {
    /// Queries, keys and values.
    pub mixed: Handle,
    /// The output's gate.
    pub gate: Handle,
    /// Strength of the correction.
    pub beta: Handle,
    /// Decay.
    pub alpha: Handle,
    /// Factor of the decay's exponent.
    pub a: Handle,
    /// Added to `alpha`.
    pub dt: Handle,
    /// Weight of the output's norm.
    pub norm: Handle,
    /// The states, which are overwritten.
    pub state: Handle,
}

/// See [`gated_delta`](crate::cpu::gated_delta()). All operands are `f32` and contiguous; `state` is updated in place: no
/// one else may need what it held.
///
/// `reduction` is how units work together, `None` what suits the device.
///
/// # Errors
/// If the heads do not divide, an operand is too short, or one is over what one binding of the device may hold.
pub fn gated_delta(
    client: &Client,
    handles: DeltaHandles,
    shape: &GatedDeltaShape,
    reduction: Option<Reduction>,
) -> Result<Handle, CubeError> {
    let &GatedDeltaShape {
        batch,
        tokens,
        key_heads,
        value_heads,
        head_dim: dim,
        grouped,
        eps,
    } = shape;
    if key_heads == 0 || !value_heads.is_multiple_of(key_heads) {
        return Err(CubeError::BadHeads {
            heads: value_heads,
            kv_heads: key_heads,
        });
    }
    let times = |n: Option<usize>, by: usize| n.and_then(|n| n.checked_mul(by));
    let rows = batch.checked_mul(tokens);
    let heads = key_heads
        .checked_mul(2)
        .and_then(|n| n.checked_add(value_heads));
    let mixed = times(times(rows, heads.unwrap_or(usize::MAX)), dim);
    let per_head = times(rows, value_heads);
    let columns = times(batch.checked_mul(value_heads), dim);
    let mixed = check_operand(client, "mixed", Some(&handles.mixed), mixed)?;
    let values = check_operand(client, "gate", Some(&handles.gate), times(per_head, dim))?;
    let per_head = check_operand(client, "beta", Some(&handles.beta), per_head)?;
    check_operand(client, "alpha", Some(&handles.alpha), Some(per_head))?;
    check_operand(client, "a", Some(&handles.a), Some(value_heads))?;
    check_operand(client, "dt", Some(&handles.dt), Some(value_heads))?;
    let cells = check_operand(client, "state", Some(&handles.state), times(columns, dim))?;
    if values == 0 {
        return Ok(client.empty(0));
    }
    let factors_len = check_operand(client, "factors", None, per_head.checked_mul(FACTORS))?;
    let factors = client.empty(factors_len * 4);
    let said = client.empty(values * 4);
    let reduction = reduction.unwrap_or_else(|| Reduction::of(client.properties()));
    let config = DeltaConfig::new(client.properties(), dim, grouped, reduction);
    let columns = cells / dim;
    let cube_dim = CubeDim::new_1d(UNITS);
    // SAFETY: the lengths are those of the buffers. Units past the last row's heads do nothing; columns are clamped to
    // existing ones, of which each is one plane's or unit's, and only that of an existing place is written.
    unsafe {
        factors_kernel::launch_unchecked(
            client,
            calculate_cube_count_elemwise(client, per_head, cube_dim),
            cube_dim,
            BufferArg::from_raw_parts(handles.mixed.clone(), mixed),
            BufferArg::from_raw_parts(handles.alpha, per_head),
            BufferArg::from_raw_parts(handles.beta, per_head),
            BufferArg::from_raw_parts(handles.a, value_heads),
            BufferArg::from_raw_parts(handles.dt, value_heads),
            BufferArg::from_raw_parts(factors.clone(), factors_len),
            per_head,
            key_heads,
            value_heads,
            eps,
            config,
        );
        let mut first = 0;
        while first < tokens {
            let count = config.tokens().min(tokens - first);
            macro_rules! launch {
                ($kernel:ident, $cubes:expr, $dim:expr) => {
                    $kernel::launch_unchecked(
                        client,
                        $cubes,
                        $dim,
                        BufferArg::from_raw_parts(handles.mixed.clone(), mixed),
                        BufferArg::from_raw_parts(factors.clone(), factors_len),
                        BufferArg::from_raw_parts(handles.state.clone(), cells),
                        BufferArg::from_raw_parts(said.clone(), values),
                        columns,
                        tokens,
                        first,
                        first + count,
                        key_heads,
                        value_heads,
                        config,
                    )
                };
            }
            if config.lanes > 1 {
                let cubes = spread(client, columns.div_ceil(SLOTS));
                launch!(delta_plane_kernel, cubes, config.cube_dim());
            } else {
                let cubes = calculate_cube_count_elemwise(client, columns, config.cube_dim());
                launch!(delta_alone_kernel, cubes, config.cube_dim());
            }
            first += count;
        }
    }
    let said = rms_norm(
        client,
        said,
        handles.norm,
        per_head,
        dim,
        eps,
        Some(reduction),
    )?;
    glu(client, handles.gate, said, values, GluKind::Silu)
}

/// What the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DeltaConfig {
    /// Values of a head.
    dim: usize,
    /// Units of a column.
    lanes: usize,
    /// Rows of a turn where a unit has a column.
    step: usize,
    /// See [`GatedDeltaShape::grouped`].
    grouped: bool,
}

impl DeltaConfig {
    pub(super) fn new(
        properties: &DeviceProperties,
        dim: usize,
        grouped: bool,
        reduction: Reduction,
    ) -> Self {
        let size = properties.hardware.plane_size_max as usize;
        let planes = reduction == Reduction::Plane && dim.is_multiple_of(size) && dim <= 8 * size;
        Self {
            dim,
            lanes: if planes { size } else { 1 },
            step: if dim.is_multiple_of(8) { 8 } else { 1 },
            grouped,
        }
    }

    pub(super) fn has_planes(&self) -> bool {
        self.lanes > 1
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        match self.has_planes() {
            true => CubeDim::new_2d(self.lanes as u32, SLOTS as u32),
            false => CubeDim::new_1d(UNITS),
        }
    }

    /// Most tokens of a launch.
    fn tokens(&self) -> usize {
        match self.has_planes() {
            true => usize::MAX,
            false => (TURNS / (2 * self.dim.div_ceil(self.step) + 1)).max(1),
        }
    }
}

/// Per row and value head: decay, strength, the factors that normalize key and query, and `q . k` of the normalized.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn factors_kernel(
    mixed: &[f32],
    alpha: &[f32],
    beta: &[f32],
    a: &[f32],
    dt: &[f32],
    factors: &mut [f32],
    count: usize,
    key_heads: usize,
    value_heads: usize,
    eps: f32,
    #[comptime] config: DeltaConfig,
) {
    let index = ABSOLUTE_POS;
    if index < count {
        let dim = comptime!(config.dim);
        let row = index / value_heads;
        let head = index % value_heads;
        let query = (row * (2 * key_heads + value_heads)
            + key_head(head, key_heads, value_heads, config))
            * dim;
        let key = query + key_heads * dim;
        let mut queries = 0.0f32;
        let mut keys = 0.0f32;
        let mut both = 0.0f32;
        let mut i = 0usize;
        while i < dim {
            let (q, k) = (mixed[query + i], mixed[key + i]);
            queries += q * q;
            keys += k * k;
            both += q * k;
            i += 1;
        }
        let of_key = 1.0f32 / f32::sqrt(keys + eps);
        let of_query = comptime!(1.0 / (config.dim as f32).sqrt()) / f32::sqrt(queries + eps);
        let step = alpha[index] + dt[head];
        // ln(1 + y) with the rounding of the sum taken back (Kahan); past 20 it is the exponent itself.
        let exp = f32::exp(min(step, 20.0f32));
        let sum = 1.0f32 + exp;
        let rounded = max(sum - 1.0f32, 1.0e-30f32);
        let log = select(sum == 1.0f32, exp, f32::ln(sum) * (exp / rounded));
        let softplus = select(step > 20.0f32, step, log);
        let at = index * comptime!(FACTORS);
        // The bounds keep exponentials finite, which WGSL asks for.
        factors[at] = f32::exp(max(a[head] * softplus, -87.0f32));
        factors[at + 1] = 1.0f32 / (1.0f32 + f32::exp(min(-beta[index], 87.0f32)));
        factors[at + 2] = of_key;
        factors[at + 3] = of_query;
        factors[at + 4] = both * of_key * of_query;
    }
}

#[cube]
fn key_head(
    head: usize,
    key_heads: usize,
    value_heads: usize,
    #[comptime] config: DeltaConfig,
) -> usize {
    if comptime!(config.grouped) {
        head / (value_heads / key_heads)
    } else {
        head % key_heads
    }
}

/// Where a column finds its operands at a token.
#[derive(CubeType, Clone, Copy)]
struct Places {
    query: usize,
    key: usize,
    value: usize,
    factors: usize,
    out: usize,
}

#[cube]
fn places(
    column: usize,
    row: usize,
    key_heads: usize,
    value_heads: usize,
    #[comptime] config: DeltaConfig,
) -> Places {
    let dim = comptime!(config.dim);
    let head = column / dim % value_heads;
    let at = row * (2 * key_heads + value_heads);
    let query = (at + key_head(head, key_heads, value_heads, config)) * dim;
    let index = row * value_heads + head;
    Places {
        query,
        key: query + key_heads * dim,
        value: (at + 2 * key_heads + head) * dim + column % dim,
        factors: index * comptime!(FACTORS),
        out: index * dim + column % dim,
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn delta_plane_kernel(
    mixed: &[f32],
    factors: &[f32],
    state: &mut [f32],
    out: &mut [f32],
    columns: usize,
    tokens: usize,
    first: usize,
    end: usize,
    key_heads: usize,
    value_heads: usize,
    #[comptime] config: DeltaConfig,
) {
    let dim = comptime!(config.dim);
    let lanes = comptime!(config.lanes);
    let rows = comptime!(config.dim / config.lanes);
    let lane = UNIT_POS_X as usize;
    let place = CUBE_POS * comptime!(SLOTS) + UNIT_POS_Y as usize;
    let column = min(place, columns - 1);
    let item = column / dim / value_heads;
    let start = column / dim * comptime!(config.dim * config.dim) + column % dim;

    let mut cells = Array::<f32>::new(rows);
    #[unroll]
    for r in 0..rows {
        cells[r] = state[start + (lane + comptime!(r * lanes)) * dim];
    }
    for t in first..end {
        let at = places(column, item * tokens + t, key_heads, value_heads, config);
        let mut keys = Array::<f32>::new(rows);
        let mut of_key = 0.0f32;
        let mut of_query = 0.0f32;
        #[unroll]
        for r in 0..rows {
            let i = lane + comptime!(r * lanes);
            keys[r] = mixed[at.key + i];
            of_key += cells[r] * keys[r];
            of_query += cells[r] * mixed[at.query + i];
        }
        let of_key = plane_sum(of_key);
        let of_query = plane_sum(of_query);
        let decay = factors[at.factors];
        let unit = factors[at.factors + 2];
        let faded = decay * unit * of_key;
        let correction = factors[at.factors + 1] * (mixed[at.value] - faded);
        let of_query = decay * factors[at.factors + 3] * of_query;
        if lane == 0 && place < columns {
            out[at.out] = of_query + factors[at.factors + 4] * correction;
        }
        let correction = correction * unit;
        #[unroll]
        for r in 0..rows {
            cells[r] = decay * cells[r] + correction * keys[r];
        }
    }
    if place < columns {
        #[unroll]
        for r in 0..rows {
            state[start + (lane + comptime!(r * lanes)) * dim] = cells[r];
        }
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn delta_alone_kernel(
    mixed: &[f32],
    factors: &[f32],
    state: &mut [f32],
    out: &mut [f32],
    columns: usize,
    tokens: usize,
    first: usize,
    end: usize,
    key_heads: usize,
    value_heads: usize,
    #[comptime] config: DeltaConfig,
) {
    let column = ABSOLUTE_POS;
    if column < columns {
        let dim = comptime!(config.dim);
        let step = comptime!(config.step);
        let item = column / dim / value_heads;
        let start = column / dim * comptime!(config.dim * config.dim) + column % dim;
        for t in first..end {
            let at = places(column, item * tokens + t, key_heads, value_heads, config);
            let mut of_key = 0.0f32;
            let mut of_query = 0.0f32;
            let mut i = 0usize;
            while i < dim {
                #[unroll]
                for u in 0..step {
                    let cell = state[start + (i + u) * dim];
                    of_key += cell * mixed[at.key + i + u];
                    of_query += cell * mixed[at.query + i + u];
                }
                i += step;
            }
            let decay = factors[at.factors];
            let unit = factors[at.factors + 2];
            let faded = decay * unit * of_key;
            let correction = factors[at.factors + 1] * (mixed[at.value] - faded);
            let of_query = decay * factors[at.factors + 3] * of_query;
            out[at.out] = of_query + factors[at.factors + 4] * correction;
            let correction = correction * unit;
            let mut i = 0usize;
            while i < dim {
                #[unroll]
                for u in 0..step {
                    let cell = start + (i + u) * dim;
                    state[cell] = decay * state[cell] + correction * mixed[at.key + i + u];
                }
                i += step;
            }
        }
    }
}
