//! What keeps the suite from starting.

use burn_gguf::GgmlType;
use burn_gguf::device::DeviceError;

/// A selection that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// A device was named that does not work here.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// This machine has none of the devices that are compiled in.
    #[error("no device to run on; compiled in: {compiled}")]
    NoDevice {
        /// Names of the devices of this build, comma separated.
        compiled: String,
    },
    /// No ggml type has this name.
    #[error("unknown type \"{name}\"; there are: {valid}")]
    UnknownType {
        /// The name given.
        name: String,
        /// The names that work, comma separated.
        valid: String,
    },
    /// A ggml type that nothing here computes with.
    #[error("{ggml_type} has no operations; there are some for: {valid}")]
    TypeWithoutOperations {
        /// The type.
        ggml_type: GgmlType,
        /// The names that work, comma separated.
        valid: String,
    },
    /// The suite has no such operation.
    #[error("unknown operation \"{name}\"; there are: {valid}")]
    UnknownOp {
        /// The name given.
        name: String,
        /// Operations, and groups of them, comma separated.
        valid: String,
    },
    /// None of the operations takes any of the types.
    #[error("none of the operations {ops} takes any of the types {types}")]
    NothingToRun {
        /// The operations chosen, comma separated.
        ops: String,
        /// The types chosen, comma separated.
        types: String,
    },
}
