//! What can be wrong with the slices given to a fused operation.

use thiserror::Error;

/// A slice or a parameter that does not fit the shape asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// A slice has not as many elements as its shape says.
    #[error("`{what}` has {got} elements, its shape asks for {expected}")]
    Length {
        /// The argument's name.
        what: &'static str,
        /// Elements the shape asks for.
        expected: usize,
        /// Elements found.
        got: usize,
    },
    /// A slice is not a whole number of rows.
    #[error("`{what}` has {got} elements, not a multiple of {row}")]
    Ragged {
        /// The argument's name.
        what: &'static str,
        /// Elements of one row.
        row: usize,
        /// Elements found.
        got: usize,
    },
    /// A dimension that must be positive is zero.
    #[error("`{what}` must not be zero")]
    Zero {
        /// The dimension's name.
        what: &'static str,
    },
    /// The sizes multiply to more than `usize` holds.
    #[error("the shape of `{what}` overflows")]
    Overflow {
        /// The argument's name.
        what: &'static str,
    },
    /// Query heads do not divide evenly among the key/value heads.
    #[error("{n_heads} query heads cannot share {n_kv_heads} key/value heads evenly")]
    HeadGroups {
        /// Query heads.
        n_heads: usize,
        /// Key/value heads.
        n_kv_heads: usize,
    },
    /// No expert, or more than there are, are to be chosen.
    #[error("{used} of {experts} experts cannot be chosen")]
    Choice {
        /// Experts to choose.
        used: usize,
        /// Experts.
        experts: usize,
    },
    /// More rows than the cache holds.
    #[error("{rows} rows do not fit a cache of capacity {capacity}")]
    CacheFull {
        /// Rows the call needs, counted from the cache's start.
        rows: usize,
        /// Rows the cache holds.
        capacity: usize,
    },
    /// Fewer valid cache rows than tokens in this call, which must have been appended before.
    #[error("{tokens} tokens but only {len} valid cache rows")]
    CacheTooShort {
        /// Tokens of this call.
        tokens: usize,
        /// Valid cache rows.
        len: usize,
    },
    /// More rotary dimensions than the head has.
    #[error("{n_rot} rotary dimensions in a head of {head_dim}")]
    RotaryDims {
        /// Rotary dimensions.
        n_rot: usize,
        /// Elements of one head.
        head_dim: usize,
    },
}

/// The product of `dims`.
pub(crate) fn product(what: &'static str, dims: &[usize]) -> Result<usize, ShapeError> {
    dims.iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .ok_or(ShapeError::Overflow { what })
}

/// Checks that a slice of `got` elements has the shape `dims`.
pub(crate) fn check(what: &'static str, got: usize, dims: &[usize]) -> Result<(), ShapeError> {
    let expected = product(what, dims)?;
    if got == expected {
        Ok(())
    } else {
        Err(ShapeError::Length {
            what,
            expected,
            got,
        })
    }
}

/// Checks that a dimension is positive.
pub(crate) fn positive(what: &'static str, n: usize) -> Result<(), ShapeError> {
    if n == 0 {
        Err(ShapeError::Zero { what })
    } else {
        Ok(())
    }
}
