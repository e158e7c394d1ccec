//! The search of `IQ1`: values become -1, 0 or 1, all shifted up or down by an eighth, times a scale.
//!
//! In rising order of the values, the best assignment is a run of -1, a run of 0 and a run of 1, so two cuts describe
//! it. All pairs of cuts are tried with all shifts; running sums make each cheap. Then groups of eight are moved into
//! the codebook, which may spoil the assignment, and the scale is fitted to what they became.

use super::neighbours::{self, Found, SearchBook};
use super::rounding::largest_magnitude;

/// What -1, 0 and 1 become.
pub(crate) const UP: [f32; 3] = [-0.875, 0.125, 1.125];
/// The same with the shift down.
pub(crate) const DOWN: [f32; 3] = [-1.125, -0.125, 0.875];

/// What 0, 1 and 2 of the codebook stand for.
#[inline(always)]
pub(crate) fn levels(down: bool) -> &'static [f32; 3] {
    if down { &DOWN } else { &UP }
}

/// What a sub-block of up to four groups became.
#[derive(Clone, Copy, Default)]
pub(crate) struct SubBlock {
    /// Not negative.
    pub(crate) scale: f32,
    /// Indices into the codebook.
    pub(crate) points: [u16; 4],
    /// Whether the shift is down, for each half of the sub-block.
    pub(crate) down: [bool; 2],
}

/// The largest scale.
pub(crate) fn largest_scale(subs: &[SubBlock]) -> f32 {
    let scales = subs.iter().map(|sub| sub.scale);
    scales.fold(0.0, |max, scale| if max > scale { max } else { scale })
}

/// A choice of two cuts and shifts.
struct Cuts {
    /// Where zeros begin and end in rising order; `None` as long as nothing is better than nothing.
    at: Option<(usize, usize)>,
    down: [bool; 2],
    scale: f32,
    score: f32,
}

impl Cuts {
    /// Takes the candidate if it is better: `qx` is its sum of `w q x`, `q2` that of `w q q`.
    #[inline(always)]
    fn offer(&mut self, qx: f32, q2: f32, at: (usize, usize), down: [bool; 2]) {
        if q2 > 0.0 && qx * qx > self.score * q2 {
            self.scale = qx / q2;
            self.score = self.scale * qx;
            self.at = Some(at);
            self.down = down;
        }
    }
}

/// Indices of the values in rising order, equal ones in order.
#[inline(always)]
fn rising<const LEN: usize>(x: &[f32; LEN]) -> [u8; LEN] {
    // Bits of a float rise with its magnitude; turned over for negative ones. The index makes every key unique.
    let mut keys: [u64; LEN] = std::array::from_fn(|i| {
        let bits = (x[i] + 0.0).to_bits();
        let rising = if bits >> 31 == 1 {
            !bits
        } else {
            bits | 1 << 31
        };
        u64::from(rising) << 8 | i as u64
    });
    keys.sort_unstable();
    keys.map(|key| key as u8)
}

/// Searches a sub-block with one shift. `None` if no magnitude is above `least`.
#[inline(always)]
pub(crate) fn fit_one_shift(x: &[f32; 32], weights: &[f32; 32], least: f32) -> Option<SubBlock> {
    const LEN: usize = 32;
    let max = largest_magnitude(x);
    if max < least {
        return None;
    }
    let order = rising(x);
    // Sums over the first `n` in rising order.
    let (mut sum_x, mut sum_w) = ([0.0; LEN + 1], [0.0; LEN + 1]);
    for (n, i) in order.map(usize::from).into_iter().enumerate() {
        sum_x[n + 1] = sum_x[n] + weights[i] * x[i];
        sum_w[n + 1] = sum_w[n] + weights[i];
    }
    let mut best = Cuts {
        at: None,
        down: [false; 2],
        scale: max,
        score: -f32::MAX,
    };
    let (mut qx, mut q2) = ([[0.0; LEN + 1]; 2], [[0.0; LEN + 1]; 2]);
    for first in 0..=LEN {
        for (down, [a, b, c]) in [UP, DOWN].into_iter().enumerate() {
            for second in first..=LEN {
                qx[down][second] = sum_x[first] * a
                    + (sum_x[second] - sum_x[first]) * b
                    + (sum_x[LEN] - sum_x[second]) * c;
                q2[down][second] = sum_w[first] * a * a
                    + (sum_w[second] - sum_w[first]) * b * b
                    + (sum_w[LEN] - sum_w[second]) * c * c;
            }
        }
        for second in first..=LEN {
            for down in [false, true] {
                let side = usize::from(down);
                best.offer(
                    qx[side][second],
                    q2[side][second],
                    (first, second),
                    [down; 2],
                );
            }
        }
    }
    settle(x, weights, &order, best)
}

/// Searches a sub-block whose halves have a shift each. `None` if no magnitude is above `least`.
#[inline(always)]
pub(crate) fn fit_two_shifts(x: &[f32; 16], weights: &[f32; 16], least: f32) -> Option<SubBlock> {
    const LEN: usize = 16;
    let max = largest_magnitude(x);
    if max < least {
        return None;
    }
    let order = rising(x);
    // Sums over those of the first `n` in rising order that are in each half of the sub-block.
    let (mut sum_x, mut sum_w) = ([[0.0; LEN + 1]; 2], [[0.0; LEN + 1]; 2]);
    for (n, i) in order.map(usize::from).into_iter().enumerate() {
        for half in 0..2 {
            let here = half == i / (LEN / 2);
            sum_x[half][n + 1] = sum_x[half][n] + if here { weights[i] * x[i] } else { 0.0 };
            sum_w[half][n + 1] = sum_w[half][n] + if here { weights[i] } else { 0.0 };
        }
    }
    let mut best = Cuts {
        at: None,
        down: [false; 2],
        scale: max,
        score: -f32::MAX,
    };
    // By half and shift. Levels are one apart, so what a cut at `n` takes from the sum is the sum up to `n`.
    let (mut qx, mut q2) = ([[[0.0; LEN + 1]; 2]; 2], [[[0.0; LEN + 1]; 2]; 2]);
    for first in 0..=LEN {
        for half in 0..2 {
            let (x, w) = (&sum_x[half], &sum_w[half]);
            for (down, [a, b, c]) in [UP, DOWN].into_iter().enumerate() {
                for second in first..=LEN {
                    qx[half][down][second] = x[LEN] * c - (x[first] + x[second]);
                    q2[half][down][second] =
                        w[LEN] * c * c + w[first] * (a * a - b * b) + w[second] * (b * b - c * c);
                }
            }
        }
        for second in first..=LEN {
            for down in [[false, false], [false, true], [true, false], [true, true]] {
                let [a, b] = down.map(usize::from);
                let qx = qx[0][a][second] + qx[1][b][second];
                let q2 = q2[0][a][second] + q2[1][b][second];
                best.offer(qx, q2, (first, second), down);
            }
        }
    }
    settle(x, weights, &order, best)
}

/// Moves the groups of an assignment into the codebook and fits the scale to them.
#[inline(always)]
fn settle<const LEN: usize>(
    x: &[f32; LEN],
    weights: &[f32; LEN],
    order: &[u8; LEN],
    cuts: Cuts,
) -> Option<SubBlock> {
    let (first, second) = cuts.at?;
    let (mut scale, mut down) = (cuts.scale, cuts.down);
    let mut codes = [0u8; LEN];
    for (n, i) in order.iter().enumerate() {
        codes[usize::from(*i)] = u8::from(n >= first) + u8::from(n >= second);
    }
    if scale < 0.0 {
        scale = -scale;
        down = down.map(|down| !down);
        codes = codes.map(|code| 2 - code);
    }
    let book = neighbours::iq1();
    let mut points = [0; 4];
    let mut moved = false;
    let groups = codes.as_chunks::<8>().0.iter();
    let groups = groups
        .zip(x.as_chunks::<8>().0)
        .zip(weights.as_chunks::<8>().0);
    for (g, ((codes, x), weights)) in groups.clone().enumerate() {
        points[g] = match book.find(codes) {
            Found::Member(index) => index,
            Found::Candidates(candidates) => {
                moved = true;
                let levels = levels(down[g * 16 / LEN]);
                let errors = std::array::from_fn(|i| {
                    levels.map(|q| {
                        let difference = scale * q - x[i];
                        weights[i] * difference * difference
                    })
                });
                book.best(candidates, &errors)
            }
        };
    }
    if moved {
        let (mut qx, mut q2) = (0.0, 0.0);
        for (g, ((_, x), weights)) in groups.enumerate() {
            let levels = levels(down[g * 16 / LEN]);
            add_products(book, points[g], levels, x, weights, &mut qx, &mut q2);
        }
        if qx > 0.0 && q2 > 0.0 {
            scale = qx / q2;
        }
    }
    Some(SubBlock {
        scale,
        points,
        down,
    })
}

/// Adds the products `w q x` and `w q q` of a group to their sums.
#[inline(always)]
pub(crate) fn add_products(
    book: &SearchBook<8, 3>,
    point: u16,
    levels: &[f32; 3],
    x: &[f32; 8],
    weights: &[f32; 8],
    qx: &mut f32,
    q2: &mut f32,
) {
    let coordinates = book.coordinates(point);
    for i in 0..8 {
        let q = levels[usize::from(coordinates[i])];
        *qx += weights[i] * q * x[i];
        *q2 += weights[i] * q * q;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_a_stable_sort() {
        let x = [0.0, -1.0, 2.0, -0.0, -1.0, 1e-40, -3e38, 2.0];
        assert_eq!(rising(&x), [6, 1, 4, 0, 3, 5, 2, 7]);
    }

    #[test]
    fn shifted_values_of_a_point_are_found() {
        let book = neighbours::iq1();
        let x: [f32; 16] = std::array::from_fn(|i| {
            let coordinates = book.coordinates(if i < 8 { 900 } else { 901 });
            3.0 * levels(i >= 8)[usize::from(coordinates[i % 8])]
        });
        let sub = fit_two_shifts(&x, &[1.0; 16], 1e-7).unwrap();
        assert_eq!(sub.points, [900, 901, 0, 0]);
        assert_eq!(sub.down, [false, true]);
        assert!((sub.scale - 3.0).abs() < 1e-5);
        assert!(fit_one_shift(&[0.0; 32], &[1.0; 32], 1e-12).is_none());
    }
}
