//! The key/value cache of attention: `[n_kv_heads, capacity, head_dim]`, `f32` or `f16`.
//!
//! Heads are outermost, so that one head's keys are one run of memory.

use super::Isa;
use super::shape_error::{ShapeError, check, positive, product};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Element, Kernel, Vector, dispatch};
use half::f16;

/// A cache to read from.
#[derive(Clone, Copy, Debug)]
pub enum KvView<'a> {
    /// Elements of 32 bits.
    F32(&'a [f32]),
    /// Elements of 16 bits.
    F16(&'a [f16]),
}

impl KvView<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            KvView::F32(s) => s.len(),
            KvView::F16(s) => s.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A cache to write to.
#[derive(Debug)]
pub enum KvViewMut<'a> {
    /// Elements of 32 bits.
    F32(&'a mut [f32]),
    /// Elements of 16 bits.
    F16(&'a mut [f16]),
}

/// Writes `x` `[tokens, n_kv_heads, head_dim]` to rows `pos..pos + tokens` of each head of `cache`
/// `[n_kv_heads, capacity, head_dim]`, rounding to the cache's element type.
///
/// # Errors
/// When a slice does not have its shape, or the rows do not fit the capacity.
pub fn append_kv(
    cache: KvViewMut<'_>,
    n_kv_heads: usize,
    capacity: usize,
    head_dim: usize,
    pos: usize,
    x: &[f32],
) -> Result<(), ShapeError> {
    append_kv_with(
        Isa::current(),
        cache,
        n_kv_heads,
        capacity,
        head_dim,
        pos,
        x,
    )
}

pub(crate) fn append_kv_with(
    isa: Isa,
    cache: KvViewMut<'_>,
    n_kv_heads: usize,
    capacity: usize,
    head_dim: usize,
    pos: usize,
    x: &[f32],
) -> Result<(), ShapeError> {
    positive("n_kv_heads", n_kv_heads)?;
    positive("head_dim", head_dim)?;
    let row = product("x", &[n_kv_heads, head_dim])?;
    if !x.len().is_multiple_of(row) {
        return Err(ShapeError::Ragged {
            what: "x",
            row,
            got: x.len(),
        });
    }
    let rows = pos.saturating_add(x.len() / row);
    if rows > capacity {
        return Err(ShapeError::CacheFull { rows, capacity });
    }
    let shape = [n_kv_heads, capacity, head_dim];
    match cache {
        KvViewMut::F32(cache) => {
            check("cache", cache.len(), &shape)?;
            append(isa, cache, row, capacity, head_dim, pos, x);
        }
        KvViewMut::F16(cache) => {
            check("cache", cache.len(), &shape)?;
            append(isa, cache, row, capacity, head_dim, pos, x);
        }
    }
    Ok(())
}

fn append<T: Element>(
    isa: Isa,
    cache: &mut [T],
    row: usize,
    capacity: usize,
    head_dim: usize,
    pos: usize,
    x: &[f32],
) {
    let cache = SharedMut::new(cache);
    let tokens = x.len() / row;
    // Half a nanosecond per element.
    for_each_range(tokens, items_per_task(tokens, row as f64 * 0.5), &|r| {
        let x = &x[r.start * row..r.end * row];
        let pos = pos + r.start;
        dispatch(
            isa,
            Append {
                cache,
                row,
                capacity,
                head_dim,
                pos,
                x,
            },
        );
    });
}

struct Append<'a, T> {
    /// Checked: `[row / head_dim, capacity, head_dim]`, with room for the tokens of `x` from `pos` on, which no other
    /// task writes.
    cache: SharedMut<T>,
    row: usize,
    capacity: usize,
    head_dim: usize,
    pos: usize,
    x: &'a [f32],
}

impl<T: Element> Kernel for Append<'_, T> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let d = self.head_dim;
        for (t, token) in self.x.chunks_exact(self.row).enumerate() {
            for (h, from) in token.chunks_exact(d).enumerate() {
                let at = (h * self.capacity + self.pos + t) * d;
                // SAFETY: `pos + t < capacity`, and rows of different tokens are disjoint.
                let to = unsafe { std::slice::from_raw_parts_mut(self.cache.get().add(at), d) };
                convert::<T, V>(from, to);
            }
        }
    }
}

#[inline(always)]
fn convert<T: Element, V: Vector>(from: &[f32], to: &mut [T]) {
    let whole = from.len() / V::LANES * V::LANES;
    for i in (0..whole).step_by(V::LANES) {
        // SAFETY: `i + LANES <= from.len()`, and `to` is as long.
        unsafe { T::store(V::load(from.as_ptr().add(i)), to.as_mut_ptr().add(i)) }
    }
    for (to, &from) in to[whole..].iter_mut().zip(&from[whole..]) {
        *to = T::from_f32(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Rng, isas};

    #[test]
    fn rows_land_where_they_belong() {
        let mut rng = Rng::new(5);
        for isa in isas() {
            for head_dim in [1, 3, 8, 64, 80, 127] {
                for (n_kv, capacity, pos, tokens) in
                    [(1, 5, 0, 1), (2, 5, 2, 3), (3, 40, 7, 33), (2, 4, 4, 0)]
                {
                    let x = rng.normal(tokens * n_kv * head_dim);
                    let mut full = vec![7.0f32; n_kv * capacity * head_dim];
                    let mut half = vec![f16::from_f32(7.0); full.len()];
                    append_kv_with(
                        isa,
                        KvViewMut::F32(&mut full),
                        n_kv,
                        capacity,
                        head_dim,
                        pos,
                        &x,
                    )
                    .unwrap();
                    append_kv_with(
                        isa,
                        KvViewMut::F16(&mut half),
                        n_kv,
                        capacity,
                        head_dim,
                        pos,
                        &x,
                    )
                    .unwrap();
                    for h in 0..n_kv {
                        for row in 0..capacity {
                            for i in 0..head_dim {
                                let expect = match row.checked_sub(pos).filter(|&t| t < tokens) {
                                    Some(t) => x[(t * n_kv + h) * head_dim + i],
                                    None => 7.0,
                                };
                                let at = (h * capacity + row) * head_dim + i;
                                assert_eq!(full[at], expect);
                                assert_eq!(half[at], f16::from_f32(expect), "{isa:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        let mut cache = [0.0f32; 12];
        let mut append = |pos, x: &[f32]| append_kv(KvViewMut::F32(&mut cache), 2, 3, 2, pos, x);
        assert_eq!(
            append(3, &[0.0; 4]),
            Err(ShapeError::CacheFull {
                rows: 4,
                capacity: 3
            })
        );
        assert_eq!(
            append(0, &[0.0; 5]),
            Err(ShapeError::Ragged {
                what: "x",
                row: 4,
                got: 5
            })
        );
        assert_eq!(
            append_kv(KvViewMut::F32(&mut [0.0; 11]), 2, 3, 2, 0, &[0.0; 4]),
            Err(ShapeError::Length {
                what: "cache",
                expected: 12,
                got: 11
            })
        );
    }
}
