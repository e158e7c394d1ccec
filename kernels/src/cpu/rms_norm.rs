//! Root-mean-square normalization.

use super::shape_error::{ShapeError, positive};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};
use super::{Isa, shape_error};

/// `out[r, i] = x[r, i] / sqrt(mean_i x[r, i]^2 + eps) * weight[i]`, with `x` and `out` `[rows, dim]`.
///
/// `dim` is the length of `weight`, or `dim` where there is none. For norms per head, `dim` is the head's size.
///
/// # Errors
/// When `x` is not a whole number of rows, or `out` or `weight` differ in size.
pub fn rms_norm(
    x: &[f32],
    dim: usize,
    weight: Option<&[f32]>,
    eps: f32,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    rms_norm_with(Isa::current(), x, dim, weight, eps, out)
}

/// `sum = x + residual`, `out = rms_norm(sum)`, in one pass; all `[rows, dim]`.
///
/// # Errors
/// As [`rms_norm`].
pub fn add_rms_norm(
    x: &[f32],
    residual: &[f32],
    dim: usize,
    weight: Option<&[f32]>,
    eps: f32,
    sum: &mut [f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    add_rms_norm_with(Isa::current(), x, residual, dim, weight, eps, sum, out)
}

fn rows(x: &[f32], dim: usize, weight: Option<&[f32]>, out: &[f32]) -> Result<usize, ShapeError> {
    positive("dim", dim)?;
    if !x.len().is_multiple_of(dim) {
        return Err(ShapeError::Ragged {
            what: "x",
            row: dim,
            got: x.len(),
        });
    }
    shape_error::check("out", out.len(), &[x.len()])?;
    if let Some(w) = weight {
        shape_error::check("weight", w.len(), &[dim])?;
    }
    Ok(x.len() / dim)
}

/// Nanoseconds per element, for the task size.
const NS: f64 = 0.25;

pub(crate) fn rms_norm_with(
    isa: Isa,
    x: &[f32],
    dim: usize,
    weight: Option<&[f32]>,
    eps: f32,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let n = rows(x, dim, weight, out)?;
    let to = SharedMut::new(out);
    for_each_range(n, items_per_task(n, NS * dim as f64), &|r| {
        // SAFETY: ranges of rows are disjoint and lie inside `out`.
        let out =
            unsafe { std::slice::from_raw_parts_mut(to.get().add(r.start * dim), r.len() * dim) };
        dispatch(
            isa,
            Norm {
                x: &x[r.start * dim..r.end * dim],
                dim,
                weight,
                eps,
                out,
            },
        );
    });
    Ok(())
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn add_rms_norm_with(
    isa: Isa,
    x: &[f32],
    residual: &[f32],
    dim: usize,
    weight: Option<&[f32]>,
    eps: f32,
    sum: &mut [f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let n = rows(x, dim, weight, out)?;
    shape_error::check("residual", residual.len(), &[x.len()])?;
    shape_error::check("sum", sum.len(), &[x.len()])?;
    let (to_sum, to_out) = (SharedMut::new(sum), SharedMut::new(out));
    for_each_range(n, items_per_task(n, 2.0 * NS * dim as f64), &|r| {
        let (start, len) = (r.start * dim, r.len() * dim);
        // SAFETY: ranges of rows are disjoint and lie inside `sum`, which is as long as `x`.
        let sum = unsafe { std::slice::from_raw_parts_mut(to_sum.get().add(start), len) };
        // SAFETY: likewise for `out`.
        let out = unsafe { std::slice::from_raw_parts_mut(to_out.get().add(start), len) };
        dispatch(
            isa,
            Add {
                a: &x[start..start + len],
                b: &residual[start..start + len],
                out: sum,
            },
        );
        dispatch(
            isa,
            Norm {
                x: sum,
                dim,
                weight,
                eps,
                out,
            },
        );
    });
    Ok(())
}

struct Add<'a> {
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Add<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        for ((out, a), b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *out = a + b;
        }
    }
}

struct Norm<'a> {
    x: &'a [f32],
    dim: usize,
    weight: Option<&'a [f32]>,
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self {
            x,
            dim,
            weight,
            eps,
            out,
        } = self;
        for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
            let scale = 1.0 / (sum_of_squares::<V>(x) / dim as f32 + eps).sqrt();
            match weight {
                Some(w) => {
                    for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
                        *out = x * scale * w;
                    }
                }
                None => {
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = x * scale;
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn sum_of_squares<V: Vector>(x: &[f32]) -> f32 {
    let mut acc = [V::splat(0.0); 4];
    let blocks = x.chunks_exact(4 * V::LANES);
    let rest = blocks.remainder();
    for block in blocks {
        for (i, acc) in acc.iter_mut().enumerate() {
            // SAFETY: a block has four registers' worth of elements.
            let v = unsafe { V::load(block.as_ptr().add(i * V::LANES)) };
            *acc = v.fma(v, *acc);
        }
    }
    let mut i = 0;
    while i < rest.len() {
        let left = rest.len() - i;
        // SAFETY: `left` elements remain from `i`.
        let v = unsafe {
            let p = rest.as_ptr().add(i);
            if left < V::LANES {
                V::load_partial(p, left)
            } else {
                V::load(p)
            }
        };
        acc[0] = v.fma(v, acc[0]);
        i += V::LANES;
    }
    acc[0].add(acc[1]).add(acc[2].add(acc[3])).reduce_add()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{RMS_NORM, Rng, assert_close, isas};

    fn oracle(x: &[f32], dim: usize, weight: Option<&[f32]>, eps: f32) -> Vec<f64> {
        x.chunks(dim)
            .flat_map(|row| {
                let mean = row.iter().map(|&v| (v as f64).powi(2)).sum::<f64>() / dim as f64;
                let scale = 1.0 / (mean + eps as f64).sqrt();
                row.iter()
                    .enumerate()
                    .map(move |(i, &v)| v as f64 * scale * weight.map_or(1.0, |w| w[i] as f64))
            })
            .collect()
    }

    #[test]
    fn matches_the_oracle() {
        let mut rng = Rng::new(1);
        for isa in isas() {
            for dim in [1, 3, 7, 8, 64, 80, 96, 127, 128, 640, 1000] {
                for rows in [0, 1, 2, 33, 1030] {
                    let (x, r, w) = (
                        rng.normal(rows * dim),
                        rng.normal(rows * dim),
                        rng.normal(dim),
                    );
                    for weight in [None, Some(&w[..])] {
                        let mut out = vec![f32::NAN; x.len()];
                        rms_norm_with(isa, &x, dim, weight, 1e-6, &mut out).unwrap();
                        assert_close(
                            &out,
                            &oracle(&x, dim, weight, 1e-6),
                            RMS_NORM,
                            &format!("{isa:?} {rows}x{dim}"),
                        );

                        let mut sum = vec![f32::NAN; x.len()];
                        add_rms_norm_with(isa, &x, &r, dim, weight, 1e-6, &mut sum, &mut out)
                            .unwrap();
                        let expect: Vec<f32> = x.iter().zip(&r).map(|(a, b)| a + b).collect();
                        assert_eq!(sum, expect);
                        assert_close(
                            &out,
                            &oracle(&sum, dim, weight, 1e-6),
                            RMS_NORM,
                            &format!("add {isa:?} {rows}x{dim}"),
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zero() {
        for isa in isas() {
            let mut out = [f32::NAN; 40];
            rms_norm_with(isa, &[0.0; 40], 20, None, 1e-6, &mut out).unwrap();
            assert_eq!(out, [0.0; 40]);
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        let mut out = [0.0; 6];
        assert_eq!(
            rms_norm(&[0.0; 6], 4, None, 0.0, &mut out),
            Err(ShapeError::Ragged {
                what: "x",
                row: 4,
                got: 6
            })
        );
        assert_eq!(
            rms_norm(&[0.0; 6], 0, None, 0.0, &mut out),
            Err(ShapeError::Zero { what: "dim" })
        );
        assert_eq!(
            rms_norm(&[0.0; 6], 3, Some(&[1.0; 2]), 0.0, &mut out),
            Err(ShapeError::Length {
                what: "weight",
                expected: 3,
                got: 2
            })
        );
        assert_eq!(
            rms_norm(&[0.0; 3], 3, None, 0.0, &mut out),
            Err(ShapeError::Length {
                what: "out",
                expected: 3,
                got: 6
            })
        );
    }
}
