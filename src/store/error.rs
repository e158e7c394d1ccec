//! Errors of loading and saving modules.

use std::path::PathBuf;

use burn_store::ApplyResult;

use crate::gguf::GgufError;

/// What can go wrong between a module and a GGUF file.
#[derive(Debug, thiserror::Error)]
pub enum GgufStoreError {
    /// The file is at fault.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The store was made for saving.
    #[error("this store has no file to load from; use GgufStore::open")]
    NoSource,
    /// The store was made for loading.
    #[error("this store has no file to save to; use GgufStore::create")]
    NoTarget,
    /// The module has low-rank adapters, which a model file has no place for.
    #[error(
        "\"{path}\" has low-rank adapters, which a model file cannot hold; save them as an adapter file"
    )]
    Adapted {
        /// Path of the weight.
        path: String,
    },
    /// Two tensors of the file map to one parameter.
    #[error("tensor \"{tensor}\" maps to parameter \"{path}\", which another tensor already fills")]
    NameCollision {
        /// The parameter's path.
        path: String,
        /// The second tensor.
        tensor: String,
    },
    /// Parameters of the module have no tensor in the file.
    #[error("the file lacks {} of the module's tensors: {}", .names.len(), .names.join(", "))]
    Missing {
        /// Names the file should have, as the name map spells them.
        names: Vec<String>,
        /// The whole result.
        result: Box<ApplyResult>,
    },
    /// Tensors do not fit their parameters.
    #[error("tensors do not fit the module: {}", .messages.join("; "))]
    Mismatch {
        /// One message a tensor.
        messages: Vec<String>,
        /// The whole result.
        result: Box<ApplyResult>,
    },
    /// A parameter has a dtype GGUF cannot hold.
    #[error(
        "parameter \"{path}\" of dtype {dtype} cannot be stored in GGUF; use F32, F16, BF16, F64 or I8 to I64"
    )]
    UnsupportedDtype {
        /// The parameter's path.
        path: String,
        /// Its dtype.
        dtype: String,
    },
    /// A parameter could not be read back from its device.
    #[error("parameter \"{path}\" cannot be read: {reason}")]
    Read {
        /// The parameter's path.
        path: String,
        /// Why.
        reason: String,
    },
    /// The file to save to exists.
    #[error("{} exists; choose another name or allow overwriting", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}
