//! How far each operation may be from the oracle, on every device alike.

use std::fmt;

use crate::compare::Error;

/// Allowed error: the largest relative to the largest expected value, and the normalized mean square.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    op: &'static str,
    /// Bound of [`Error::max`].
    pub max: f64,
    /// Bound of [`Error::nmse`].
    pub nmse: f64,
    /// Why not less and not more.
    pub why: &'static str,
}

impl Tolerance {
    /// The share of the tolerance that `error` uses up: over 1 is too much.
    pub fn share(&self, error: Error) -> f64 {
        let share = |error: f64, bound: f64| match error == 0.0 {
            true => 0.0,
            false => error / bound,
        };
        share(error.max, self.max).max(share(error.nmse, self.nmse))
    }
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

const SUM: &str = "f32 sums of some hundred products in another order";
const EIGHT_BITS: &str = "8-bit activations: steps of 1/127 of a block's largest value, NMSE 3e-5 on even noise; \
     some shapes have a single output, which scatters; ggml's own bound";

/// The longest name that starts the operation's name, followed by the type's, counts.
const TABLE: &[Tolerance] = &[
    row(
        "dequantize",
        0.0,
        0.0,
        "the scalar decoder is the definition, rounded to nearest even for 16-bit outputs",
    ),
    row("gather_rows", 0.0, 0.0, "decoding only"),
    row("linear_exact", 2e-6, 1e-12, SUM),
    row("linear_fast", 3e-2, 5e-4, EIGHT_BITS),
    row("linear_pair_exact", 2e-6, 1e-12, SUM),
    row("linear_pair_fast", 3e-2, 5e-4, EIGHT_BITS),
    row("linear_triple_exact", 2e-6, 1e-12, SUM),
    row("linear_triple_fast", 3e-2, 5e-4, EIGHT_BITS),
    row("linear_experts_exact", 2e-6, 1e-12, SUM),
    row("linear_experts_fast", 3e-2, 5e-4, EIGHT_BITS),
    row(
        "linear_f16",
        1e-3,
        1e-6,
        "the output is rounded to f16, 5e-4 of a value",
    ),
    row(
        "switch_over",
        4e-6,
        4e-12,
        "the same activations and weights, f32 sums in two other orders",
    ),
    row(
        "switch_over_fast BF16",
        5e-3,
        1e-5,
        "from four rows on, activations are rounded to BF16 where the CPU multiplies pairs of those",
    ),
    row(
        "rms_norm",
        1e-6,
        1e-12,
        "an f32 sum, a square root and two products",
    ),
    row(
        "layer_norm",
        2e-6,
        1e-12,
        "two f32 sums, a difference, a square root and two products",
    ),
    row(
        "gelu",
        2e-6,
        1e-12,
        "exponentials or error functions of a few units in the last place",
    ),
    row("rope", 1e-6, 1e-12, "two products and a sum"),
    row(
        "glu",
        2e-6,
        1e-12,
        "exponentials of a few units in the last place",
    ),
    row(
        "cache_append",
        0.0,
        0.0,
        "a copy, rounded to nearest even in an f16 cache",
    ),
    row(
        "attention",
        2e-6,
        1e-11,
        "f32 sums and exponentials; the oracle reads the rounded cache too",
    ),
    row(
        "choose_blocks",
        0.0,
        0.0,
        "a choice: the same blocks or others",
    ),
    row(
        "short_conv",
        2e-6,
        1e-12,
        "a few products and an exponential; the state is a copy",
    ),
    row(
        "gated_delta",
        4e-6,
        1e-12,
        "f32 sums over a head, norms and exponentials, carried on from token to token",
    ),
    row(
        "choose_experts",
        2e-6,
        1e-12,
        "exponentials, a sum and a quotient; the ids are exact",
    ),
    row(
        "expert_sum",
        2e-6,
        1e-12,
        "a few products and an exponential",
    ),
];

const fn row(op: &'static str, max: f64, nmse: f64, why: &'static str) -> Tolerance {
    Tolerance { op, max, nmse, why }
}

/// The tolerance of an operation of [`OPS`](crate::OPS) on a type, as ggml spells it.
pub fn tolerance(op: &str, ty: &str) -> Tolerance {
    let cell = format!("{op} {ty}");
    let rows = TABLE.iter().filter(|row| cell.starts_with(row.op));
    *rows
        .max_by_key(|row| row.op.len())
        .unwrap_or_else(|| panic!("no tolerance for \"{op}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_tolerance() {
        for op in crate::OPS {
            assert!(!tolerance(op.name, "Q4_K").why.is_empty(), "{}", op.name);
        }
    }

    #[test]
    fn shares_grow_with_either_error() {
        let exact = tolerance("gather_rows", "Q4_K");
        assert_eq!(exact.share(Error::default()), 0.0);
        let error = |max, nmse| Error { max, nmse };
        assert!(exact.share(error(1e-9, 0.0)) > 1.0);
        let sums = tolerance("linear_exact", "Q4_K");
        assert_eq!(sums.share(error(1e-6, 0.0)), 0.5);
        assert_eq!(sums.share(error(0.0, 2e-12)), 2.0);
        let fast = |ty| tolerance("switch_over_fast", ty).nmse;
        assert!(fast("BF16") > fast("F16"));
    }
}
