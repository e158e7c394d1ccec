//! What runs on the device.

use cubecl::{ir::ElemType, prelude::*};

use super::{AttentionConfig, Reduction};

/// Below every score, and finite: WGSL knows no infinities.
const LOWEST: f32 = -1.0e30;

#[cube(launch_unchecked, create_dummy_kernel)]
pub(crate) fn attention_kernel<C: Float, N: Size>(
    q: &[Vector<f32, N>],
    k: &[Vector<C, N>],
    v: &[C],
    bits: &[u32],
    out: &mut [f32],
    queries: usize,
    seq: usize,
    heads: usize,
    kv_heads: usize,
    capacity: usize,
    len: usize,
    window: usize,
    ahead: usize,
    block_size: usize,
    words: usize,
    scale: f32,
    cap: f32,
    #[comptime] config: AttentionConfig,
    #[define(C)] _cache: ElemType,
) {
    let width = N::value();
    let units = comptime!(config.units);
    let slots = comptime!(config.slots);
    let dim = comptime!(config.dim);
    let lines = comptime!(config.dim / width);
    let per_unit = comptime!(config.dim.div_ceil(config.units));
    let shared = comptime!(config.reduction == Reduction::Shared);

    let unit = UNIT_POS_X as usize;
    let slot = UNIT_POS_Y as usize;
    let query = min(CUBE_POS, queries - 1);
    let (first, end, rows) =
        visible_keys(query, seq, heads, kv_heads, capacity, len, window, ahead);
    let mask = query / heads * kv_heads * words + query % heads / (heads / kv_heads) * words;

    let mut weights = Shared::<[f32]>::new_slice(comptime!(if shared { units * slots } else { 1 }));
    let mine = slot * units;
    let mut acc = Sequence::<RuntimeCell<f32>>::new();
    #[unroll]
    for _ in 0..per_unit {
        acc.push(RuntimeCell::new(0.0f32));
    }
    let mut top = f32::new(LOWEST);
    let mut total = 0.0f32;

    let step = comptime!(units * slots);
    let turns = (end - first + comptime!(step - 1)) / step;
    for turn in 0..turns {
        let start = first + turn * step + slot * units;
        let key = start + unit;
        let row = rows + min(key, end - 1);
        let mut weight = f32::new(LOWEST);
        if comptime!(config.blocks) {
            if key < end && seen(bits, mask, min(key, end - 1) / block_size) {
                weight = score(q, query * lines, k, row * lines, scale, cap, config);
            }
        } else {
            let known = score(q, query * lines, k, row * lines, scale, cap, config);
            weight = select(key < end, known, f32::new(LOWEST));
        }
        let mut highest = weight;
        if comptime!(shared) {
            weights[mine + unit] = weight;
            sync_cube();
            for i in 0..units {
                highest = max(highest, weights[mine + i]);
            }
            // All have read the scores before weights take their place.
            sync_cube();
        } else {
            highest = plane_max(weight);
        }
        // Where a tile has no key to see, the weights would be those of keys as good as the best.
        let empty = highest <= f32::new(LOWEST);
        highest = max(highest, top);
        let shrink = f32::exp(top - highest);
        top = highest;
        weight = f32::exp(weight - highest);
        if comptime!(shared) {
            weights[mine + unit] = weight;
            sync_cube();
        }

        total *= shrink;
        #[unroll]
        for i in 0..per_unit {
            acc[i].store(acc[i].read() * shrink);
        }
        let mut count = min(units, end - min(start, end));
        if comptime!(config.blocks) {
            count = select(empty, 0usize, count);
        }
        for j in 0..count {
            let weight = if comptime!(shared) {
                weights[mine + j]
            } else {
                plane_shuffle(weight, j as u32)
            };
            total += weight;
            let values = (rows + start + j) * dim;
            #[unroll]
            for i in 0..per_unit {
                let at = min(unit + comptime!(i * units), comptime!(dim - 1));
                acc[i].store(fma(weight, f32::cast_from(v[values + at]), acc[i].read()));
            }
        }
        if comptime!(shared) {
            // All have read the weights before the next scores take their place.
            sync_cube();
        }
    }

    let part = comptime!(config.dim + 2);
    let mut parts = Shared::<[f32]>::new_slice(comptime!(config.slots * (config.dim + 2)));
    #[unroll]
    for i in 0..per_unit {
        let at = unit + comptime!(i * units);
        if at < dim {
            parts[slot * part + at] = acc[i].read();
        }
    }
    if unit == 0 {
        parts[slot * part + dim] = top;
        parts[slot * part + comptime!(config.dim + 1)] = total;
    }
    sync_cube();
    let mut highest = f32::new(LOWEST);
    for s in 0..slots {
        highest = max(highest, parts[s * part + dim]);
    }
    let mut sum = 0.0f32;
    for s in 0..slots {
        let weight = f32::exp(parts[s * part + dim] - highest);
        sum += weight * parts[s * part + comptime!(config.dim + 1)];
    }
    let factor = select(sum > 0.0f32, 1.0f32 / sum, 0.0f32);
    let mut at = UNIT_POS as usize;
    while at < dim {
        let mut value = 0.0f32;
        for s in 0..slots {
            let weight = f32::exp(parts[s * part + dim] - highest);
            value += weight * parts[s * part + at];
        }
        if CUBE_POS < queries {
            out[query * dim + at] = value * factor;
        }
        at += step;
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(crate) fn attention_alone_kernel<C: Float, N: Size>(
    q: &[Vector<f32, N>],
    k: &[Vector<C, N>],
    v: &[Vector<C, N>],
    bits: &[u32],
    out: &mut [Vector<f32, N>],
    queries: usize,
    seq: usize,
    heads: usize,
    kv_heads: usize,
    capacity: usize,
    len: usize,
    window: usize,
    ahead: usize,
    block_size: usize,
    words: usize,
    scale: f32,
    cap: f32,
    #[comptime] config: AttentionConfig,
    #[define(C)] _cache: ElemType,
) {
    let width = N::value();
    let lines = comptime!(config.dim / width);
    let query = ABSOLUTE_POS;
    if query < queries {
        let (first, end, rows) =
            visible_keys(query, seq, heads, kv_heads, capacity, len, window, ahead);
        let mask = query / heads * kv_heads * words + query % heads / (heads / kv_heads) * words;
        let mut acc = Array::<Vector<f32, N>>::new(lines);
        #[unroll]
        for i in 0..lines {
            acc[i] = Vector::new(0.0f32);
        }
        let mut top = f32::new(LOWEST);
        let mut total = 0.0f32;
        for key in first..end {
            let mut visible = key < end;
            if comptime!(config.blocks) {
                visible = seen(bits, mask, key / block_size);
            }
            if visible {
                let row = (rows + key) * lines;
                let score = score(q, query * lines, k, row, scale, cap, config);
                let highest = max(top, score);
                let shrink = f32::exp(top - highest);
                let weight = f32::exp(score - highest);
                top = highest;
                total = total * shrink + weight;
                let shrink = Vector::<f32, N>::new(shrink);
                let weight = Vector::<f32, N>::new(weight);
                #[unroll]
                for i in 0..lines {
                    acc[i] = fma(weight, Vector::cast_from(v[row + i]), acc[i] * shrink);
                }
            }
        }
        let factor = Vector::<f32, N>::new(select(total > 0.0f32, 1.0f32 / total, 0.0f32));
        #[unroll]
        for i in 0..lines {
            out[query * lines + i] = acc[i] * factor;
        }
    }
}

/// The keys `first .. end` that query `[batch, seq, heads]` number `query` sees, and the row of its cache head's
/// first key.
#[cube]
fn visible_keys(
    query: usize,
    seq: usize,
    heads: usize,
    kv_heads: usize,
    capacity: usize,
    len: usize,
    window: usize,
    ahead: usize,
) -> (usize, usize, usize) {
    let head = query % heads;
    let token = query / heads % seq;
    let item = query / heads / seq;
    let position = len - seq + token;
    let end = min(position + 1 + ahead, len);
    let first = position + 1 - min(window, position + 1);
    let cache_head = item * kv_heads + head / (heads / kv_heads);
    (first, end, cache_head * capacity)
}

/// Whether the bit of `block` is set in the words from `mask` on.
#[cube]
fn seen(bits: &[u32], mask: usize, block: usize) -> bool {
    let bit = (block % 32) as u32;
    (bits[mask + block / 32] >> bit) & 1u32 == 1u32
}

/// `scale * q . k`, capped.
#[cube]
fn score<C: Float, N: Size>(
    q: &[Vector<f32, N>],
    q_at: usize,
    k: &[Vector<C, N>],
    k_at: usize,
    scale: f32,
    cap: f32,
    #[comptime] config: AttentionConfig,
) -> f32 {
    let width = N::value();
    let lines = comptime!(config.dim / width);
    let alone = comptime!(config.reduction == Reduction::Alone);
    let mut products = Vector::<f32, N>::new(0.0);
    #[unroll(alone)]
    for i in 0..lines {
        products = fma(q[q_at + i], Vector::cast_from(k[k_at + i]), products);
    }
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..width {
        sum += products.extract(lane);
    }
    let mut score = sum * scale;
    if comptime!(config.capped) {
        // Some drivers' tanh overflows; it is 1 to the last bit from 15 on.
        score = cap * f32::tanh(max(min(score / cap, 15.0f32), -15.0f32));
    }
    score
}
