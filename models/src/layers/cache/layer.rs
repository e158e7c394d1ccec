//! What one layer keeps.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor};

use super::index::IndexRows;
use super::rows::KvRows;
use super::{CacheLimits, CachedRows};
use crate::layers::DeltaState;

/// What one layer keeps: keys and values, and those of an indexer where there is one, or the state of a recurrence.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    rows: KvRows,
    index: IndexRows,
    delta: Option<DeltaState>,
}

/// The keys of a layer's rows.
pub(crate) const KEYS: &str = "k";
/// The values of a layer's rows.
pub(crate) const VALUES: &str = "v";

/// The keys that an indexer has for a layer's rows.
pub(crate) const INDEX: &str = "index";

/// The last inputs of a recurrence's convolution, `[batch, 1, kernel - 1, channels]`.
const CONVOLUTION: &str = "conv";
/// The state of a recurrence.
const STATE: &str = "state";

/// All there are.
pub(crate) const PART_NAMES: [&str; 5] = [KEYS, VALUES, INDEX, CONVOLUTION, STATE];

/// A [`LayerCache`] taken apart.
pub(crate) struct LayerParts {
    /// Position of the first row.
    pub first: usize,
    /// Name and value.
    pub tensors: Vec<(&'static str, Tensor<4>)>,
}

/// Why parts do not make up a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartError {
    /// A part is missing, or has another shape.
    Shape {
        name: &'static str,
        found: Option<[usize; 4]>,
        expected: [usize; 4],
    },
    /// A part that this kind of layer does not have.
    Extra(&'static str),
    /// The rows start where they cannot.
    First(usize),
}

/// What a [`LayerCache`] cannot get back by forgetting rows.
#[derive(Clone, Debug)]
pub(super) struct LayerCheckpoint {
    rows: Option<KvRows>,
    delta: Option<DeltaState>,
}

impl LayerCache {
    /// Appends keys and values `[batch, seq, kv_heads, head_dim]` at `position` and returns what attention reads. Rows
    /// that a sliding `window` no longer shows may leave.
    pub fn append(
        &mut self,
        k: Tensor<4>,
        v: Tensor<4>,
        position: usize,
        window: Option<usize>,
        limits: CacheLimits,
    ) -> CachedRows {
        self.rows.append(k, v, position, window, limits)
    }

    /// Appends an indexer's keys `[batch, seq, 1, dim]` at `position` and returns all of them, `[batch, 1, capacity, dim]`.
    /// They are 32-bit floats whatever the cache's type: what comes of them is a choice.
    pub fn append_index(
        &mut self,
        k: Tensor<4>,
        position: usize,
        limits: CacheLimits,
    ) -> Tensor<4> {
        self.index.append(k, position, limits)
    }

    /// What was appended last, for layers that read another's rows; `None` before the first append.
    pub fn read(&self) -> Option<CachedRows> {
        self.rows.read()
    }

    /// The state of a recurrence, to be taken out and put back.
    pub fn delta_mut(&mut self) -> &mut Option<DeltaState> {
        &mut self.delta
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let delta = self.delta.as_ref().map_or(0, DeltaState::bytes);
        self.rows.bytes() + self.index.bytes() + delta
    }

    /// Everything as tensors: name and value. Rows are `[batch, kv_heads, rows, head_dim]`, from position `first` on.
    pub(crate) fn parts(&self) -> LayerParts {
        let (first, rows) = self.rows.visible().into_parts();
        let rows = rows.into_iter().flat_map(|(k, v)| [(KEYS, k), (VALUES, v)]);
        let index = self.index.visible().map(|keys| (INDEX, keys));
        let delta = self.delta.iter().flat_map(|state| {
            let conv = state.conv.clone().unsqueeze_dim(1);
            [(CONVOLUTION, conv), (STATE, state.heads.clone())]
        });
        LayerParts {
            first,
            tensors: rows.chain(index).chain(delta).collect(),
        }
    }

    /// The element type of a part, if the layer has it.
    pub(crate) fn dtype(&self, name: &str) -> Option<DType> {
        let parts = self.parts().tensors;
        parts
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, t)| t.dtype())
    }

    /// Where the layer's parts are, if it has any.
    pub(crate) fn device(&self) -> Option<Device> {
        self.parts().tensors.first().map(|(_, t)| t.device())
    }

    /// A layer of these parts, of the kind of `self`.
    ///
    /// # Errors
    /// The name of a part that is missing or not of this kind of layer, or has another shape.
    pub(crate) fn with_parts(&self, parts: LayerParts, len: usize) -> Result<Self, PartError> {
        let LayerParts { first, tensors } = parts;
        let mut tensors: BTreeMap<_, _> = tensors.into_iter().collect();
        for (name, expected) in self.parts().tensors {
            let mut expected = expected.dims();
            let found = tensors.get(name).map(|tensor| tensor.dims());
            if matches!(name, KEYS | VALUES | INDEX) {
                expected[2] = len.checked_sub(first).ok_or(PartError::First(first))?;
            }
            if found != Some(expected) {
                return Err(PartError::Shape {
                    name,
                    found,
                    expected,
                });
            }
        }
        let rows = tensors.remove(KEYS).zip(tensors.remove(VALUES));
        let index = IndexRows::from_part(tensors.remove(INDEX));
        let delta = tensors.remove(CONVOLUTION).zip(tensors.remove(STATE));
        let delta = delta.map(|(conv, heads)| DeltaState {
            conv: conv.squeeze_dim(1),
            heads,
        });
        if let Some((&name, _)) = tensors.first_key_value() {
            return Err(PartError::Extra(name));
        }
        let rows = KvRows::from_parts(first, rows, &self.rows);
        match rows.can_cut(len) {
            true => Ok(Self { rows, index, delta }),
            false => Err(PartError::First(first)),
        }
    }

    /// Whether the rows from `len` on can be forgotten with nothing else lost.
    pub(super) fn can_cut(&self, len: usize) -> bool {
        self.delta.is_none() && self.rows.can_cut(len)
    }

    /// Forgets the rows from `len` on.
    pub(super) fn cut(&mut self, len: usize) {
        self.rows.cut(len);
        self.index.cut(len);
    }

    /// Forgets everything, keeping the memory of rows.
    pub(super) fn reset(&mut self) {
        self.rows.reset();
        self.index.cut(0);
        self.delta = None;
    }

    /// Whether going back needs a checkpoint.
    pub(super) fn forgets(&self) -> bool {
        self.delta.is_some() || self.rows.checkpoint_needed()
    }

    /// What going back to here needs.
    pub(super) fn checkpoint(&self) -> LayerCheckpoint {
        LayerCheckpoint {
            rows: self.rows.checkpoint(),
            delta: self.delta.clone(),
        }
    }

    /// Goes back to a checkpoint taken at `len` rows.
    pub(super) fn restore(&mut self, checkpoint: &LayerCheckpoint, len: usize) {
        self.delta.clone_from(&checkpoint.delta);
        self.index.cut(len);
        match &checkpoint.rows {
            Some(rows) => self.rows = rows.clone(),
            None => self.rows.cut(len),
        }
    }
}
