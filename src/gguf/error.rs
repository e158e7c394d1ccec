//! Everything that can be wrong with a GGUF file, one variant per rule.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn_gguf_kernels::GgmlType;

/// Where a GGUF came from, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileName {
    /// A file on disk.
    Path(Arc<Path>),
    /// Bytes the caller holds in memory.
    Memory,
    /// A GGUF that a [`GgufWriter`](super::GgufWriter) is composing.
    Output,
}

impl FileName {
    /// The path, if the GGUF is a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            FileName::Path(path) => Some(path),
            FileName::Memory | FileName::Output => None,
        }
    }
}

impl From<&Path> for FileName {
    fn from(path: &Path) -> Self {
        FileName::Path(Arc::from(path))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Path(path) => path.display().fmt(f),
            FileName::Memory => f.write_str("<GGUF in memory>"),
            FileName::Output => f.write_str("<GGUF being written>"),
        }
    }
}

/// Why a GGUF could not be opened, queried or written.
///
/// Each rule of the container has its own variant; `Display` prints the file, the key or tensor, and the value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values the messages print
pub enum GgufError {
    // ---- the file itself ----
    /// No file has this path.
    #[error("{file}: no such file")]
    NotFound { file: FileName },
    /// The path names a directory, pipe or device.
    #[error("{file}: is {kind}, not a file; give the path of a .gguf file")]
    NotAFile { file: FileName, kind: &'static str },
    /// The file has no bytes.
    #[error("{file}: the file is empty; download it again")]
    EmptyFile { file: FileName },
    /// The operating system refused.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        file: FileName,
        action: &'static str,
        #[source]
        source: io::Error,
    },
    /// The file does not fit the address space (32-bit targets).
    #[error("{file}: {size} bytes do not fit the address space of this {bits}-bit program", bits = usize::BITS)]
    TooLargeForAddressSpace { file: FileName, size: u64 },

    // ---- header ----
    /// The first four bytes are not `GGUF`.
    #[error("{file}: not a GGUF file: it starts with {first}{hint}")]
    BadMagic {
        file: FileName,
        first: String,
        hint: &'static str,
    },
    /// The file was written for a big-endian machine.
    #[error(
        "{file}: big-endian GGUF ({found}); convert it with gguf-py's `gguf-convert-endian FILE little` or download the little-endian file"
    )]
    BigEndian { file: FileName, found: String },
    /// A version other than 2 and 3.
    #[error(
        "{file}: GGUF version {version} is not supported (only 2 and 3 are); convert the model again"
    )]
    UnsupportedVersion { file: FileName, version: u32 },
    /// The file ends inside the header.
    #[error(
        "{file}: truncated: {what} at byte {offset} needs {need} bytes, {have} are left; download the file again"
    )]
    TruncatedHeader {
        file: FileName,
        what: String,
        offset: u64,
        need: u64,
        have: u64,
    },
    /// More keys than the remaining bytes can hold.
    #[error("{file}: the header counts {count} metadata keys, but only {remaining} bytes follow")]
    TooManyKeys {
        file: FileName,
        count: u64,
        remaining: u64,
    },
    /// More tensors than the remaining bytes can describe.
    #[error("{file}: the header counts {count} tensors, but only {remaining} bytes follow")]
    TooManyTensors {
        file: FileName,
        count: u64,
        remaining: u64,
    },
    /// A string longer than the remaining bytes.
    #[error("{file}: {what} is a string of {length} bytes, but only {remaining} bytes follow")]
    StringTooLong {
        file: FileName,
        what: String,
        length: u64,
        remaining: u64,
    },
    /// An array longer than the remaining bytes.
    #[error(
        "{file}: key `{key}` is an array of {length} {element}, but only {remaining} bytes follow"
    )]
    ArrayTooLong {
        file: FileName,
        key: String,
        length: u64,
        element: &'static str,
        remaining: u64,
    },
    /// Arrays of arrays nested deeper than the reader follows.
    #[error("{file}: key `{key}` nests arrays deeper than {limit} levels")]
    ArrayTooDeep {
        file: FileName,
        key: String,
        limit: usize,
    },
    /// A key or tensor name is not UTF-8.
    #[error("{file}: {what} is not UTF-8: {lossy:?}")]
    NameNotUtf8 {
        file: FileName,
        what: String,
        lossy: String,
    },
    /// A key of no characters.
    #[error("{file}: metadata key {index} is empty")]
    EmptyKey { file: FileName, index: u64 },
    /// The same key twice.
    #[error("{file}: metadata key `{key}` occurs twice")]
    DuplicateKey { file: FileName, key: String },
    /// A value type id outside 0..=12.
    #[error("{file}: key `{key}` has value type {type_id}, known are 0 to 12")]
    UnknownValueType {
        file: FileName,
        key: String,
        type_id: u32,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("{file}: key `{key}` holds the boolean {value}, only 0 and 1 are valid")]
    InvalidBool {
        file: FileName,
        key: String,
        value: u8,
    },
    /// `general.alignment` is zero, not a power of two or absurdly large.
    #[error("{file}: `general.alignment` is {value}; it must be a power of two from 1 to {max}")]
    BadAlignment {
        file: FileName,
        value: u64,
        max: u64,
    },

    // ---- tensor table ----
    /// The same tensor name twice in one file.
    #[error("{file}: tensor `{tensor}` occurs twice")]
    DuplicateTensor { file: FileName, tensor: String },
    /// A tensor that does not divide into the ones it should hold.
    #[error(
        "{file}: tensor `{tensor}` of shape {shape:?} should hold {}, row behind row",
        parts.iter().map(|(name, rows)| format!("{rows} rows of `{name}`")).collect::<Vec<_>>().join(", ")
    )]
    RowSplit {
        file: FileName,
        tensor: String,
        shape: Vec<u64>,
        parts: Vec<(String, u64)>,
    },
    /// More than four dimensions.
    #[error("{file}: tensor `{tensor}` has {n_dims} dimensions, at most 4 are valid")]
    TooManyDimensions {
        file: FileName,
        tensor: String,
        n_dims: u32,
    },
    /// The element count passes `i64::MAX`.
    #[error("{file}: tensor `{tensor}` of shape {shape:?} has more elements than 2^63 - 1")]
    ElementCountOverflow {
        file: FileName,
        tensor: String,
        shape: Vec<u64>,
    },
    /// The byte size or the end of the tensor passes `u64::MAX`.
    #[error(
        "{file}: tensor `{tensor}` of type {ggml_type} and shape {shape:?} has more bytes than 2^64 - 1"
    )]
    ByteSizeOverflow {
        file: FileName,
        tensor: String,
        ggml_type: GgmlType,
        shape: Vec<u64>,
    },
    /// Rows that do not fill whole blocks.
    #[error(
        "{file}: tensor `{tensor}` has rows of {row} values, not a multiple of the {block} values in a {ggml_type} block"
    )]
    PartialBlock {
        file: FileName,
        tensor: String,
        ggml_type: GgmlType,
        row: u64,
        block: u64,
    },
    /// An offset other than the padded end of the tensor before.
    #[error(
        "{file}: tensor `{tensor}` is at data offset {offset}, expected {expected} (the padded end of the tensor before it)"
    )]
    OffsetMismatch {
        file: FileName,
        tensor: String,
        offset: u64,
        expected: u64,
    },
    /// An offset that is not a multiple of the alignment (after a tensor of unknown size).
    #[error(
        "{file}: tensor `{tensor}` is at data offset {offset}, not a multiple of the alignment {alignment}"
    )]
    MisalignedOffset {
        file: FileName,
        tensor: String,
        offset: u64,
        alignment: u64,
    },
    /// The file ends before the tensor does.
    #[error(
        "{file}: truncated: tensor `{tensor}` needs the file to have {need} bytes, it has {have}; download the file again"
    )]
    TruncatedData {
        file: FileName,
        tensor: String,
        need: u64,
        have: u64,
    },
    /// The file ends inside the padding after the last tensor.
    #[error(
        "{file}: truncated: the padding after the last tensor ends at byte {need}, the file at {have}; download the file again"
    )]
    TruncatedPadding {
        file: FileName,
        need: u64,
        have: u64,
    },

    // ---- queries ----
    /// A key the caller needs is absent.
    #[error("{file}: metadata key `{key}` is missing")]
    MissingKey { file: FileName, key: String },
    /// A value of another kind than the caller needs.
    #[error("{file}: metadata key `{key}` is {found}, expected {expected}")]
    WrongType {
        file: FileName,
        key: String,
        expected: String,
        found: String,
    },
    /// A number the wanted type cannot hold.
    #[error("{file}: metadata key `{key}` holds {value}, which does not fit {target}")]
    OutOfRange {
        file: FileName,
        key: String,
        value: String,
        target: &'static str,
    },
    /// A string value that is not UTF-8 was asked for as text.
    #[error("{file}: metadata key `{key}` is not UTF-8{}", entry(*.index))]
    StringNotUtf8 {
        file: FileName,
        key: String,
        index: Option<usize>,
    },
    /// A per-layer array with another length than the layer count.
    #[error(
        "{file}: metadata key `{key}` has {found} entries, expected one for each of {layers} layers"
    )]
    LayerCount {
        file: FileName,
        key: String,
        layers: usize,
        found: usize,
    },
    /// A tensor the caller needs is absent.
    #[error("{file}: tensor `{tensor}` is missing{}", vocabulary_only(*.tensors))]
    MissingTensor {
        file: FileName,
        tensor: String,
        /// How many tensors there are.
        tensors: usize,
    },
    /// A tensor of a type that ggml no longer has.
    #[error(
        "{file}: tensor `{tensor}` has type {type_id} ({name}), which ggml removed; get a file with another quantization"
    )]
    RemovedType {
        file: FileName,
        tensor: String,
        type_id: u32,
        name: &'static str,
    },
    /// A tensor of a type id that ggml does not have.
    #[error(
        "{file}: tensor `{tensor}` has the unknown type id {type_id}; the file comes from a fork or a newer ggml"
    )]
    UnknownType {
        file: FileName,
        tensor: String,
        type_id: u32,
    },

    // ---- split files ----
    /// A shard whose name is not `NAME-00001-of-00002.gguf`.
    #[error(
        "{file}: is one of {count} shards, but its name does not end in `-NNNNN-of-NNNNN.gguf`; give the shards back their original names"
    )]
    SplitName { file: FileName, count: u64 },
    /// A shard given as bytes: its siblings cannot be found.
    #[error("{file}: is one of {count} shards; open it by path, or merge the shards first")]
    SplitInMemory { file: FileName, count: u64 },
    /// A shard is not there.
    #[error("{opened}: shard {number} of {count} is missing: no file {}", missing.display())]
    MissingShard {
        opened: FileName,
        missing: PathBuf,
        number: u64,
        count: u64,
    },
    /// The name and `split.no` disagree.
    #[error(
        "{file}: named as shard {named} but `split.no` says it is shard {stored} (counting from 1)"
    )]
    ShardNumber {
        file: FileName,
        named: u64,
        stored: u64,
    },
    /// The name (or the opened shard) and `split.count` disagree.
    #[error("{file}: `split.count` is {stored}, expected {expected}")]
    ShardCount {
        file: FileName,
        stored: u64,
        expected: u64,
    },
    /// A shard of another model.
    #[error("{file}: belongs to another model: `{key}` is {found}, in {other} it is {expected}")]
    ForeignShard {
        file: FileName,
        other: FileName,
        key: &'static str,
        found: Box<str>,
        expected: Box<str>,
    },
    /// The same tensor name in two shards.
    #[error("{file}: tensor `{tensor}` is also in {other}")]
    DuplicateTensorInShards {
        file: FileName,
        other: FileName,
        tensor: String,
    },
    /// The shards together hold another number of tensors than they say.
    #[error(
        "{file}: `split.tensors.count` is {stored}, but the {shards} shards hold {found} tensors"
    )]
    SplitTensorCount {
        file: FileName,
        stored: u64,
        found: u64,
        shards: usize,
    },

    // ---- writing ----
    /// A tensor name llama.cpp could not read back.
    #[error("{file}: tensor name `{tensor}` has {length} bytes, llama.cpp reads at most {max}")]
    NameTooLong {
        file: FileName,
        tensor: String,
        length: usize,
        max: usize,
    },
    /// The tensors together pass 2^64 bytes.
    #[error("{file}: with tensor `{tensor}` the file has more bytes than 2^64 - 1")]
    TotalSizeOverflow { file: FileName, tensor: String },
    /// The data given for a tensor is not as long as its shape and type say.
    #[error("{file}: tensor `{tensor}` needs {need} bytes, {have} were given")]
    DataSize {
        file: FileName,
        tensor: String,
        need: u64,
        have: u64,
    },
}

fn entry(index: Option<usize>) -> String {
    index.map_or_else(String::new, |i| format!(" in entry {i}"))
}

fn vocabulary_only(tensors: usize) -> &'static str {
    if tensors == 0 {
        ": the file has no tensors at all (vocabulary only)"
    } else {
        ""
    }
}
