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
//!
//! Where only some blocks of keys are seen, a unit looks at the bit of its key's block before it scores it, and a slot leaves
//! out the values of a tile of which it saw no key.

mod kernels;

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
pub(crate) use kernels::{attention_alone_kernel, attention_kernel};

/// Units of a cube.
const UNITS: usize = 256;
/// Most values in shared memory for putting slots together.
const SHARED_VALUES: usize = 2048;
/// Queries of a cube where one unit does a query.
const ALONE_UNITS: u32 = 32;

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
pub(crate) struct AttentionConfig {
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
    pub(crate) fn new(
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

    pub(crate) fn cube_dim(&self) -> CubeDim {
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
