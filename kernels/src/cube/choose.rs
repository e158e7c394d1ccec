//! The choice of experts from a router's logits.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{CubeError, Reduction, matrix::check_operand, route::spread};
use crate::cpu::{ChoiceShape, Gating};

pub(super) const UNITS: u32 = 32;
/// Tokens of a cube where a plane has a token.
const SLOTS: usize = 4;
/// Below every score, and finite: WGSL knows no infinities.
const LOWEST: f32 = -3.0e38;

/// See [`choose_experts`](crate::cpu::choose_experts()): ids as `i32` and shares, `[tokens, used]` each. Operands are `f32`
/// and contiguous.
///
/// `reduction` is how units work together, `None` what suits the device.
///
/// # Errors
/// If no expert or more than there are are to be chosen, an operand is too short, or one is over what one binding of the
/// device may hold.
pub fn choose_experts(
    client: &Client,
    logits: Handle,
    bias: Option<Handle>,
    shape: &ChoiceShape,
    reduction: Option<Reduction>,
) -> Result<(Handle, Handle), CubeError> {
    let &ChoiceShape {
        tokens,
        experts,
        used,
        ..
    } = shape;
    if used == 0 || used > experts {
        return Err(CubeError::BadChoice { used, experts });
    }
    let values = check_operand(client, "logits", Some(&logits), tokens.checked_mul(experts))?;
    if let Some(bias) = &bias {
        check_operand(client, "bias", Some(bias), Some(experts))?;
    }
    let slots = check_operand(client, "ids", None, tokens.checked_mul(used))?;
    let (ids, shares) = (client.empty(slots * 4), client.empty(slots * 4));
    if slots == 0 {
        return Ok((ids, shares));
    }
    let reduction = reduction.unwrap_or_else(|| Reduction::of(client.properties()));
    let config = ChoiceConfig::new(client.properties(), shape, bias.is_some(), reduction);
    let (bias, bias_len) = match bias {
        Some(bias) => (bias, experts),
        None => (logits.clone(), values),
    };
    let cubes = match config.lanes {
        1 => calculate_cube_count_elemwise(client, tokens, config.cube_dim()),
        _ => spread(client, tokens.div_ceil(SLOTS)),
    };
    // SAFETY: the lengths are those of the buffers; tokens are clamped to existing ones, and only those are written.
    unsafe {
        choose_kernel::launch_unchecked(
            client,
            cubes,
            config.cube_dim(),
            BufferArg::from_raw_parts(logits, values),
            BufferArg::from_raw_parts(bias, bias_len),
            BufferArg::from_raw_parts(ids.clone(), slots),
            BufferArg::from_raw_parts(shares.clone(), slots),
            tokens,
            experts,
            shape.least_sum,
            shape.scale,
            config,
        );
    }
    Ok((ids, shares))
}

/// What the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChoiceConfig {
    /// Units of a token.
    lanes: usize,
    used: usize,
    gating: Gating,
    biased: bool,
    normalize: bool,
}

impl ChoiceConfig {
    pub(super) fn new(
        properties: &DeviceProperties,
        shape: &ChoiceShape,
        biased: bool,
        reduction: Reduction,
    ) -> Self {
        Self {
            lanes: match reduction {
                Reduction::Plane => properties.hardware.plane_size_max as usize,
                _ => 1,
            },
            used: shape.used,
            gating: shape.gating,
            biased,
            normalize: shape.normalize,
        }
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        match self.lanes {
            1 => CubeDim::new_1d(UNITS),
            lanes => CubeDim::new_2d(lanes as u32, SLOTS as u32),
        }
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn choose_kernel(
    logits: &[f32],
    bias: &[f32],
    ids: &mut [i32],
    shares: &mut [f32],
    tokens: usize,
    experts: usize,
    least_sum: f32,
    scale: f32,
    #[comptime] config: ChoiceConfig,
) {
    let lanes = comptime!(config.lanes);
    let used = comptime!(config.used);
    let alone = comptime!(config.lanes == 1);
    let mut lane = 0usize;
    let mut token = ABSOLUTE_POS;
    if comptime!(!alone) {
        lane = UNIT_POS_X as usize;
        token = CUBE_POS * comptime!(SLOTS) + UNIT_POS_Y as usize;
    }
    let here = token < tokens;
    let row = min(token, tokens - 1) * experts;

    // What a softmax needs of the whole row.
    let mut top = 0.0f32;
    let mut total = 1.0f32;
    if comptime!(config.gating == Gating::Softmax) {
        top = f32::new(LOWEST);
        let mut e = lane;
        while e < experts {
            top = max(top, logits[row + e]);
            e += lanes;
        }
        if comptime!(!alone) {
            top = plane_max(top);
        }
        total = 0.0f32;
        let mut e = lane;
        while e < experts {
            total += f32::exp(logits[row + e] - top);
            e += lanes;
        }
        if comptime!(!alone) {
            total = plane_sum(total);
        }
    }

    // Each round takes the best of those behind the last one in the order of scores, then numbers.
    let mut last = f32::new(3.0e38);
    let mut last_id = 0u32;
    let mut chosen = Array::<f32>::new(used);
    let mut sum = 0.0f32;
    let none = u32::cast_from(experts);
    #[unroll]
    for slot in 0..used {
        let mut best = f32::new(LOWEST);
        let mut id = none;
        let mut e = lane;
        while e < experts {
            let score = score(logits[row + e], bias, e, top, total, config);
            let number = u32::cast_from(e);
            let behind = score < last || (score == last && number > last_id);
            // Numbers grow, so that the first of equals stays.
            if behind && (score > best || id == none) {
                best = score;
                id = number;
            }
            e += lanes;
        }
        if comptime!(!alone) {
            let highest = plane_max(best);
            id = plane_min(select(best == highest, id, none));
            best = highest;
        }
        // Without any number left all are NaN: any expert will do.
        id = min(id, none - 1);
        last = best;
        last_id = id;
        let value = share(logits[row + usize::cast_from(id)], top, total, config);
        chosen[slot] = value;
        sum += value;
        if here && lane == 0 {
            ids[token * used + slot] = i32::cast_from(id);
        }
    }
    let mut factor = scale;
    if comptime!(config.normalize) {
        factor = scale / max(sum, least_sum);
    }
    if here && lane == 0 {
        #[unroll]
        for slot in 0..used {
            shares[token * used + slot] = chosen[slot] * factor;
        }
    }
}

#[cube]
fn share(logit: f32, top: f32, total: f32, #[comptime] config: ChoiceConfig) -> f32 {
    if comptime!(config.gating == Gating::Softmax) {
        f32::exp(logit - top) / total
    } else {
        // The bound keeps the exponential finite, which WGSL asks for.
        1.0f32 / (1.0f32 + f32::exp(min(-logit, 87.0f32)))
    }
}

/// What the choice is by: without a bias logits have the order of shares, and are not rounded.
#[cube]
fn score(
    logit: f32,
    bias: &[f32],
    expert: usize,
    top: f32,
    total: f32,
    #[comptime] config: ChoiceConfig,
) -> f32 {
    let mut score = logit;
    if comptime!(config.biased) {
        score = share(logit, top, total, config) + bias[expert];
    }
    score
}
