//! Caches: what a model remembers of the rows it has read.

mod index;
mod layer;
mod rows;

use burn::tensor::DType;

use super::Positions;
pub use layer::LayerCache;
use layer::LayerCheckpoint;
pub(crate) use layer::{LayerParts, PART_NAMES, PartError};
pub use rows::CachedRows;

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

/// What a [`LayerCache`] may grow to.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// Most rows.
    pub max_len: usize,
    /// Element type.
    pub dtype: CacheDtype,
}

/// Checkpoints kept; each holds the states of recurrences and the rows that windows show.
const CHECKPOINTS: usize = 2;

/// The caches of a model's layers, filled up to [`len`](Self::len) rows. A clone is a fork: both go on from here on
/// their own.
#[derive(Clone, Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    // Of each row, the text position that follows it: an image takes fewer positions than rows.
    next: Vec<u32>,
    limits: CacheLimits,
    // From the shortest to the longest.
    checkpoints: Vec<Checkpoint>,
}

#[derive(Clone, Debug)]
struct Checkpoint {
    len: usize,
    layers: Vec<LayerCheckpoint>,
}

impl KvCache {
    /// An empty cache for `layers` layers and at most `max_len` rows; memory is taken as it fills.
    pub fn new(layers: usize, max_len: usize, dtype: CacheDtype) -> Self {
        Self {
            layers: vec![LayerCache::default(); layers],
            next: Vec::new(),
            limits: CacheLimits { max_len, dtype },
            checkpoints: Vec::new(),
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

    /// Whether going back to any length takes more than forgetting rows: a recurrence has no rows, and a sliding window
    /// drops those it no longer shows. Then [`truncate`](Self::truncate) goes back to a
    /// [`checkpoint`](Self::checkpoint).
    pub fn forgets(&self) -> bool {
        self.layers.iter().any(LayerCache::forgets)
    }

    /// Remembers how to come back to the rows there are now; only the last two times are kept.
    pub fn checkpoint(&mut self) {
        let len = self.len();
        if !self.forgets() || self.checkpoints.last().is_some_and(|c| c.len == len) {
            return;
        }
        if self.checkpoints.len() == CHECKPOINTS {
            self.checkpoints.remove(0);
        }
        self.checkpoints.push(Checkpoint {
            len,
            layers: self.layers.iter().map(LayerCache::checkpoint).collect(),
        });
    }

    /// Forgets the rows after the first `len`. Where a layer cannot go back that far, more are forgotten: those after the
    /// last checkpoint, or all. Returns how many rows are left.
    pub fn truncate(&mut self, len: usize) -> usize {
        if len >= self.len() {
            return self.len();
        }
        self.checkpoints.retain(|checkpoint| checkpoint.len <= len);
        if self.layers.iter().all(|layer| layer.can_cut(len)) {
            self.layers.iter_mut().for_each(|layer| layer.cut(len));
            self.next.truncate(len);
        } else if let Some(checkpoint) = self.checkpoints.last() {
            for (layer, saved) in self.layers.iter_mut().zip(&checkpoint.layers) {
                layer.restore(saved, checkpoint.len);
            }
            self.next.truncate(checkpoint.len);
        } else {
            self.reset();
        }
        self.len()
    }

    /// Forgets all rows, keeping the memory.
    pub fn reset(&mut self) {
        self.next.clear();
        self.checkpoints.clear();
        self.layers.iter_mut().for_each(LayerCache::reset);
    }

    /// Bytes held by all layers, without checkpoints.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// The layers' caches, to be appended to at [`len`](Self::len).
    pub fn layers_mut(&mut self) -> &mut [LayerCache] {
        &mut self.layers
    }

    /// The layers' caches.
    pub(crate) fn layers(&self) -> &[LayerCache] {
        &self.layers
    }

    /// Of each row, the text position that follows it.
    pub(crate) fn next_positions(&self) -> &[u32] {
        &self.next
    }

    /// A cache of these layers; `next` is of each row the text position that follows it.
    pub(crate) fn from_layers(
        layers: Vec<LayerCache>,
        next: Vec<u32>,
        limits: CacheLimits,
    ) -> Self {
        Self {
            layers,
            next,
            limits,
            checkpoints: Vec::new(),
        }
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
