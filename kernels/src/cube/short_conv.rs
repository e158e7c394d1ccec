//! The short causal convolution of linear attention, and its activation.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{CubeError, matrix::check_operand};
use crate::cpu::ShortConvShape;

pub(super) const UNITS: u32 = 64;

/// See [`short_conv`](crate::cpu::short_conv()): the result and the new state, which is a buffer of its own. All operands
/// are `f32` and contiguous.
///
/// # Errors
/// If there are no taps, an operand is too short, or one is over what one binding of the device may hold.
pub fn short_conv(
    client: &Client,
    x: Handle,
    taps: Handle,
    state: Handle,
    shape: &ShortConvShape,
) -> Result<(Handle, Handle), CubeError> {
    let &ShortConvShape {
        batch,
        tokens,
        channels,
        kernel,
    } = shape;
    let Some(past) = kernel.checked_sub(1) else {
        return Err(CubeError::BadLength {
            what: "taps",
            expected: 4,
            got: 0,
        });
    };
    let rows = |each: usize| {
        batch
            .checked_mul(each)
            .and_then(|n| n.checked_mul(channels))
    };
    let values = check_operand(client, "x", Some(&x), rows(tokens))?;
    let taps_len = channels.checked_mul(kernel);
    let taps_len = check_operand(client, "taps", Some(&taps), taps_len)?;
    let kept = check_operand(client, "state", Some(&state), rows(past))?;
    check_operand(client, "rows", None, values.checked_add(kept))?;
    if values == 0 {
        return Ok((client.empty(0), state));
    }
    let out = client.empty(values * 4);
    // A binding must hold something.
    let after = client.empty(kept.max(1) * 4);
    let before = if kept == 0 { x.clone() } else { state };
    let cube_dim = CubeDim::new_1d(UNITS);
    // SAFETY: the lengths are those of the buffers; a task below `values + kept` is a value of the output or of the new
    // state, and reads existing rows.
    unsafe {
        short_conv_kernel::launch_unchecked(
            client,
            calculate_cube_count_elemwise(client, values + kept, cube_dim),
            cube_dim,
            BufferArg::from_raw_parts(x, values),
            BufferArg::from_raw_parts(taps, taps_len),
            BufferArg::from_raw_parts(before, kept.max(1)),
            BufferArg::from_raw_parts(out.clone(), values),
            BufferArg::from_raw_parts(after.clone(), kept.max(1)),
            values + kept,
            tokens,
            channels,
            kernel,
        );
    }
    Ok((out, after))
}

/// A value of a row of state and inputs one after the other.
#[cube]
fn value_at(
    x: &[f32],
    before: &[f32],
    item: usize,
    row: usize,
    channel: usize,
    tokens: usize,
    channels: usize,
    past: usize,
) -> f32 {
    let mut value = 0.0f32;
    if row < past {
        value += before[(item * past + row) * channels + channel];
    } else {
        value += x[(item * tokens + row - past) * channels + channel];
    }
    value
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn short_conv_kernel(
    x: &[f32],
    taps: &[f32],
    before: &[f32],
    out: &mut [f32],
    after: &mut [f32],
    tasks: usize,
    tokens: usize,
    channels: usize,
    kernel: usize,
) {
    if ABSOLUTE_POS < tasks {
        let past = kernel - 1;
        let channel = ABSOLUTE_POS % channels;
        let row = ABSOLUTE_POS / channels;
        let item = row / (tokens + past);
        let t = row % (tokens + past);
        if t < tokens {
            let mut sum = 0.0f32;
            let mut j = 0usize;
            while j < kernel {
                let value = value_at(x, before, item, t + j, channel, tokens, channels, past);
                sum += value * taps[channel * kernel + j];
                j += 1;
            }
            // The bound keeps the exponential finite, which WGSL asks for.
            let y = sum / (1.0f32 + f32::exp(min(-sum, 87.0f32)));
            out[(item * tokens + t) * channels + channel] = y;
        } else {
            // The last inputs: row `t` of both, as there are `tokens` rows more than these.
            let value = value_at(x, before, item, t, channel, tokens, channels, past);
            after[(item * past + t - tokens) * channels + channel] = value;
        }
    }
}
