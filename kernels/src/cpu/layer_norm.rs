//! Layer normalization (Ba et al. 2016).

use super::Isa;
use super::shape_error::{self, ShapeError, positive};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};

/// `out[r, i] = (x[r, i] - mean_r) / sqrt(var_r + eps) * weight[i] + bias[i]`, with `x` and `out` `[rows, dim]`, the
/// variance that of the whole row, and `dim` the length of `weight` and `bias`.
///
/// # Errors
/// When `x` is not a whole number of rows, or `out` or `bias` differ in size.
pub fn layer_norm(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    layer_norm_with(Isa::current(), x, weight, bias, eps, out)
}

/// Nanoseconds per element, for the task size.
const NS: f64 = 0.35;

pub(crate) fn layer_norm_with(
    isa: Isa,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let dim = weight.len();
    positive("dim", dim)?;
    if !x.len().is_multiple_of(dim) {
        return Err(ShapeError::Ragged {
            what: "x",
            row: dim,
            got: x.len(),
        });
    }
    shape_error::check("bias", bias.len(), &[dim])?;
    shape_error::check("out", out.len(), &[x.len()])?;
    let n = x.len() / dim;
    let to = SharedMut::new(out);
    for_each_range(n, items_per_task(n, NS * dim as f64), &|r| {
        // SAFETY: ranges of rows are disjoint and lie inside `out`.
        let out =
            unsafe { std::slice::from_raw_parts_mut(to.get().add(r.start * dim), r.len() * dim) };
        let x = &x[r.start * dim..r.end * dim];
        dispatch(
            isa,
            Norm {
                x,
                weight,
                bias,
                eps,
                out,
            },
        );
    });
    Ok(())
}

struct Norm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let dim = self.weight.len();
        for (x, out) in self.x.chunks_exact(dim).zip(self.out.chunks_exact_mut(dim)) {
            let mean = sum::<V>(x, |v| v, |v| v) / dim as f32;
            // A second pass over the cached row: the difference of the moments would cancel.
            let shift = V::splat(mean);
            let squares = sum::<V>(
                x,
                |v| {
                    let d = v.sub(shift);
                    d.mul(d)
                },
                |v| (v - mean) * (v - mean),
            );
            let variance = squares / dim as f32;
            let scale = 1.0 / (variance + self.eps).sqrt();
            for (((out, x), w), b) in out.iter_mut().zip(x).zip(self.weight).zip(self.bias) {
                *out = (x - mean) * scale * w + b;
            }
        }
    }
}

/// Sum over the row of `f` by whole registers and of `rest` over the values behind them.
#[inline(always)]
fn sum<V: Vector>(x: &[f32], f: impl Fn(V) -> V, rest: impl Fn(f32) -> f32) -> f32 {
    let mut acc = [V::splat(0.0); 4];
    let registers = x.chunks_exact(V::LANES);
    let tail: f32 = registers.remainder().iter().map(|&v| rest(v)).sum();
    for (i, register) in registers.enumerate() {
        // SAFETY: a chunk is one register long.
        let v = unsafe { V::load(register.as_ptr()) };
        acc[i % 4] = acc[i % 4].add(f(v));
    }
    acc[0].add(acc[1]).add(acc[2].add(acc[3])).reduce_add() + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{RMS_NORM, Rng, assert_close, isas};

    #[test]
    fn matches_the_oracle() {
        let mut rng = Rng::new(9);
        for isa in isas() {
            for dim in [2, 3, 7, 8, 33, 64, 80, 127, 1024] {
                for rows in [0, 1, 5, 300] {
                    let (x, w, b) = (rng.normal(rows * dim), rng.normal(dim), rng.normal(dim));
                    // Away from zero, where a variance from moments would cancel.
                    let x: Vec<f32> = x.iter().map(|v| v + 3.0).collect();
                    let mut out = vec![f32::NAN; x.len()];
                    layer_norm_with(isa, &x, &w, &b, 1e-2, &mut out).unwrap();
                    let expect: Vec<f64> = x
                        .chunks(dim)
                        .flat_map(|row| {
                            let n = dim as f64;
                            let mean = row.iter().map(|&v| v as f64).sum::<f64>() / n;
                            let var =
                                row.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n;
                            let scale = 1.0 / (var + f64::from(1e-2f32)).sqrt();
                            row.iter()
                                .enumerate()
                                .map(|(i, &v)| {
                                    (v as f64 - mean) * scale * w[i] as f64 + b[i] as f64
                                })
                                .collect::<Vec<_>>()
                        })
                        .collect();
                    // The large epsilon bounds what two nearly equal values make of rounding.
                    let worst = out
                        .iter()
                        .zip(&expect)
                        .map(|(&o, &e)| (o as f64 - e).abs())
                        .fold(0.0, f64::max);
                    assert!(worst < 5e-5, "{isa:?} {rows}x{dim}: {worst}");
                }
            }
        }
    }

    #[test]
    fn constant_rows_are_the_bias() {
        for isa in isas() {
            let mut out = [f32::NAN; 20];
            layer_norm_with(isa, &[3.0; 20], &[2.0; 20], &[0.5; 20], 1e-6, &mut out).unwrap();
            let expect = [0.5f64; 20];
            assert_close(&out, &expect, RMS_NORM, "constant");
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        let mut out = [0.0; 6];
        let ragged = layer_norm(&[0.0; 6], &[1.0; 4], &[0.0; 4], 0.0, &mut out);
        assert!(matches!(ragged, Err(ShapeError::Ragged { row: 4, .. })));
        let bias = layer_norm(&[0.0; 6], &[1.0; 3], &[0.0; 2], 0.0, &mut out);
        assert!(matches!(bias, Err(ShapeError::Length { what: "bias", .. })));
        let empty = layer_norm(&[], &[], &[], 0.0, &mut []);
        assert_eq!(empty, Err(ShapeError::Zero { what: "dim" }));
    }
}
