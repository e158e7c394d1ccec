//! Names of quantizations: `q4_k_m`, `iq2_xs`, `mxfp4`, with the spellings people use.

use std::fmt;
use std::str::FromStr;

use burn_gguf_kernels::GgmlType;
use serde::{Deserialize, Serialize};

use super::error::QuantError;

/// A row of the table of names: canonical name, tensor type, bits in the name, public form.
struct Name {
    name: &'static str,
    public: &'static str,
    ty: GgmlType,
    bits: u32,
}

macro_rules! names {
    ($($name:literal $public:literal $ty:ident $bits:literal;)*) => {
        &[$(Name { name: $name, public: $public, ty: GgmlType::$ty, bits: $bits }),*]
    };
}

/// Every canonical name. A public form and a width name at most one row.
#[rustfmt::skip]
const NAMES: &[Name] = names! {
    "q1_0" "q_0" Q1_0 1;         "q2_0" "q_0" Q2_0 2;
    "q4_0" "q_0" Q4_0 4;         "q4_1" "q_1" Q4_1 4;
    "q5_0" "q_0" Q5_0 5;         "q5_1" "q_1" Q5_1 5;
    "q8_0" "q_0" Q8_0 8;         "q8_1" "q_1" Q8_1 8;
    "q2_k" "q_k" Q2K 2;          "q2_k_s" "q_k_s" Q2K 2;      "q2_k_m" "q_k_m" Q2K 2;
    "q3_k" "q_k" Q3K 3;          "q3_k_s" "q_k_s" Q3K 3;      "q3_k_m" "q_k_m" Q3K 3;
    "q3_k_l" "q_k_l" Q3K 3;
    "q4_k" "q_k" Q4K 4;          "q4_k_s" "q_k_s" Q4K 4;      "q4_k_m" "q_k_m" Q4K 4;
    "q5_k" "q_k" Q5K 5;          "q5_k_s" "q_k_s" Q5K 5;      "q5_k_m" "q_k_m" Q5K 5;
    "q6_k" "q_k" Q6K 6;          "q8_k" "q_k" Q8K 8;
    "iq1_s" "iq_s" IQ1S 1;       "iq1_m" "iq_m" IQ1M 1;
    "iq2_xxs" "iq_xxs" IQ2XXS 2; "iq2_xs" "iq_xs" IQ2XS 2;    "iq2_s" "iq_s" IQ2S 2;
    "iq3_xxs" "iq_xxs" IQ3XXS 3; "iq3_s" "iq_s" IQ3S 3;
    "iq4_nl" "iq_nl" IQ4NL 4;    "iq4_xs" "iq_xs" IQ4XS 4;
    "tq1_0" "tq_0" TQ1_0 1;      "tq2_0" "tq_0" TQ2_0 2;
    "mxfp4" "mxfp" MXFP4 4;      "nvfp4" "nvfp" NVFP4 4;
    "f16" "f" F16 16;            "bf16" "bf" BF16 16;         "f32" "f" F32 32;
};

/// Other names for rows of [`NAMES`].
const ALIASES: &[(&str, &str)] = &[("q1_0_g128", "q1_0")];

/// What a width means when no format is given.
const DEFAULTS: &[(u32, &str)] = &[
    (1, "q1_0"),
    (2, "q2_0"),
    (3, "q3_k"),
    (4, "q4_0"),
    (5, "q5_k_m"),
    (6, "q6_k"),
    (8, "q8_0"),
];

/// A named quantization of one tensor.
///
/// Parsed from any spelling of the name: surrounding space, case, and `-` for `_` do not matter. `q4_k_s` and `q4_k_m`
/// are the same tensor type ([`ggml_type`](QuantSpec::ggml_type)) and stay different names.
///
/// ```
/// use burn_gguf::{GgmlType, quantize::QuantSpec};
///
/// let spec: QuantSpec = " Q4-K-M ".parse()?;
/// assert_eq!(spec.to_string(), "q4_k_m");
/// assert_eq!(spec.public_form(), "q_k_m");
/// assert_eq!((spec.bits(), spec.ggml_type()), (4, GgmlType::Q4K));
/// assert_eq!(QuantSpec::new(Some(4), Some("q_k_m"))?, spec);
/// # Ok::<(), burn_gguf::quantize::QuantError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub struct QuantSpec(usize);

impl QuantSpec {
    /// Every spec, in the order of the table of names.
    pub fn all() -> impl Iterator<Item = QuantSpec> {
        (0..NAMES.len()).map(QuantSpec)
    }

    /// The spec of a width, a format, or both. The format may be a whole name (`q4_k_m`) or a public form (`q_k_m`),
    /// which needs a width.
    ///
    /// # Errors
    /// [`WidthConflict`](QuantError::WidthConflict) where the two disagree, and what is wrong with either.
    pub fn new(bits: Option<u32>, format: Option<&str>) -> Result<Self, QuantError> {
        let (bits, format) = match (bits, format) {
            (None, None) => return Err(QuantError::NothingNamed),
            (Some(bits), None) => return Self::default_of_width(bits),
            (bits, Some(format)) => (bits, format),
        };
        let key = normalized(format);
        if let Some(spec) = by_name(&key) {
            return match bits {
                Some(bits) if bits != spec.bits() => Err(QuantError::WidthConflict {
                    bits,
                    format: format.trim().to_owned(),
                    format_bits: spec.bits(),
                }),
                _ => Ok(spec),
            };
        }
        let widths = || NAMES.iter().filter(|n| n.public == key).map(|n| n.bits);
        let found = bits.and_then(|bits| {
            NAMES
                .iter()
                .position(|n| n.public == key && n.bits == bits)
                .map(QuantSpec)
        });
        match (found, bits) {
            (Some(spec), _) => Ok(spec),
            _ if widths().next().is_none() => Err(QuantError::UnknownFormat {
                format: format.trim().to_owned(),
                known: known_names(),
            }),
            (None, Some(bits)) => Err(QuantError::NoSuchWidth {
                bits,
                format: format.trim().to_owned(),
                widths: join(widths()),
            }),
            (None, None) => Err(QuantError::WidthMissing {
                format: format.trim().to_owned(),
                widths: join(widths()),
            }),
        }
    }

    /// The default format of a width.
    ///
    /// # Errors
    /// [`NoDefault`](QuantError::NoDefault) for a width without one.
    pub fn default_of_width(bits: u32) -> Result<Self, QuantError> {
        DEFAULTS
            .iter()
            .find(|(width, _)| *width == bits)
            .and_then(|(_, name)| by_name(name))
            .ok_or_else(|| QuantError::NoDefault {
                bits,
                widths: join(DEFAULTS.iter().map(|(width, _)| *width)),
            })
    }

    /// The first name of a tensor type (`q4_k` for `Q4_K`); `None` for types that are not written by name.
    pub fn of_type(ty: GgmlType) -> Option<Self> {
        NAMES.iter().position(|n| n.ty == ty).map(QuantSpec)
    }

    /// The tensor type.
    pub fn ggml_type(self) -> GgmlType {
        NAMES[self.0].ty
    }

    /// The width in the name, nominal bits of a value.
    pub fn bits(self) -> u32 {
        NAMES[self.0].bits
    }

    /// The canonical name, for example `q4_k_m`.
    pub fn name(self) -> &'static str {
        NAMES[self.0].name
    }

    /// The name without its width, for example `q_k_m`: with [`bits`](QuantSpec::bits) it names the spec.
    pub fn public_form(self) -> &'static str {
        NAMES[self.0].public
    }
}

fn by_name(key: &str) -> Option<QuantSpec> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == key);
    let key = alias.map_or(key, |(_, name)| name);
    NAMES.iter().position(|n| n.name == key).map(QuantSpec)
}

/// The spelling that tables are keyed by.
pub(super) fn normalized(text: &str) -> String {
    text.trim().to_ascii_lowercase().replace('-', "_")
}

fn known_names() -> String {
    let names: Vec<_> = NAMES.iter().map(|n| n.name).collect();
    names.join(", ")
}

fn join(widths: impl Iterator<Item = u32>) -> String {
    let mut widths: Vec<u32> = widths.collect();
    widths.sort_unstable();
    let texts: Vec<_> = widths.iter().map(u32::to_string).collect();
    texts.join(", ")
}

impl FromStr for QuantSpec {
    type Err = QuantError;

    fn from_str(text: &str) -> Result<Self, QuantError> {
        QuantSpec::new(None, Some(text))
    }
}

impl TryFrom<String> for QuantSpec {
    type Error = QuantError;

    fn try_from(text: String) -> Result<Self, QuantError> {
        text.parse()
    }
}

impl From<QuantSpec> for &'static str {
    fn from(spec: QuantSpec) -> Self {
        spec.name()
    }
}

impl fmt::Display for QuantSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for QuantSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuantSpec({})", self.name())
    }
}
