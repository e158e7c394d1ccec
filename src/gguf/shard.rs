//! One GGUF file, read and checked.

use std::path::Path;

use bytes::Bytes;

use super::error::{FileName, GgufError};
use super::metadata::Metadata;
use super::tensor_info::TensorInfo;
use super::{mmap, parse, validate};

/// One file of a (possibly split) model.
pub(super) struct Shard {
    pub(super) file: FileName,
    pub(super) size: u64,
    pub(super) version: u32,
    pub(super) alignment: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

impl Shard {
    pub(super) fn open(path: &Path) -> Result<Self, GgufError> {
        Self::read(&mmap::map(path)?, FileName::from(path))
    }

    pub(super) fn read(bytes: &Bytes, file: FileName) -> Result<Self, GgufError> {
        let header = parse::parse(bytes, &file)?;
        let checked = validate::validate(header, bytes, &file)?;
        Ok(Shard {
            file,
            size: bytes.len() as u64,
            version: checked.version,
            alignment: checked.alignment,
            metadata: checked.metadata,
            tensors: checked.tensors,
        })
    }
}
