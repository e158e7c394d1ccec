//! Rotary position embedding from tables.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{CubeError, matrix::check_operand};
use crate::cpu::RopePairing;

pub(super) const UNITS: u32 = 64;

/// Sizes of a [`rope`] call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeShape {
    /// Independent sequences.
    pub batch: usize,
    /// Tokens of each.
    pub seq: usize,
    /// Heads of a token.
    pub heads: usize,
    /// Values of a head.
    pub dim: usize,
    /// Pairs that rotate: half of the rotated values, which come first.
    pub pairs: usize,
}

/// Rotates the first `2 * pairs` values of every head and copies the others: `x` is `[batch, seq, heads, dim]`,
/// `cos` and `sin` are `[seq, pairs]`, the result is shaped as `x`; all `f32` and contiguous.
///
/// # Errors
/// If more values rotate than a head has, an operand is too short, or one is over what one binding of the device may
/// hold.
pub fn rope(
    client: &Client,
    x: Handle,
    cos: Handle,
    sin: Handle,
    shape: &RopeShape,
    pairing: RopePairing,
) -> Result<Handle, CubeError> {
    let &RopeShape {
        batch,
        seq,
        heads,
        dim,
        pairs,
    } = shape;
    if pairs > dim / 2 {
        return Err(CubeError::BadRotation { pairs, dim });
    }
    let rows = batch.checked_mul(seq).and_then(|n| n.checked_mul(heads));
    let values = rows.and_then(|rows| rows.checked_mul(dim));
    let values = check_operand(client, "x", Some(&x), values)?;
    let table = seq.checked_mul(pairs);
    let table = check_operand(client, "cos", Some(&cos), table)
        .and_then(|_| check_operand(client, "sin", Some(&sin), table))?;
    if values == 0 || pairs == 0 {
        return Ok(x);
    }
    let out = client.empty(values * 4);
    let (step, gap) = match pairing {
        RopePairing::Neox => (1, pairs),
        RopePairing::Norm => (2, 1),
    };
    let tasks = values / dim * (dim - pairs);
    let cube_dim = CubeDim::new_1d(UNITS);
    // SAFETY: the lengths are those of the buffers; a task below `tasks` is a pair or a single value of an existing
    // head, and each value belongs to one task.
    unsafe {
        rope_kernel::launch_unchecked(
            client,
            calculate_cube_count_elemwise(client, tasks, cube_dim),
            cube_dim,
            BufferArg::from_raw_parts(x, values),
            BufferArg::from_raw_parts(cos, table),
            BufferArg::from_raw_parts(sin, table),
            BufferArg::from_raw_parts(out.clone(), values),
            tasks,
            seq,
            heads,
            dim,
            pairs,
            step,
            gap,
        );
    }
    Ok(out)
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn rope_kernel(
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    out: &mut [f32],
    tasks: usize,
    seq: usize,
    heads: usize,
    dim: usize,
    pairs: usize,
    step: usize,
    gap: usize,
) {
    if ABSOLUTE_POS < tasks {
        let per_head = dim - pairs;
        let head = ABSOLUTE_POS / per_head;
        let task = ABSOLUTE_POS % per_head;
        let start = head * dim;
        if task < pairs {
            let entry = head / heads % seq * pairs + task;
            let (c, s) = (cos[entry], sin[entry]);
            let first = start + task * step;
            let second = first + gap;
            let (a, b) = (x[first], x[second]);
            out[first] = a * c - b * s;
            out[second] = a * s + b * c;
        } else {
            out[start + pairs + task] = x[start + pairs + task];
        }
    }
}
