//! `y = x . W[e]^T` for the experts `e` that each token chose, on the device.
//!
//! A few slots (token and choice) are computed one by one. For many, slots are sorted by expert first, so that the rows of
//! an expert are decoded once for all tokens that chose it: one unit per expert counts its slots, then places them behind
//! those of the experts before it. No unit waits for another, no atomics are needed, and the order never varies.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{
    CubeError, CubeMatrix, LinearOptions, Reduction, gemm, gemv,
    matrix::check_operand,
    route::{Experts, Product, Route},
};

pub(super) const UNITS: u32 = 32;

/// From how many slots on they are sorted by expert.
const SORTED_SLOTS: usize = 32;
/// From how many slots per expert on the tiled kernel is used.
const GEMM_SLOTS: usize = 16;

/// Sizes of a product with experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsShape {
    /// Experts in the stack.
    pub experts: usize,
    /// Tokens.
    pub tokens: usize,
    /// Experts that each token chose.
    pub chosen: usize,
    /// Whether each choice has a row of `x` of its own, and not each token.
    pub x_per_choice: bool,
}

/// For each token and chosen expert, `y = x . W[expert]^T`: `[tokens, chosen, rows]`, `f32`.
///
/// `stack` is `[experts * rows, cols]`. `ids` is `[tokens, chosen]` of `i32` or `u32`; `x` is `[tokens, cols]` or, with
/// [`ExpertsShape::x_per_choice`], `[tokens, chosen, cols]`, `f32`; both contiguous. The device cannot report an id that
/// is not an expert; its row of the output is filled with NaN. Arithmetic is that of [`linear`](super::linear).
///
/// # Errors
/// If the stack's rows are not a multiple of the experts, an operand is too short, or one is over what a binding of the
/// device may hold.
pub fn linear_experts(
    client: &Client,
    stack: &CubeMatrix,
    ids: Handle,
    x: Handle,
    shape: &ExpertsShape,
) -> Result<Handle, CubeError> {
    linear_experts_with(client, stack, ids, x, shape, LinearOptions::default(), None)
}

/// [`linear_experts`] with the choice of kernel in the caller's hands: `sorted` says whether slots are sorted by expert,
/// and `gemv_rows` of the options up to how many slots per expert the matrix-vector kernel is used then.
///
/// # Errors
/// As [`linear_experts`].
pub fn linear_experts_with(
    client: &Client,
    stack: &CubeMatrix,
    ids: Handle,
    x: Handle,
    shape: &ExpertsShape,
    options: LinearOptions,
    sorted: Option<bool>,
) -> Result<Handle, CubeError> {
    let &ExpertsShape {
        experts,
        tokens,
        chosen,
        x_per_choice,
    } = shape;
    if !stack.rows().is_multiple_of(experts.max(1)) || (experts == 0 && stack.rows() > 0) {
        return Err(CubeError::BadExperts {
            experts,
            rows: stack.rows(),
        });
    }
    let rows = stack.rows() / experts.max(1);
    let slots = tokens.checked_mul(chosen);
    let x_rows = if x_per_choice { slots } else { Some(tokens) };
    check_operand(
        client,
        "x",
        Some(&x),
        x_rows.and_then(|n| n.checked_mul(stack.cols())),
    )?;
    let n = check_operand(client, "ids", Some(&ids), slots)?;
    let values = check_operand(client, "output", None, n.checked_mul(rows))?;
    let out = client.empty(values * 4);
    if values == 0 {
        return Ok(out);
    }
    if stack.cols() == 0 {
        return Err(CubeError::BadRowLength {
            ty: stack.ty(),
            cols: 0,
        });
    }
    let reduction = options
        .reduction
        .unwrap_or_else(|| Reduction::of(client.properties()));
    let per_expert = n.div_ceil(experts);
    let gemv_rows = options.gemv_rows.unwrap_or(match reduction {
        Reduction::Alone => usize::MAX,
        _ => GEMM_SLOTS,
    });
    let tiled = per_expert > gemv_rows;
    let sorted = tiled || sorted.unwrap_or(n >= SORTED_SLOTS);
    let mut routed = Experts {
        count: experts,
        rows,
        slots_per_x: if x_per_choice { 1 } else { chosen },
        route: Route::Slots,
        table: ids,
        table_len: n,
        tile_len: 1,
        tiles: 0,
    };
    if sorted {
        routed.route = Route::Sorted;
        routed.tile_len = per_expert.next_power_of_two().min(if tiled {
            gemm::MAX_TOKENS
        } else {
            gemv::MAX_ROWS
        });
        if tiled {
            routed.tile_len = routed.tile_len.max(gemm::MIN_TOKENS);
        }
        sort(client, &mut routed, n);
    }
    let product = Product {
        x,
        x_rows: n / routed.slots_per_x,
        n,
        out: out.clone(),
        experts: Some(routed),
    };
    for piece in stack.pieces() {
        if tiled {
            gemm::launch(client, stack, piece, &product);
        } else {
            gemv::launch(client, stack, piece, &product, reduction);
        }
    }
    Ok(out)
}

/// Replaces the ids in `experts.table` by the slots sorted by expert, in tiles.
fn sort(client: &Client, experts: &mut Experts, n: usize) {
    // The ids that are no expert are a last group.
    let groups = experts.count + 1;
    // Every group that has slots may leave one tile that is not full.
    let tiles = (n + groups.min(n) * (experts.tile_len - 1)) / experts.tile_len;
    let counts = client.empty(groups * 4);
    let table_len = tiles * 3 + n;
    let table = client.empty(table_len * 4);
    let cube_dim = CubeDim::new_1d(UNITS);
    let cubes = calculate_cube_count_elemwise(client, groups, cube_dim);
    // SAFETY: the lengths are those of the buffers. Units from `groups` on do nothing, and the others write their own
    // count, their own tiles and the places of their own slots, which together fill the table.
    unsafe {
        count_slots_kernel::launch_unchecked(
            client,
            cubes.clone(),
            cube_dim,
            BufferArg::from_raw_parts(experts.table.clone(), n),
            BufferArg::from_raw_parts(counts.clone(), groups),
        );
        place_slots_kernel::launch_unchecked(
            client,
            cubes,
            cube_dim,
            BufferArg::from_raw_parts(experts.table.clone(), n),
            BufferArg::from_raw_parts(counts, groups),
            BufferArg::from_raw_parts(table.clone(), table_len),
            tiles,
            experts.tile_len,
        );
    }
    experts.table = table;
    experts.table_len = table_len;
    experts.tiles = tiles;
}

/// Turns of an inner loop: some software devices end a loop after 65535 turns.
const CHUNK: usize = 1024;

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn count_slots_kernel(ids: &[u32], counts: &mut [u32]) {
    let group = ABSOLUTE_POS;
    let last = counts.len() - 1;
    if group <= last {
        let n = ids.len();
        let mut count = 0u32;
        for chunk in 0..n.div_ceil(CHUNK) {
            let mut slot = chunk * CHUNK;
            let end = min(slot + CHUNK, n);
            while slot < end {
                let mine = min(ids[slot], u32::cast_from(last)) == u32::cast_from(group);
                count += select(mine, 1u32, 0u32);
                slot += 1;
            }
        }
        counts[group] = count;
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn place_slots_kernel(
    ids: &[u32],
    counts: &[u32],
    table: &mut [u32],
    tiles: usize,
    tile_len: usize,
) {
    let group = ABSOLUTE_POS;
    let last = counts.len() - 1;
    if group <= last {
        let n = ids.len();
        let mut start = 0usize;
        let mut tile = 0usize;
        let mut before = 0usize;
        while before < group {
            let count = usize::cast_from(counts[before]);
            start += count;
            tile += count.div_ceil(tile_len);
            before += 1;
        }
        let end = start + usize::cast_from(counts[group]);
        let mut first = start;
        while first < end {
            table[tile * 3] = u32::cast_from(group);
            table[tile * 3 + 1] = u32::cast_from(first);
            table[tile * 3 + 2] = u32::cast_from(min(first + tile_len, end));
            first += tile_len;
            tile += 1;
        }
        if group == last {
            // Tiles that no group needs are empty.
            while tile < tiles {
                table[tile * 3] = 0;
                table[tile * 3 + 1] = 0;
                table[tile * 3 + 2] = 0;
                tile += 1;
            }
        }
        let mut place = tiles * 3 + start;
        for chunk in 0..n.div_ceil(CHUNK) {
            let mut slot = chunk * CHUNK;
            let end = min(slot + CHUNK, n);
            while slot < end {
                if min(ids[slot], u32::cast_from(last)) == u32::cast_from(group) {
                    table[place] = u32::cast_from(slot);
                    place += 1;
                }
                slot += 1;
            }
        }
    }
}
