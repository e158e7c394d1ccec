//! Keys of one layer's indexer.

use burn::tensor::Tensor;
use burn_gguf::nn::functional;

use super::rows::Room;
use super::{CacheDtype, CacheLimits};

/// One key of each row, `[batch, 1, capacity, dim]`; none leave, as an indexer looks at them all.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexRows {
    keys: Option<Tensor<4>>,
    /// Rows that count.
    len: usize,
}

impl IndexRows {
    /// Appends `[batch, seq, 1, dim]` at `position`, over what may have been there.
    pub fn append(&mut self, k: Tensor<4>, position: usize, limits: CacheLimits) -> Tensor<4> {
        let limits = CacheLimits {
            dtype: CacheDtype::F32,
            ..limits
        };
        let seq = k.dims()[1];
        // Taken out, so that the storage has one handle and is written in place.
        let old = self.keys.take();
        let capacity = old.as_ref().map_or(0, |keys| keys.dims()[2]);
        let room = Room::find(position, seq, capacity, None, limits.max_len);
        let keys = functional::cache_append(room.make(old, &k, position, limits), k, position);
        self.keys = Some(keys.clone());
        self.len = position + seq;
        keys
    }

    /// Forgets the rows from position `len` on.
    pub fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// A copy of the rows that count, if there are any.
    pub fn visible(&self) -> Option<Tensor<4>> {
        let keys = self.keys.as_ref().filter(|_| self.len > 0)?;
        let [batch, heads, _, dim] = keys.dims();
        let rows = [0..batch, 0..heads, 0..self.len, 0..dim];
        Some(keys.clone().slice(rows))
    }

    /// Rows from the first position on.
    pub fn from_part(keys: Option<Tensor<4>>) -> Self {
        Self {
            len: keys.as_ref().map_or(0, |keys| keys.dims()[2]),
            keys,
        }
    }

    pub fn bytes(&self) -> usize {
        let keys = self.keys.iter();
        keys.map(|t| t.shape().num_elements() * t.dtype().size())
            .sum()
    }
}
