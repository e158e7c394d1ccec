//! Attention over a key/value cache, without a score matrix in memory.
//!
//! The softmax is a streaming one (Milakov and Gimelshein 2018, as in FlashAttention): the largest score so far, the
//! sum of the weights and the weighted sum of the values are kept, and rescaled when a larger score comes.
//!
//! A cube works on one query of one head. Its units form several slots, which take tiles of keys in turns; in a tile
//! each unit scores one key, and then each adds up some of the head's values over the tile's keys. Maxima and weights go
//! round by plane operations or through shared memory, and the slots' results are put together at the end. On a
//! software device one unit does a whole query, its loops over a head unrolled because Mesa's llvmpipe leaves the
//! loops of a unit after 65535 turns in all: that many keys are its limit.

use cubecl::{
    client::Client,
    ir::{ElemType, FloatKind as IrFloat},
    prelude::*,
    server::Handle,
};

use super::{
    CubeError, FloatKind, Reduction,
    codebook::Codebook,
    matrix::{binding_limit, check_operand},
    route::spread,
};
use crate::GgmlType;

/// Units of a cube.
const UNITS: usize = 256;
/// Most values in shared memory for putting slots together.
const SHARED_VALUES: usize = 2048;
/// Queries of a cube where one unit does a query.
pub(super) const ALONE_UNITS: u32 = 32;
/// Below every score, and finite: WGSL knows no infinities.
const LOWEST: f32 = -1.0e30;

/// Sizes of an [`attention`] call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Independent sequences, of the same length.
    pub batch: usize,
    /// Tokens of this call.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; query head `h` reads key/value head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Values of a head.
    pub dim: usize,
    /// Rows the caches hold per head.
    pub capacity: usize,
    /// Rows that are valid, this call's tokens being the last of them.
    pub len: usize,
}

/// What is computed from the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Factor on the dot products, usually `1 / sqrt(dim)`.
    pub scale: f32,
    /// Whether keys after the query are hidden.
    pub causal: bool,
    /// With `Some(w)`, keys `w` or more positions before the query are hidden.
    pub window: Option<usize>,
    /// With `Some(c)`, scores become `c * tanh(score / c)`.
    pub softcap: Option<f32>,
}

/// The blocks of keys that each token sees.
#[derive(Clone)]
pub struct KeyBlocks {
    /// `u32` `[batch, seq, kv_heads, words]`: bit `b % 32` of word `b / 32` is 1 where block `b`, the rows `b * size` up to
    /// `(b + 1) * size` of the cache, is seen. There are as many words as the valid rows of the cache need.
    pub bits: Handle,
    /// Rows of a block.
    pub size: usize,
}

impl KeyBlocks {
    /// Words for `len` rows in blocks of `size`.
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn words(len: usize, size: usize) -> usize {
        len.div_ceil(size).div_ceil(32)
    }
}

/// Whether [`attention`] takes caches of this type on this device.
pub fn takes_cache(client: &Client, kind: FloatKind) -> bool {
    match kind {
        FloatKind::F32 => true,
        FloatKind::F16 => client
            .properties()
            .supports_type(ElemType::Float(IrFloat::F16)),
        FloatKind::BF16 => false,
    }
}

/// `out[b, t, h] = sum_k softmax_k(scale * q[b, t, h] . k[b, h', k]) * v[b, h', k]` over the keys visible to token `t`.
///
/// `q` and the result are `[batch, seq, heads, dim]` in `f32`, `k` and `v` are `[batch, kv_heads, capacity, dim]` of
/// type `cache`; all contiguous. Everything is computed in `f32`. A token that sees no key (a window of 0) gives zeros.
/// With `blocks`, a token sees only the keys of its blocks.
///
/// `reduction` is how units work together, `None` what suits the device.
///
/// # Errors
/// If the sizes contradict each other, the device does not take such caches ([`takes_cache`]), an operand is too short,
/// or one is over what one binding of the device may hold.
#[allow(clippy::too_many_arguments)]
pub fn attention(
    client: &Client,
    q: Handle,
    k: Handle,
    v: Handle,
    cache: FloatKind,
    shape: &AttentionShape,
    params: &AttentionParams,
    blocks: Option<KeyBlocks>,
    reduction: Option<Reduction>,
) -> Result<Handle, CubeError> {
    let &AttentionShape {
        batch,
        seq,
        heads,
        kv_heads,
        dim,
        capacity,
        len,
    } = shape;
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(CubeError::BadHeads { heads, kv_heads });
    }
    if seq > len || len > capacity {
        return Err(CubeError::BadCacheLen { seq, len, capacity });
    }
    if !takes_cache(client, cache) {
        return Err(CubeError::BadCacheType(cache));
    }
    let queries = batch.checked_mul(seq).and_then(|n| n.checked_mul(heads));
    let values = queries.and_then(|n| n.checked_mul(dim));
    let values = check_operand(client, "q", Some(&q), values)?;
    let rows = batch
        .checked_mul(kv_heads)
        .and_then(|n| n.checked_mul(capacity));
    let cached = rows.and_then(|n| n.checked_mul(dim));
    let cached = check_cache(client, "k", &k, cached, cache)
        .and_then(|_| check_cache(client, "v", &v, cached, cache))?;
    let words = match &blocks {
        None => 0,
        Some(blocks) if blocks.size == 0 => return Err(CubeError::NoBlocks),
        Some(blocks) => KeyBlocks::words(len, blocks.size),
    };
    let bits = batch.checked_mul(seq).and_then(|n| n.checked_mul(kv_heads));
    let bits = bits.and_then(|n| n.checked_mul(words));
    let bits = check_operand(client, "bits", blocks.as_ref().map(|b| &b.bits), bits)?;
    let out = client.empty(values * 4);
    if values == 0 {
        return Ok(out);
    }
    let queries = values / dim;
    let reduction = reduction.unwrap_or_else(|| Reduction::of(client.properties()));
    let config = AttentionConfig::new(
        client.properties(),
        dim,
        params.softcap.is_some(),
        blocks.is_some(),
        reduction,
    );
    let block_size = blocks.as_ref().map_or(1, |blocks| blocks.size);
    let (bits, bits_len) = match blocks {
        Some(blocks) => (blocks.bits, bits),
        // The kernel does not look at it.
        None => (Codebook::of(client, GgmlType::F32).handle, 1),
    };
    let vector = if dim.is_multiple_of(4) { 4 } else { 1 };
    let element = match cache {
        FloatKind::F16 => ElemType::Float(IrFloat::F16),
        _ => ElemType::Float(IrFloat::F32),
    };
    let (count, cube_dim) = config.grid(client, queries);
    let window = params.window.unwrap_or(len).min(len);
    let ahead = if params.causal { 0 } else { len };
    let cap = params.softcap.unwrap_or(1.0);
    // SAFETY: the lengths are those of the buffers. Queries are clamped to `queries`, keys lie below `len`, which the
    // capacity holds and the words have bits for, or are clamped to one that does, and only existing queries are written.
    unsafe {
        let q = BufferArg::from_raw_parts(q, values / vector);
        let k = BufferArg::from_raw_parts(k, cached / vector);
        if reduction == Reduction::Alone {
            attention_alone_kernel::launch_unchecked(
                client,
                count,
                cube_dim,
                vector,
                q,
                k,
                BufferArg::from_raw_parts(v, cached / vector),
                BufferArg::from_raw_parts(bits, bits_len),
                BufferArg::from_raw_parts(out.clone(), values / vector),
                queries,
                seq,
                heads,
                kv_heads,
                capacity,
                len,
                window,
                ahead,
                block_size,
                words,
                params.scale,
                cap,
                config,
                element,
            );
        } else {
            attention_kernel::launch_unchecked(
                client,
                count,
                cube_dim,
                vector,
                q,
                k,
                BufferArg::from_raw_parts(v, cached),
                BufferArg::from_raw_parts(bits, bits_len),
                BufferArg::from_raw_parts(out.clone(), values),
                queries,
                seq,
                heads,
                kv_heads,
                capacity,
                len,
                window,
                ahead,
                block_size,
                words,
                params.scale,
                cap,
                config,
                element,
            );
        }
    }
    Ok(out)
}

fn check_cache(
    client: &Client,
    what: &'static str,
    handle: &Handle,
    values: Option<usize>,
    kind: FloatKind,
) -> Result<usize, CubeError> {
    let bytes = values.map_or(u64::MAX, |n| (n as u64).saturating_mul(kind.bytes() as u64));
    let (limit, got) = (binding_limit(client), handle.size_in_used());
    if bytes > limit {
        return Err(CubeError::OverLimit { what, bytes, limit });
    }
    if got < bytes {
        return Err(CubeError::BadLength {
            what,
            expected: bytes,
            got,
        });
    }
    Ok(bytes as usize / kind.bytes())
}

/// What the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AttentionConfig {
    reduction: Reduction,
    /// Keys of a tile, and units of a slot.
    units: usize,
    /// Tiles worked on at a time.
    slots: usize,
    /// Values of a head.
    dim: usize,
    /// Whether scores are capped.
    capped: bool,
    /// Whether only some blocks of keys are seen.
    blocks: bool,
}

impl AttentionConfig {
    pub(super) fn new(
        properties: &DeviceProperties,
        dim: usize,
        capped: bool,
        blocks: bool,
        reduction: Reduction,
    ) -> Self {
        let units = match reduction {
            Reduction::Plane => properties.hardware.plane_size_max as usize,
            Reduction::Shared => 32,
            Reduction::Alone => 1,
        };
        Self {
            reduction,
            units,
            slots: (SHARED_VALUES / dim).clamp(1, UNITS / units),
            dim,
            capped,
            blocks,
        }
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        match self.reduction {
            Reduction::Alone => CubeDim::new_1d(ALONE_UNITS),
            _ => CubeDim::new_2d(self.units as u32, self.slots as u32),
        }
    }

    fn grid(&self, client: &Client, queries: usize) -> (CubeCount, CubeDim) {
        let cubes = match self.reduction {
            Reduction::Alone => queries.div_ceil(ALONE_UNITS as usize),
            _ => queries,
        };
        (spread(client, cubes), self.cube_dim())
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn attention_kernel<C: Float, N: Size>(
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
pub(super) fn attention_alone_kernel<C: Float, N: Size>(
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
