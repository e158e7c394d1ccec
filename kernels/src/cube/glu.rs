//! Gated linear units.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{CubeError, matrix::check_operand};

pub(super) const UNITS: u32 = 64;

/// The gate's activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GluKind {
    /// `x * sigmoid(x)`: SwiGLU.
    Silu,
    /// The tanh approximation of GELU: GeGLU.
    GeluTanh,
    /// `x * sigmoid(1.702 x)` of the gate up to 7, times `up + 1` with `up` within -7 and 7.
    SwigluOai,
}

/// `activation(gate) * up` of `values` values each, `f32` and contiguous.
///
/// # Errors
/// If an operand is too short, or over what one binding of the device may hold.
pub fn glu(
    client: &Client,
    gate: Handle,
    up: Handle,
    values: usize,
    kind: GluKind,
) -> Result<Handle, CubeError> {
    check_operand(client, "gate", Some(&gate), Some(values))?;
    check_operand(client, "up", Some(&up), Some(values))?;
    let out = client.empty(values * 4);
    if values == 0 {
        return Ok(out);
    }
    let vector = if values.is_multiple_of(4) { 4 } else { 1 };
    let lines = values / vector;
    let cube_dim = CubeDim::new_1d(UNITS);
    // SAFETY: the lengths are those of the buffers, and the kernel compares every index with them.
    unsafe {
        glu_kernel::launch_unchecked(
            client,
            calculate_cube_count_elemwise(client, lines, cube_dim),
            cube_dim,
            vector,
            BufferArg::from_raw_parts(gate, lines),
            BufferArg::from_raw_parts(up, lines),
            BufferArg::from_raw_parts(out.clone(), lines),
            kind,
        );
    }
    Ok(out)
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn glu_kernel<N: Size>(
    gate: &[Vector<f32, N>],
    up: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    #[comptime] kind: GluKind,
) {
    if ABSOLUTE_POS < out.len() {
        let width = N::value();
        let gates = gate[ABSOLUTE_POS];
        let ups = up[ABSOLUTE_POS];
        let mut result = Vector::<f32, N>::empty();
        #[unroll]
        for lane in 0..width {
            let gate = gates.extract(lane);
            let up = ups.extract(lane);
            if comptime!(kind == GluKind::SwigluOai) {
                let other = max(min(up, 7.0f32), -7.0f32) + 1.0f32;
                result.insert(lane, activation(min(gate, 7.0f32), kind) * other);
            } else {
                result.insert(lane, activation(gate, kind) * up);
            }
        }
        out[ABSOLUTE_POS] = result;
    }
}

#[cube]
fn activation(x: f32, #[comptime] kind: GluKind) -> f32 {
    // (1 + tanh(y)) / 2 is sigmoid(2 y), which keeps the digits of its small values.
    let inner = if comptime!(kind == GluKind::Silu) {
        x
    } else if comptime!(kind == GluKind::SwigluOai) {
        1.702f32 * x
    } else {
        comptime!(2.0 * (2.0 / core::f32::consts::PI).sqrt()) * (x + 0.044715f32 * x * x * x)
    };
    // The bound keeps the exponential finite, which WGSL asks for.
    x / (1.0f32 + f32::exp(min(-inner, 87.0f32)))
}
