//! Key/value caches.

use burn::tensor::{DType, Device, FloatDType, Tensor};
use burn_gguf::nn::functional;

use super::{DeltaState, Positions};

/// Rows a cache starts with; it doubles as it fills.
const FIRST_CAPACITY: usize = 256;

/// Element type of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheDtype {
    /// 32-bit floats: nothing is lost.
    #[default]
    F32,
    /// 16-bit floats: half the memory and traffic. Not on NdArray.
    F16,
}

impl CacheDtype {
    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
        }
    }
}

/// What one layer keeps: keys and values, each `[batch, kv_heads, capacity, head_dim]`, or the state of a recurrence.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    k: Option<Tensor<4>>,
    v: Option<Tensor<4>>,
    delta: Option<DeltaState>,
}

impl LayerCache {
    /// Appends keys and values `[batch, seq, kv_heads, head_dim]` at `position` and returns both caches.
    pub fn append(
        &mut self,
        k: Tensor<4>,
        v: Tensor<4>,
        position: usize,
        limits: CacheLimits,
    ) -> (Tensor<4>, Tensor<4>) {
        let add = |slot: &mut Option<Tensor<4>>, rows: Tensor<4>| {
            // Taken out, so that the storage has one handle and is written in place.
            let cache = room(slot.take(), &rows, position, limits);
            let cache = functional::cache_append(cache, rows, position);
            *slot = Some(cache.clone());
            cache
        };
        (add(&mut self.k, k), add(&mut self.v, v))
    }

    /// The state of a recurrence, to be taken out and put back.
    pub fn delta_mut(&mut self) -> &mut Option<DeltaState> {
        &mut self.delta
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let delta = self.delta.as_ref().map_or(0, DeltaState::bytes);
        delta
            + [&self.k, &self.v]
                .into_iter()
                .flatten()
                .map(|t| t.shape().num_elements() * t.dtype().size())
                .sum::<usize>()
    }
}

/// What a [`LayerCache`] may grow to.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// Most rows.
    pub max_len: usize,
    /// Element type.
    pub dtype: CacheDtype,
}

/// The cache with capacity for `rows` behind `position`.
fn room(
    cache: Option<Tensor<4>>,
    rows: &Tensor<4>,
    position: usize,
    limits: CacheLimits,
) -> Tensor<4> {
    let [batch, seq, heads, dim] = rows.dims();
    let needed = position + seq;
    let capacity = cache.as_ref().map_or(0, |c| c.dims()[2]);
    if let Some(cache) = cache.as_ref().filter(|_| needed <= capacity) {
        return cache.clone();
    }
    let grown = needed
        .next_power_of_two()
        .max(FIRST_CAPACITY)
        .min(limits.max_len.max(needed));
    let empty = |len: usize, device: &Device| {
        Tensor::<4>::zeros([batch, heads, len, dim], (device, limits.dtype.dtype()))
    };
    match cache {
        None => empty(grown, &rows.device()),
        Some(old) => {
            let more = empty(grown - capacity, &rows.device()).cast(FloatDType::from(old.dtype()));
            Tensor::cat(vec![old, more], 2)
        }
    }
}

/// The caches of a model's layers, filled up to [`len`](Self::len) rows.
#[derive(Clone, Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    // Of each row, the text position that follows it: an image takes fewer positions than rows.
    next: Vec<u32>,
    limits: CacheLimits,
}

impl KvCache {
    /// An empty cache for `layers` layers and at most `max_len` rows; memory is taken as it fills.
    pub fn new(layers: usize, max_len: usize, dtype: CacheDtype) -> Self {
        Self {
            layers: vec![LayerCache::default(); layers],
            next: Vec::new(),
            limits: CacheLimits { max_len, dtype },
        }
    }

    /// Rows filled: a row is a token or a piece of an image.
    pub fn len(&self) -> usize {
        self.next.len()
    }

    /// Whether no row is filled.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// The position of a text token that follows; [`len`](Self::len) where there are no images.
    pub fn next_position(&self) -> usize {
        self.next.last().map_or(0, |&p| p as usize)
    }

    /// Most rows.
    pub fn max_len(&self) -> usize {
        self.limits.max_len
    }

    /// Forgets every row after the first `len`, or all of them where a layer's recurrence cannot go back; later ones
    /// overwrite them. Returns how many rows are left.
    pub fn truncate(&mut self, len: usize) -> usize {
        let recurrent = self.layers.iter().any(|layer| layer.delta.is_some());
        match recurrent && len < self.len() {
            true => self.reset(),
            false => self.next.truncate(len),
        }
        self.len()
    }

    /// Forgets all rows, keeping the memory.
    pub fn reset(&mut self) {
        self.next.clear();
        self.layers.iter_mut().for_each(|layer| layer.delta = None);
    }

    /// Bytes held by all layers.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// The layers' caches, to be appended to at [`len`](Self::len).
    pub fn layers_mut(&mut self) -> &mut [LayerCache] {
        &mut self.layers
    }

    /// The growth limits.
    pub fn limits(&self) -> CacheLimits {
        self.limits
    }

    /// Counts the rows at these positions, which every layer has appended.
    pub fn advance(&mut self, positions: &Positions) {
        let mut next = self.next_position() as u32;
        for position in positions.thw() {
            next = position.iter().fold(next, |n, &p| n.max(p + 1));
            self.next.push(next);
        }
    }
}
