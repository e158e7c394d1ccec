//! The choice of the blocks of keys that attention sees: an indexer's queries are scored against its keys, of which each
//! token has one, and the blocks with the best single keys are kept.
//!
//! One kernel finds the best score of each block, a plane to a block where the device has planes and a unit where it has not;
//! another counts for each block how many are better. Both work on some tokens at a time, so that the scores stay small.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*, server::Handle};

use super::{CubeError, KeyBlocks, Reduction, matrix::check_operand, route::spread};

/// Scores that are held at a time.
const MOST_SCORES: usize = 1 << 22;
/// Units of a cube where they do not work together.
pub(super) const UNITS: u32 = 64;
/// Planes of a cube.
const PLANES: usize = 4;
/// Below every score, and finite: WGSL knows no infinities.
const LOWEST: f32 = -3.0e38;
/// Above every score.
const HIGHEST: f32 = 3.0e38;

/// Sizes of a [`choose_blocks`] call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockChoiceShape {
    /// Independent sequences, of the same length.
    pub batch: usize,
    /// Tokens of this call.
    pub seq: usize,
    /// Heads of the queries; each chooses for itself, over the same keys.
    pub heads: usize,
    /// Values of a query and of a key.
    pub dim: usize,
    /// Keys the cache holds.
    pub capacity: usize,
    /// Keys that are valid, those of this call's tokens being the last of them.
    pub len: usize,
    /// Keys of a block.
    pub size: usize,
    /// Blocks a head sees of those that begin at the token or before it, at most.
    pub top: usize,
    /// How many of them are the last ones, the token's own first, whatever their scores.
    pub local: usize,
}

/// The bits of the blocks that each token's heads see, `u32` `[batch, seq, heads, words]` as in [`KeyBlocks`]: the `local` last
/// ones, and those where `max_j q[b, t, h] . k[b, j]` over the keys `j` of the block up to the token is largest; of equal ones
/// the earlier. `q` is `[batch, seq, heads, dim]`, `k` `[batch, capacity, dim]`, both `f32` and contiguous.
///
/// `reduction` is how units work together, `None` what suits the device.
///
/// # Errors
/// If the sizes contradict each other, an operand is too short, or one is over what one binding of the device may hold.
pub fn choose_blocks(
    client: &Client,
    q: Handle,
    k: Handle,
    shape: &BlockChoiceShape,
    reduction: Option<Reduction>,
) -> Result<Handle, CubeError> {
    let &BlockChoiceShape {
        batch,
        seq,
        heads,
        dim,
        capacity,
        len,
        size,
        top,
        local,
    } = shape;
    if size == 0 {
        return Err(CubeError::NoBlocks);
    }
    if seq > len || len > capacity {
        return Err(CubeError::BadCacheLen { seq, len, capacity });
    }
    let product = |dims: &[usize]| dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let values = check_operand(client, "q", Some(&q), product(&[batch, seq, heads, dim]))?;
    let cached = check_operand(client, "k", Some(&k), product(&[batch, capacity, dim]))?;
    let (blocks, words) = (len.div_ceil(size), KeyBlocks::words(len, size));
    let out_len = check_operand(client, "bits", None, product(&[batch, seq, heads, words]))?;
    let out = client.empty(out_len * 4);
    if out_len == 0 || dim == 0 {
        return Ok(out);
    }
    let reduction = reduction.unwrap_or_else(|| Reduction::of(client.properties()));
    let config = ChooseConfig::new(client.properties(), reduction);
    let vector = if dim.is_multiple_of(4) { 4 } else { 1 };
    let all = batch * seq;
    let tokens = (MOST_SCORES / (heads * blocks)).clamp(1, all);
    let scores = client.empty(tokens * heads * blocks * 4);
    for first in (0..all).step_by(tokens) {
        let rows = tokens.min(all - first) * heads;
        let first_row = first * heads;
        // SAFETY: the lengths are those of the buffers; rows lie below `batch * seq * heads`, keys below `len`, which the
        // capacity holds, and only existing scores and words are written.
        unsafe {
            block_scores_kernel::launch_unchecked(
                client,
                spread(client, (rows * blocks).div_ceil(config.at_once())),
                config.cube_dim(),
                vector,
                BufferArg::from_raw_parts(q.clone(), values / vector),
                BufferArg::from_raw_parts(k.clone(), cached / vector),
                BufferArg::from_raw_parts(scores.clone(), rows * blocks),
                first_row,
                rows,
                blocks,
                seq,
                heads,
                capacity,
                len,
                size,
                dim / vector,
                config,
            );
            let cube_dim = CubeDim::new_1d(UNITS);
            choose_blocks_kernel::launch_unchecked(
                client,
                calculate_cube_count_elemwise(client, rows * words, cube_dim),
                cube_dim,
                BufferArg::from_raw_parts(scores.clone(), rows * blocks),
                BufferArg::from_raw_parts(out.clone(), out_len),
                first_row,
                rows,
                blocks,
                words,
                seq,
                heads,
                len,
                size,
                top,
                local,
            );
        }
    }
    Ok(out)
}

/// What the first kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChooseConfig {
    /// Whether a plane scores a block, or a unit.
    planes: bool,
    /// Units of a plane.
    units: usize,
}

impl ChooseConfig {
    pub(super) fn new(properties: &DeviceProperties, reduction: Reduction) -> Self {
        let planes = reduction == Reduction::Plane;
        Self {
            planes,
            units: match planes {
                true => properties.hardware.plane_size_max as usize,
                false => 1,
            },
        }
    }

    /// Blocks that a cube scores.
    fn at_once(&self) -> usize {
        if self.planes { PLANES } else { UNITS as usize }
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        match self.planes {
            true => CubeDim::new_2d(self.units as u32, PLANES as u32),
            false => CubeDim::new_1d(UNITS),
        }
    }
}

/// `scores[row, block]`: the best score of a row's query among the block's keys, for the rows `first ..` of the call.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn block_scores_kernel<N: Size>(
    q: &[Vector<f32, N>],
    k: &[Vector<f32, N>],
    scores: &mut [f32],
    first: usize,
    rows: usize,
    blocks: usize,
    seq: usize,
    heads: usize,
    capacity: usize,
    len: usize,
    size: usize,
    lines: usize,
    #[comptime] config: ChooseConfig,
) {
    let width = N::value();
    let units = comptime!(config.units);
    let mut place = ABSOLUTE_POS;
    let mut unit = 0usize;
    if comptime!(config.planes) {
        place = CUBE_POS * comptime!(PLANES) + UNIT_POS_Y as usize;
        unit = UNIT_POS_X as usize;
    }
    // All units of a plane do the same, so they may go on together past the last one.
    let at = min(place, rows * blocks - 1);
    let row = first + at / blocks;
    let block = at % blocks;
    let token = row / heads;
    let position = len - seq + token % seq;
    let start = block * size;
    let end = min(start + size, position + 1);
    let keys = token / seq * capacity;
    let mut best = f32::new(LOWEST);
    let turns = (max(end, start) - start + comptime!(units - 1)) / units;
    for turn in 0..turns {
        let key = start + turn * units + unit;
        if key < end {
            let mut products = Vector::<f32, N>::new(0.0);
            for i in 0..lines {
                products = fma(q[row * lines + i], k[(keys + key) * lines + i], products);
            }
            let mut score = 0.0f32;
            #[unroll]
            for lane in 0..width {
                score += products.extract(lane);
            }
            best = max(best, score);
        }
    }
    if comptime!(config.planes) {
        best = plane_max(best);
    }
    if place < rows * blocks && unit == 0 {
        scores[at] = best;
    }
}

/// Sets the bits of one word of a row, for the rows `first ..` of the call.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn choose_blocks_kernel(
    scores: &[f32],
    bits: &mut [u32],
    first: usize,
    rows: usize,
    blocks: usize,
    words: usize,
    seq: usize,
    heads: usize,
    len: usize,
    size: usize,
    top: usize,
    local: usize,
) {
    if ABSOLUTE_POS < rows * words {
        let row = ABSOLUTE_POS / words;
        let word = ABSOLUTE_POS % words;
        let position = len - seq + (first + row) / heads % seq;
        let own = position / size;
        let lanes = comptime!(32usize);
        let mut mine = Array::<f32>::new(lanes);
        let mut ahead = Array::<u32>::new(lanes);
        #[unroll]
        for bit in 0..lanes {
            let block = min(word * 32 + bit, blocks - 1);
            let score = scores[row * blocks + block];
            mine[bit] = select(block + local > own, f32::new(HIGHEST), score);
            ahead[bit] = 0u32;
        }
        for other in 0..own + 1 {
            let score = scores[row * blocks + other];
            let score = select(other + local > own, f32::new(HIGHEST), score);
            #[unroll]
            for bit in 0..lanes {
                let block = word * 32 + bit;
                let better = score > mine[bit] || (score == mine[bit] && other < block);
                ahead[bit] += select(better, 1u32, 0u32);
            }
        }
        let mut chosen = 0u32;
        #[unroll]
        for bit in 0..lanes {
            let kept = word * 32 + bit <= own && (ahead[bit] as usize) < top;
            chosen |= select(kept, comptime!(1u32 << bit), 0u32);
        }
        bits[first * words + ABSOLUTE_POS] = chosen;
    }
}
