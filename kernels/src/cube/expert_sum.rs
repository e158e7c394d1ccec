//! The sum of what a token's experts say.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{CubeError, matrix::check_operand};
use crate::cpu::ExpertSumShape;

pub(super) const UNITS: u32 = 64;

/// See [`expert_sum`](crate::cpu::expert_sum()): `[tokens, width]`. Operands are `f32` and contiguous; `shared` is the
/// output of what all tokens share, and the gate of that.
///
/// # Errors
/// If an operand is too short, or over what one binding of the device may hold.
pub fn expert_sum(
    client: &Client,
    y: Handle,
    shares: Handle,
    shared: Option<(Handle, Handle)>,
    shape: &ExpertSumShape,
) -> Result<Handle, CubeError> {
    let &ExpertSumShape {
        tokens,
        used,
        width,
    } = shape;
    let slots = tokens.checked_mul(used);
    let inputs = slots.and_then(|n| n.checked_mul(width));
    let inputs = check_operand(client, "y", Some(&y), inputs)?;
    let slots = check_operand(client, "shares", Some(&shares), slots)?;
    let values = check_operand(client, "output", None, tokens.checked_mul(width))?;
    if let Some((shared, gate)) = &shared {
        check_operand(client, "shared", Some(shared), Some(values))?;
        check_operand(client, "gate", Some(gate), Some(tokens))?;
    }
    let out = client.empty(values * 4);
    if values == 0 || used == 0 {
        return match used == 0 && values > 0 {
            true => Err(CubeError::BadChoice { used, experts: 0 }),
            false => Ok(out),
        };
    }
    let with_shared = shared.is_some();
    let (shared, gate) = shared.unwrap_or_else(|| (y.clone(), shares.clone()));
    let (shared_len, gates) = match with_shared {
        true => (values, tokens),
        false => (inputs, slots),
    };
    let cube_dim = CubeDim::new_1d(UNITS);
    // SAFETY: the lengths are those of the buffers, and the kernel compares every index with the output's.
    unsafe {
        expert_sum_kernel::launch_unchecked(
            client,
            calculate_cube_count_elemwise(client, values, cube_dim),
            cube_dim,
            BufferArg::from_raw_parts(y, inputs),
            BufferArg::from_raw_parts(shares, slots),
            BufferArg::from_raw_parts(shared, shared_len),
            BufferArg::from_raw_parts(gate, gates),
            BufferArg::from_raw_parts(out.clone(), values),
            used,
            width,
            with_shared,
        );
    }
    Ok(out)
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn expert_sum_kernel(
    y: &[f32],
    shares: &[f32],
    shared: &[f32],
    gate: &[f32],
    out: &mut [f32],
    used: usize,
    width: usize,
    #[comptime] with_shared: bool,
) {
    if ABSOLUTE_POS < out.len() {
        let token = ABSOLUTE_POS / width;
        let column = ABSOLUTE_POS % width;
        let mut sum = 0.0f32;
        let mut slot = token * used;
        let end = slot + used;
        while slot < end {
            sum += shares[slot] * y[slot * width + column];
            slot += 1;
        }
        if comptime!(with_shared) {
            // The bound keeps the exponential finite, which WGSL asks for.
            let open = 1.0f32 / (1.0f32 + f32::exp(min(-gate[token], 87.0f32)));
            sum += open * shared[ABSOLUTE_POS];
        }
        out[ABSOLUTE_POS] = sum;
    }
}
