//! Keys and values of one layer's attention.

use burn::tensor::{Device, FloatDType, Tensor};
use burn_gguf::nn::functional;

use super::CacheLimits;

/// Rows a cache starts with; it doubles as it fills.
const FIRST_CAPACITY: usize = 256;

/// What attention reads after an append: caches `[batch, kv_heads, capacity, head_dim]` of which the first `len` rows
/// count, the last of them being the row appended last.
#[derive(Clone, Debug)]
pub struct CachedRows {
    /// Keys.
    pub k: Tensor<4>,
    /// Values.
    pub v: Tensor<4>,
    /// Rows that count. With a sliding window the oldest may be gone.
    pub len: usize,
}

/// Keys and values, each `[batch, kv_heads, capacity, head_dim]`. Behind a sliding window only the rows that a later
/// query can see are kept, and some room, so that moving them up is rare.
#[derive(Clone, Debug, Default)]
pub(super) struct KvRows {
    k: Option<Tensor<4>>,
    v: Option<Tensor<4>>,
    /// Position of the first row.
    first: usize,
    /// Rows that count.
    len: usize,
    window: Option<usize>,
}

impl KvRows {
    /// Appends `[batch, seq, kv_heads, head_dim]` at `position`, over what may have been there.
    pub fn append(
        &mut self,
        k: Tensor<4>,
        v: Tensor<4>,
        position: usize,
        window: Option<usize>,
        limits: CacheLimits,
    ) -> CachedRows {
        self.window = window;
        let seq = k.dims()[1];
        // Taken out, so that the storage has one handle and is written in place.
        let (old_k, old_v) = (self.k.take(), self.v.take());
        let capacity = old_k.as_ref().map_or(0, |k| k.dims()[2]);
        let room = Room::find(position - self.first, seq, capacity, window, limits.max_len);
        let at = position - self.first - room.dropped;
        self.first += room.dropped;
        self.len = at + seq;
        let add = |old: Option<Tensor<4>>, rows: Tensor<4>| {
            functional::cache_append(room.make(old, &rows, at, limits), rows, at)
        };
        let (k, v) = (add(old_k, k), add(old_v, v));
        (self.k, self.v) = (Some(k.clone()), Some(v.clone()));
        let len = self.len;
        CachedRows { k, v, len }
    }

    /// What was appended last, for layers that read another's rows.
    pub fn read(&self) -> Option<CachedRows> {
        let (k, v) = (self.k.clone()?, self.v.clone()?);
        Some(CachedRows {
            k,
            v,
            len: self.len,
        })
    }

    /// Rows before the next position that its query sees.
    fn reach(&self) -> usize {
        self.window
            .map_or(usize::MAX, |window| window.saturating_sub(1))
    }

    /// Whether all rows that a query at position `len` sees are still there.
    pub fn can_cut(&self, len: usize) -> bool {
        self.k.is_none() || self.first <= len.saturating_sub(self.reach())
    }

    /// Forgets the rows from position `len` on.
    pub fn cut(&mut self, len: usize) {
        self.len = self.len.min(len.saturating_sub(self.first));
    }

    /// Forgets all rows, keeping the memory.
    pub fn reset(&mut self) {
        (self.first, self.len) = (0, 0);
    }

    /// A copy of what a window still shows, for going back to here; `None` where nothing is ever dropped.
    pub fn checkpoint(&self) -> Option<Self> {
        self.window.map(|_| self.visible())
    }

    /// Whether rows leave that going back would need.
    pub fn checkpoint_needed(&self) -> bool {
        self.window.is_some() && self.k.is_some()
    }

    /// A copy of the rows that the next query sees.
    pub fn visible(&self) -> Self {
        let from = self.len - self.len.min(self.reach());
        let part = |t: &Tensor<4>| {
            let [batch, heads, _, dim] = t.dims();
            t.clone()
                .slice([0..batch, 0..heads, from..self.len, 0..dim])
        };
        let some = self.len > from;
        Self {
            k: self.k.as_ref().filter(|_| some).map(part),
            v: self.v.as_ref().filter(|_| some).map(part),
            first: self.first + from,
            len: self.len - from,
            window: self.window,
        }
    }

    /// Position of the first row, its keys and its values, `[batch, kv_heads, rows, head_dim]`, where there are any.
    pub fn into_parts(self) -> (usize, Option<(Tensor<4>, Tensor<4>)>) {
        (self.first, self.k.zip(self.v))
    }

    /// Rows from position `first` on.
    pub fn from_parts(first: usize, rows: Option<(Tensor<4>, Tensor<4>)>, like: &Self) -> Self {
        let len = rows.as_ref().map_or(0, |(k, _)| k.dims()[2]);
        let (k, v) = rows.unzip();
        Self {
            k,
            v,
            first,
            len,
            window: like.window,
        }
    }

    pub fn bytes(&self) -> usize {
        let tensors = [&self.k, &self.v].into_iter().flatten();
        tensors
            .map(|t| t.shape().num_elements() * t.dtype().size())
            .sum()
    }
}

/// Where rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Rows that no later query sees and that leave.
    dropped: usize,
    capacity: usize,
    /// Whether the storage is as it was.
    same: bool,
}

impl Room {
    /// Room for `seq` rows behind the `at` rows of a storage for `capacity`.
    pub fn find(
        at: usize,
        seq: usize,
        capacity: usize,
        window: Option<usize>,
        max_len: usize,
    ) -> Self {
        if at + seq <= capacity {
            return Self {
                dropped: 0,
                capacity,
                same: true,
            };
        }
        let Some(window) = window else {
            return Self::grown(at + seq, max_len);
        };
        let reach = window.saturating_sub(1);
        // Rows move up once in as many tokens.
        let most = reach + seq.max(window / 4).max(32);
        match at.saturating_sub(reach) {
            0 => Self::grown(at + seq, most.min(max_len)),
            dropped => Self {
                dropped,
                capacity: most,
                same: false,
            },
        }
    }

    fn grown(needed: usize, most: usize) -> Self {
        let capacity = needed.next_power_of_two().max(FIRST_CAPACITY);
        Self {
            dropped: 0,
            capacity: capacity.min(most.max(needed)),
            same: false,
        }
    }

    /// The storage with that room; `old` has `dropped + at` rows that count.
    pub fn make(
        self,
        old: Option<Tensor<4>>,
        rows: &Tensor<4>,
        at: usize,
        limits: CacheLimits,
    ) -> Tensor<4> {
        let [batch, _, heads, dim] = rows.dims();
        let empty = |len: usize, device: &Device| {
            Tensor::<4>::zeros([batch, heads, len, dim], (device, limits.dtype.dtype()))
        };
        match old {
            Some(old) if self.same => old,
            Some(old) if at > 0 => {
                let kept = self.dropped..self.dropped + at;
                let old = old.slice([0..batch, 0..heads, kept, 0..dim]);
                let more = empty(self.capacity - at, &rows.device());
                let more = more.cast(FloatDType::from(old.dtype()));
                Tensor::cat(vec![old, more], 2)
            }
            _ => empty(self.capacity, &rows.device()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_attention_doubles_up_to_the_context() {
        let find = |at, seq, capacity| Room::find(at, seq, capacity, None, 1000);
        assert_eq!(find(0, 3, 0).capacity, 256);
        assert_eq!(find(256, 1, 256).capacity, 512);
        assert_eq!(find(512, 1, 512).capacity, 1000);
        assert!(find(998, 2, 1000).same);
    }

    #[test]
    fn a_window_keeps_what_it_shows_and_moves_rarely() {
        let (window, mut at, mut capacity, mut moves) = (128, 0, 0, 0);
        for _ in 0..10_000 {
            let room = Room::find(at, 1, capacity, Some(window), 100_000);
            moves += usize::from(!room.same);
            assert!(
                at - room.dropped >= at.min(window - 1),
                "a visible row left"
            );
            assert!(room.capacity <= 2 * window);
            (at, capacity) = (at - room.dropped + 1, room.capacity);
        }
        assert!(moves <= 10_000 / 32 + 2, "{moves} moves");
    }
}
