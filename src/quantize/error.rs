//! What can be wrong with a wish to quantize.

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
