//! The short causal convolution of linear attention, and its activation.

use super::Isa;
use super::shape_error::{ShapeError, check, positive};
use super::split::{SharedMut, for_each_range, items_per_task};
use super::vector::{Kernel, Vector, dispatch};
use std::ops::Range;

/// Most channels of a task, whose taps are laid out side by side.
const TILE: usize = 1024;

/// Sizes of a [`short_conv`] call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConvShape {
    /// Independent sequences.
    pub batch: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// Channels, each with its own taps.
    pub channels: usize,
    /// Taps of a channel, the current token's last.
    pub kernel: usize,
}

/// `out[t, c] = silu(sum_j taps[c, j] * x[t - kernel + 1 + j, c])` with `x` and `out` `[batch, tokens, channels]` and
/// `taps` `[channels, kernel]`. `state` `[batch, kernel - 1, channels]` holds the inputs before the first, oldest
/// first, and then those of this call's end.
///
/// # Errors
/// When a slice does not have its shape, or there are no taps.
pub fn short_conv(
    x: &[f32],
    taps: &[f32],
    shape: &ShortConvShape,
    state: &mut [f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    short_conv_with(Isa::current(), x, taps, shape, state, out)
}

pub(crate) fn short_conv_with(
    isa: Isa,
    x: &[f32],
    taps: &[f32],
    shape: &ShortConvShape,
    state: &mut [f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let &ShortConvShape {
        batch,
        tokens,
        channels,
        kernel,
    } = shape;
    positive("kernel", kernel)?;
    check("x", x.len(), &[batch, tokens, channels])?;
    check("taps", taps.len(), &[channels, kernel])?;
    check("state", state.len(), &[batch, kernel - 1, channels])?;
    check("out", out.len(), &[batch, tokens, channels])?;
    let (state, out) = (SharedMut::new(state), SharedMut::new(out));
    // A nanosecond per value, of which half is for the taps of a single token.
    let per_task = items_per_task(channels, (batch * (tokens + 1)) as f64).next_multiple_of(64);
    for_each_range(channels, per_task.min(TILE), &|channels| {
        let conv = Conv {
            x,
            taps,
            shape,
            state,
            out,
            channels,
        };
        dispatch(isa, conv);
    });
    Ok(())
}

struct Conv<'a> {
    x: &'a [f32],
    taps: &'a [f32],
    shape: &'a ShortConvShape,
    /// Both checked against the shape; the columns of `channels` are this task's alone.
    state: SharedMut<f32>,
    out: SharedMut<f32>,
    channels: Range<usize>,
}

impl Kernel for Conv<'_> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let (kernel, n) = (self.shape.kernel, self.channels.len());
        let taps = &self.taps[self.channels.start * kernel..self.channels.end * kernel];
        let mut turned = vec![0f32; n * kernel];
        turn(taps, &mut turned, kernel);
        for item in 0..self.shape.batch {
            self.sequence::<V>(item, &turned);
        }
    }
}

/// `[channels, kernel]` to `[kernel, channels]`.
#[inline(always)]
fn turn(taps: &[f32], to: &mut [f32], kernel: usize) {
    let n = taps.len() / kernel;
    if let (4, [a, b, c, d]) = (kernel, parts(to, n)) {
        // The usual number, in a form that is compiled to shuffles.
        let to = a.iter_mut().zip(b).zip(c.iter_mut().zip(d));
        for (((a, b), (c, d)), taps) in to.zip(taps.as_chunks::<4>().0) {
            [*a, *b, *c, *d] = *taps;
        }
        return;
    }
    for (channel, taps) in taps.chunks_exact(kernel).enumerate() {
        for (j, &tap) in taps.iter().enumerate() {
            to[j * n + channel] = tap;
        }
    }
}

/// The first four parts of `n` values, empty where there are fewer.
fn parts(all: &mut [f32], n: usize) -> [&mut [f32]; 4] {
    let mut rest = all;
    std::array::from_fn(|_| {
        let (part, after) = std::mem::take(&mut rest)
            .split_at_mut_checked(n)
            .unwrap_or_default();
        rest = after;
        part
    })
}

impl Conv<'_> {
    /// One sequence; `taps` are `[kernel, channels]`.
    #[inline(always)]
    fn sequence<V: Vector>(&self, item: usize, taps: &[f32]) {
        let &ShortConvShape {
            tokens,
            channels: width,
            kernel,
            ..
        } = self.shape;
        let (past, n, first) = (kernel - 1, self.channels.len(), self.channels.start);
        // Row `r` of state and inputs one after the other, from the first channel on.
        let row = |r: usize| match r.checked_sub(past) {
            // SAFETY: asked for rows of existing tokens only.
            Some(t) => unsafe { self.x.as_ptr().add((item * tokens + t) * width + first) },
            // SAFETY: a row of the state, of which this task alone has these columns.
            None => unsafe {
                let at = (item * past + r) * width + first;
                self.state.get().add(at).cast_const()
            },
        };
        for t in 0..tokens {
            let at = (item * tokens + t) * width + first;
            for i in (0..n).step_by(V::LANES) {
                let left = n - i;
                let load = |from: *const f32| {
                    // SAFETY: `left` channels of a row from `i` on, and a register is cut there.
                    unsafe {
                        match left < V::LANES {
                            true => V::load_partial(from.add(i), left),
                            false => V::load(from.add(i)),
                        }
                    }
                };
                let mut sum = V::splat(0.0);
                for j in 0..kernel {
                    sum = load(row(t + j)).fma(load(taps[j * n..].as_ptr()), sum);
                }
                let y = sum.div(V::splat(0.0).sub(sum).exp().add(V::splat(1.0)));
                // SAFETY: as for `load`.
                unsafe {
                    let to = self.out.get().add(at + i);
                    match left < V::LANES {
                        true => y.store_partial(to, left),
                        false => y.store(to),
                    }
                }
            }
        }
        if tokens == 0 {
            return;
        }
        for r in 0..past {
            let from = row(r + tokens);
            // SAFETY: rows of `n` columns that do not overlap, of which this task alone has those of the state. A row
            // is written after the older ones, which were read by then.
            unsafe {
                let to = self.state.get().add((item * past + r) * width + first);
                std::ptr::copy_nonoverlapping(from, to, n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{GLU, Rng, assert_close, isas};

    fn oracle(x: &[f32], taps: &[f32], shape: &ShortConvShape, state: &[f32]) -> Vec<f64> {
        let &ShortConvShape {
            batch,
            tokens,
            channels,
            kernel,
        } = shape;
        let past = kernel - 1;
        let mut out = Vec::new();
        for b in 0..batch {
            for t in 0..tokens {
                for c in 0..channels {
                    let sum: f64 = (0..kernel)
                        .map(|j| {
                            let value = match (t + j).checked_sub(past) {
                                Some(t) => x[(b * tokens + t) * channels + c],
                                None => state[(b * past + t + j) * channels + c],
                            };
                            f64::from(value) * f64::from(taps[c * kernel + j])
                        })
                        .sum();
                    out.push(sum / (1.0 + (-sum).exp()));
                }
            }
        }
        out
    }

    #[test]
    fn matches_the_definition_and_keeps_the_last_inputs() {
        let mut rng = Rng::new(3);
        for isa in isas() {
            for channels in [1, 16, 63, 64, 200, 5000] {
                for (batch, tokens, kernel) in [
                    (1, 1, 4),
                    (2, 2, 4),
                    (1, 3, 4),
                    (1, 40, 4),
                    (2, 5, 3),
                    (1, 3, 1),
                    (1, 0, 4),
                ] {
                    let shape = ShortConvShape {
                        batch,
                        tokens,
                        channels,
                        kernel,
                    };
                    let x = rng.normal(batch * tokens * channels);
                    // Of one sign, so that sums do not cancel and errors stay relative.
                    let x: Vec<f32> = x.iter().map(|v| v.abs() + 0.1).collect();
                    let taps: Vec<f32> = rng
                        .normal(channels * kernel)
                        .iter()
                        .map(|v| v.abs())
                        .collect();
                    let before: Vec<f32> = rng
                        .normal(batch * (kernel - 1) * channels)
                        .iter()
                        .map(|v| v.abs())
                        .collect();
                    let mut state = before.clone();
                    let mut out = vec![f32::NAN; x.len()];
                    short_conv_with(isa, &x, &taps, &shape, &mut state, &mut out).unwrap();
                    let what = format!("{isa:?} {shape:?}");
                    assert_close(&out, &oracle(&x, &taps, &shape, &before), GLU, &what);
                    let item = |values: &[f32], b: usize| {
                        let len = values.len() / batch;
                        values[b * len..][..len].to_vec()
                    };
                    for b in 0..batch {
                        let all = [item(&before, b), item(&x, b)].concat();
                        let kept = &all[all.len() - (kernel - 1) * channels..];
                        assert_eq!(item(&state, b), kept, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        let shape = ShortConvShape {
            batch: 1,
            tokens: 1,
            channels: 2,
            kernel: 4,
        };
        let mut out = [0.0; 2];
        let state = short_conv(&[0.0; 2], &[0.0; 8], &shape, &mut [0.0; 4], &mut out);
        assert!(matches!(
            state,
            Err(ShapeError::Length { what: "state", .. })
        ));
        let none = ShortConvShape { kernel: 0, ..shape };
        let taps = short_conv(&[0.0; 2], &[], &none, &mut [], &mut out);
        assert_eq!(taps, Err(ShapeError::Zero { what: "kernel" }));
    }
}
