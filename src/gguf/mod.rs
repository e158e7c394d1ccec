//! The GGUF container: opening files, typed metadata, tensors without a copy, and writing.
//!
//! [`Gguf::open`] maps the file, reads its header and checks everything that could go wrong later; afterwards a
//! tensor's bytes are a slice of the map. Only the pages of the header are read, so a file of any size opens in
//! milliseconds. Split models open from any of their shards.
//!
//! ```no_run
//! use burn_gguf::gguf::Gguf;
//!
//! let gguf = Gguf::open("model.gguf")?;
//! let layers: usize = gguf.metadata().get("qwen3.block_count")?;
//! for tensor in gguf.tensors() {
//!     println!("{} {:?} {} bytes", tensor.name(), tensor.shape(), tensor.data().len());
//! }
//! # Ok::<(), burn_gguf::gguf::GgufError>(())
//! ```
//!
//! Data flow: `mmap` (file to bytes) -> `parse` (header bytes to keys, values, raw tensor table) -> `validate` (rules of
//! one file) -> `split` (rules of a set of shards) -> [`Gguf`].
//!
//! # Decisions
//! - Strings are kept as bytes: tokenizers in circulation hold tokens that are not UTF-8. Keys and tensor names must be
//!   UTF-8; a string value is checked when it is asked for as text ([`GgufError::StringNotUtf8`]), `&[u8]` always works.
//! - Booleans are 0 or 1, in arrays too.
//! - A tensor of no dimensions is a scalar of one value; dimensions of 0 are allowed and mean no bytes.
//! - `general.alignment` may be an integer of any width, a power of two up to 4 MiB.
//! - Padding after the last tensor may be absent (several writers leave it out), but not partial.
//! - A type id that ggml removed or never had opens and lists; [`TensorInfo::usable_type`] refuses it.

mod convert;
mod cursor;
mod encode;
mod error;
mod magic;
mod metadata;
mod mmap;
mod parse;
mod replace;
mod rows;
mod shard;
mod split;
mod tensor_info;
mod validate;
mod value;
mod writer;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

pub use convert::{FromValue, Mismatch};
pub use error::{FileName, GgufError};
pub use metadata::Metadata;
pub use rows::RowSplit;
pub use split::{shard_paths, write_shards};
pub use tensor_info::TensorInfo;
pub use value::{Array, GgufString, StringArray, StringIter, Value, ValueType};
pub use writer::{GgufWriter, TensorData};

use shard::Shard;

/// An opened GGUF model: one file, or all shards of a split one. Cloning is cheap.
///
/// The files are mapped read-only. Do not modify them while they are open: changed bytes would be read as weights, and
/// touching a part that was cut off ends the process. Replacing a file by renaming another over it is fine.
#[derive(Clone)]
pub struct Gguf(Arc<Inner>);

struct Inner {
    /// What was opened: for a split model the shard the caller named.
    file: FileName,
    shards: Vec<FileName>,
    size: u64,
    version: u32,
    alignment: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<Arc<str>, usize>,
}

impl Gguf {
    /// Maps and checks the file at `path`; any shard of a split model opens the whole model.
    ///
    /// # Errors
    /// What is wrong with the file, by rule: see [`GgufError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, GgufError> {
        let path = path.as_ref();
        Ok(Self::assemble(FileName::from(path), split::open_all(path)?))
    }

    /// Checks a whole GGUF file in memory, and shares the memory.
    ///
    /// # Errors
    /// As [`open`](Gguf::open), and [`SplitInMemory`](GgufError::SplitInMemory) for a shard of a split model.
    pub fn from_bytes(bytes: Bytes) -> Result<Gguf, GgufError> {
        let file = FileName::Memory;
        if bytes.is_empty() {
            return Err(GgufError::EmptyFile { file });
        }
        let shard = Shard::read(&bytes, file.clone())?;
        let count = split::shard_count(&shard.metadata)?;
        if count > 1 {
            return Err(GgufError::SplitInMemory { file, count });
        }
        Ok(Self::assemble(file, vec![shard]))
    }

    /// `shards` has at least one element, and no tensor name twice.
    fn assemble(file: FileName, shards: Vec<Shard>) -> Gguf {
        let size = shards.iter().map(|s| s.size).sum();
        let files = shards.iter().map(|s| s.file.clone()).collect();
        let mut tensors = Vec::with_capacity(shards.iter().map(|s| s.tensors.len()).sum());
        let mut first = None;
        for (shard_index, shard) in shards.into_iter().enumerate() {
            tensors.extend(shard.tensors.into_iter().map(|tensor| TensorInfo {
                shard_index,
                ..tensor
            }));
            first.get_or_insert((shard.metadata, shard.version, shard.alignment));
        }
        let (metadata, version, alignment) = first.expect("a model has at least one shard");
        let index = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        Gguf(Arc::new(Inner {
            file,
            shards: files,
            size,
            version,
            alignment,
            metadata,
            tensors,
            index,
        }))
    }

    /// The metadata; of a split model that of the first shard.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The tensors in file order, over all shards.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.0.tensors.iter()
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.index.get(name).map(|&i| &self.0.tensors[i])
    }

    /// The tensor of this name, which must exist.
    ///
    /// # Errors
    /// [`MissingTensor`](GgufError::MissingTensor).
    pub fn require(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        self.tensor(name).ok_or_else(|| GgufError::MissingTensor {
            file: self.0.file.clone(),
            tensor: name.to_owned(),
            tensors: self.0.tensors.len(),
        })
    }

    /// The path that was opened; `None` for a GGUF in memory.
    pub fn path(&self) -> Option<&Path> {
        self.0.file.path()
    }

    /// What was opened, for messages.
    pub fn file(&self) -> &FileName {
        &self.0.file
    }

    /// The paths of all shards in order: one for a model that is not split, none for a GGUF in memory.
    pub fn shards(&self) -> impl Iterator<Item = &Path> {
        self.0.shards.iter().filter_map(FileName::path)
    }

    /// The GGUF version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// The alignment of tensor data in bytes.
    pub fn alignment(&self) -> u32 {
        self.0.alignment
    }

    /// The bytes of all shards together.
    pub fn file_size(&self) -> u64 {
        self.0.size
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("file", &self.0.file)
            .field("version", &self.0.version)
            .field("keys", &self.0.metadata.len())
            .field("tensors", &self.0.tensors.len())
            .field("shards", &self.0.shards.len())
            .field("bytes", &self.0.size)
            .finish()
    }
}
