//! How far each operation may be from the oracle, on every device alike.

use std::fmt;

/// Allowed error: the largest relative to the largest expected value, and the normalized mean square.
#[derive(Clone, Copy)]
pub struct Tolerance {
    op: &'static str,
    pub max: f64,
    pub nmse: f64,
    why: &'static str,
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "max {:.0e}, NMSE {:.0e} ({})",
            self.max, self.nmse, self.why
        )
    }
}

/// The longest name that starts the operation's name counts.
const TABLE: &[Tolerance] = &[
    row(
        "dequantize f32",
        0.0,
        0.0,
        "the scalar decoder is the definition, every device repeats its roundings",
    ),
    row(
        "dequantize f16",
        0.0,
        0.0,
        "the decoded value rounded to nearest even",
    ),
    row(
        "dequantize bf16",
        0.0,
        0.0,
        "the decoded value rounded to nearest even",
    ),
    row("gather_rows", 0.0, 0.0, "decoding only"),
    row(
        "linear exact",
        2e-6,
        1e-12,
        "f32 sums of 512 products in another order",
    ),
    row(
        "linear fast",
        3e-2,
        1e-4,
        "8-bit activations: steps of 1/127 of a block's largest value, NMSE 3e-5 on even noise",
    ),
    row("linear_pair exact", 2e-6, 1e-12, "as linear exact"),
    row("linear_pair fast", 3e-2, 1e-4, "as linear fast"),
    row("linear_triple exact", 2e-6, 1e-12, "as linear exact"),
    row("linear_triple fast", 3e-2, 1e-4, "as linear fast"),
    row(
        "linear f16 input",
        1e-3,
        1e-6,
        "the output is rounded to f16",
    ),
    row(
        "rms_norm",
        1e-6,
        1e-12,
        "an f32 sum, a square root and two products",
    ),
    row("rope", 1e-6, 1e-12, "two products and a sum"),
    row(
        "glu",
        2e-6,
        1e-12,
        "exponentials of a few units in the last place",
    ),
    row("cache_append f32", 0.0, 0.0, "a copy"),
    row(
        "cache_append f16",
        0.0,
        0.0,
        "the value rounded to nearest even",
    ),
    row("attention", 2e-6, 1e-11, "f32 sums and exponentials"),
    row(
        "attention f16 cache",
        2e-6,
        1e-11,
        "the oracle reads the rounded cache too",
    ),
];

const fn row(op: &'static str, max: f64, nmse: f64, why: &'static str) -> Tolerance {
    Tolerance { op, max, nmse, why }
}

/// The tolerance of an operation.
pub fn tolerance(op: &str) -> Tolerance {
    let rows = TABLE.iter().filter(|row| op.starts_with(row.op));
    *rows
        .max_by_key(|row| row.op.len())
        .unwrap_or_else(|| panic!("no tolerance for \"{op}\""))
}
