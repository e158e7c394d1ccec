//! What can be wrong with a wish to quantize.

use std::io;
use std::path::PathBuf;

use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::cpu::CpuError;
use burn_gguf_kernels::quantize::QuantizeError;

use crate::gguf::{FileName, GgufError};

/// Why a quantization cannot be named or a configuration not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values the messages print
pub enum QuantError {
    /// Neither a width nor a format.
    #[error("neither bits nor a format is given; give one, for example format = \"q4_k_m\"")]
    NothingNamed,
    /// No quantization has this name.
    #[error("no quantization is called \"{format}\"; known: {known}")]
    UnknownFormat { format: String, known: String },
    /// No recipe has this name.
    #[error("no recipe or tensor type is called \"{name}\"; known: {known}")]
    UnknownRecipe { name: String, known: String },
    /// The width and the format disagree.
    #[error(
        "bits = {bits} contradicts the format \"{format}\", which has {format_bits} bits; leave one out or make them agree"
    )]
    WidthConflict {
        bits: u32,
        format: String,
        format_bits: u32,
    },
    /// The format exists, in other widths.
    #[error("the format \"{format}\" has no variant of {bits} bits; it has {widths}")]
    NoSuchWidth {
        bits: u32,
        format: String,
        widths: String,
    },
    /// A format without its width, and no width beside it.
    #[error("the format \"{format}\" needs a width: give bits, one of {widths}")]
    WidthMissing { format: String, widths: String },
    /// A width that has no default format.
    #[error("no format is the default for {bits} bits (only for {widths}); name a format")]
    NoDefault { bits: u32, widths: String },
    /// A rule's regular expression does not parse.
    #[error("the rule \"{regex}\" is not a regular expression: {source}")]
    BadRegex {
        regex: String,
        source: Box<regex::Error>,
    },
    /// A rule that says nothing.
    #[error(
        "the rule for \"{regex}\" says neither what to use nor to skip; give bits and format, or skip = true"
    )]
    EmptyRule { regex: String },
    /// A rule that skips and names a format.
    #[error("the rule for \"{regex}\" skips, but also names bits or a format; leave one out")]
    SkipWithFormat { regex: String },
    /// A rule with another width must say in which format.
    #[error(
        "the rule for \"{regex}\" changes the width from that of {base} to {bits} bits without a format; state the format of the rule, too"
    )]
    RuleWidthWithoutFormat {
        regex: String,
        bits: u32,
        base: &'static str,
    },
}

/// Why an importance matrix cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values the messages print
pub enum ImportanceError {
    /// The file is a GGUF that cannot be opened.
    #[error("the importance matrix cannot be read: {0}")]
    Gguf(#[source] GgufError),
    /// The operating system refused.
    #[error("{file}: cannot read the importance matrix: {source}")]
    Io {
        file: FileName,
        #[source]
        source: io::Error,
    },
    /// Nothing in the file is an importance.
    #[error(
        "{file}: is no importance matrix: it has no entries (GGUF tensors called NAME.in_sum2)"
    )]
    NoEntries { file: FileName },
    /// Sums without the counts they are divided by.
    #[error("{file}: entry `{name}` has `{name}.in_sum2` but no `{name}.counts`")]
    CountsMissing { file: FileName, name: String },
    /// Sums that are not a row for each count.
    #[error("{file}: entry `{name}` has {sums} sums, which are not rows for its {counts} counts")]
    CountsShape {
        file: FileName,
        name: String,
        sums: usize,
        counts: usize,
    },
    /// Importances of another type.
    #[error("{file}: tensor `{tensor}` has type id {type_id}; importances must be F32 (0)")]
    NotF32 {
        file: FileName,
        tensor: String,
        type_id: u32,
    },
    /// An importance that is no number.
    #[error(
        "{file}: entry `{name}` holds {value} at index {index}; collect the importance matrix again"
    )]
    NotFinite {
        file: FileName,
        name: String,
        index: usize,
        value: f32,
    },
    /// The binary form ends early.
    #[error("{file}: truncated: {what} at byte {offset} needs {need} bytes, {have} are left")]
    Truncated {
        file: FileName,
        what: &'static str,
        offset: usize,
        need: usize,
        have: usize,
    },
    /// A length that no importance matrix has.
    #[error(
        "{file}: is no importance matrix: {what} at byte {offset} is {value}, expected 0 to {limit}"
    )]
    BadLength {
        file: FileName,
        what: &'static str,
        offset: usize,
        value: i32,
        limit: usize,
    },
}

/// Why a file cannot be quantized.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values the messages print
pub enum QuantizeFileError {
    /// The source cannot be read, or the result not be written.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The result would take the place of what is read.
    #[error("{} is read to make it: write to another file", path.display())]
    OutputIsInput { path: PathBuf },
    /// No quantizer exists for the type.
    #[error(
        "{file}: tensor `{tensor}` would become {ggml_type}, which cannot be written; choose another type for it"
    )]
    NotWritable {
        file: FileName,
        tensor: String,
        ggml_type: GgmlType,
    },
    /// The importance matrix is that of another model.
    #[error(
        "{file}: has {have} importances for tensor `{tensor}`, which has {need} inputs; it was collected from another model"
    )]
    ImportanceSize {
        file: FileName,
        tensor: String,
        need: u64,
        have: u64,
    },
    /// A weight that is infinite or no number.
    #[error(
        "{file}: tensor `{tensor}` holds {value} at index {index}; nothing can be quantized from it"
    )]
    NotFinite {
        file: FileName,
        tensor: String,
        index: u64,
        value: f32,
    },
    /// A weight, or the scale of its block, is over what the type can hold.
    #[error(
        "{file}: tensor `{tensor}` holds {value} near index {index}, which {ggml_type} cannot hold; choose another type for \
         it, such as F32 or BF16"
    )]
    Overflow {
        file: FileName,
        tensor: String,
        ggml_type: GgmlType,
        index: u64,
        value: f32,
    },
    /// An importance matrix that speaks of none of the tensors.
    #[error(
        "{file}: none of its {entries} entries names a tensor of the model; it was collected from another model"
    )]
    ImportanceUnrelated { file: FileName, entries: usize },
    /// The source's type cannot be decoded.
    #[error("{file}: tensor `{tensor}`: {source}")]
    Decode {
        file: FileName,
        tensor: String,
        #[source]
        source: CpuError,
    },
    /// The quantizer refused.
    #[error("{file}: tensor `{tensor}`: {source}")]
    Quantize {
        file: FileName,
        tensor: String,
        #[source]
        source: QuantizeError,
    },
}
