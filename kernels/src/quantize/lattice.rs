//! The search of `IQ2` and `IQ3`: a scale for a sub-block, and for each of its groups a point of a codebook.
//!
//! Signs are taken off first. Then scales are tried around the one that maps the largest magnitude to the last level:
//! at each, values are rounded to the nearest levels, groups that miss the codebook to the candidate of least error,
//! and the points are judged by how well they correlate with the values, which also gives their best scale. With that
//! scale groups are rounded once more. Errors are weighted by importance and magnitude. At last the scales of all
//! sub-blocks are rounded to 4 bits.

use super::neighbours::{Found, SearchBook};
use super::positive;
use super::rounding::nearest;
use super::weights::{mean_square, weigh};

/// How a type searches, for points of `DIMS` coordinates in `0..LEVELS`; coordinate `c` means `2 c + 1`.
pub(crate) struct LatticeSearch<const DIMS: usize, const LEVELS: usize> {
    /// The codebook.
    pub(crate) book: fn() -> &'static SearchBook<DIMS, LEVELS>,
    /// Steps tried in each direction.
    pub(crate) tries: i32,
    /// One step, in levels at the largest magnitude.
    pub(crate) step: f32,
    /// What the tries are centered on.
    pub(crate) start: Start,
    /// Groups to round again with the scale that was found.
    pub(crate) refit: Refit,
    /// Whether eight signs are stored in seven bits.
    pub(crate) even_signs: bool,
    /// Sub-blocks with no magnitude up to this have the scale zero.
    pub(crate) least: f32,
    /// How much of the block's mean square is added to every square in the weights.
    pub(crate) variance: f32,
    /// The weight of a value where no importance is given, from that share of the mean square and its own square; `None`
    /// where one must be given.
    pub(crate) unweighted: Option<fn(f32, f32) -> f32>,
}

/// What is mapped to the last level at first.
pub(crate) enum Start {
    /// The largest magnitude.
    Largest,
    /// The last of `LEVELS` even steps of the scale that rounds magnitudes best to such steps.
    EvenSteps,
}

/// Groups to round again with the scale that was found.
pub(crate) enum Refit {
    /// All.
    Always,
    /// Those that missed the codebook.
    Missed,
    /// All, if any missed the codebook.
    AllIfMissed,
}

/// What a sub-block became.
#[derive(Clone, Copy, Default)]
pub(crate) struct SubBlock {
    /// Not negative.
    scale: f32,
    /// Indices into the codebook.
    pub(crate) points: [u16; 8],
    /// Bit `i` says that value `i` is negative.
    pub(crate) signs: u32,
}

impl SubBlock {
    /// Signs of eight values, from value `8 i`.
    pub(crate) fn signs_of(&self, i: usize) -> u8 {
        (self.signs >> (8 * i)) as u8
    }
}

impl<const DIMS: usize, const LEVELS: usize> LatticeSearch<DIMS, LEVELS> {
    /// The last level.
    const LAST: f32 = (2 * LEVELS - 1) as f32;

    /// Searches all sub-blocks of a block, `SUBS` of `SUB_LEN` values.
    ///
    /// # Panics
    /// If importance is required and absent.
    #[inline(always)]
    pub(crate) fn sub_blocks<const SUBS: usize, const SUB_LEN: usize>(
        &self,
        x: &[f32],
        importance: Option<&[f32]>,
    ) -> [SubBlock; SUBS] {
        assert_eq!(x.len(), SUBS * SUB_LEN);
        let book = (self.book)();
        let variance = self.variance * mean_square(x);
        let mut subs = [SubBlock::default(); SUBS];
        for (i, (sub, x)) in subs.iter_mut().zip(x.as_chunks::<SUB_LEN>().0).enumerate() {
            let weights = match importance {
                Some(all) => weigh(&all[i * SUB_LEN..], x, variance),
                None => {
                    let weight = self.unweighted.expect("importance, which is required");
                    x.map(|x| weight(variance, x * x))
                }
            };
            *sub = self.sub_block(book, x, &weights);
        }
        subs
    }

    #[inline(always)]
    fn sub_block<const SUB_LEN: usize>(
        &self,
        book: &SearchBook<DIMS, LEVELS>,
        x: &[f32; SUB_LEN],
        weights: &[f32; SUB_LEN],
    ) -> SubBlock {
        let (magnitudes, mut signs) = self.split_signs(x, weights);
        let max = magnitudes[1..]
            .iter()
            .fold(magnitudes[0], |max, &x| if max > x { max } else { x });
        if max < self.least {
            return SubBlock::default();
        }
        let (scale, reach) = match self.start {
            Start::Largest => (max / Self::LAST, max),
            Start::EvenSteps => {
                let steps = LEVELS as i32 + 1;
                let scale = positive::search(&magnitudes, weights, steps, &mut [0; SUB_LEN]);
                (scale, scale * LEVELS as f32)
            }
        };
        if reach <= 0.0 {
            return SubBlock::default();
        }
        let (mut scale, points) = self.fit(book, &magnitudes, weights, scale, reach);
        if scale < 0.0 {
            (scale, signs) = (-scale, !signs);
        }
        SubBlock {
            scale,
            points,
            signs,
        }
    }

    /// Magnitudes and signs. Where signs must be even in eight, the value that weighs least is given the wrong one,
    /// and its magnitude is negative.
    #[inline(always)]
    fn split_signs<const SUB_LEN: usize>(
        &self,
        x: &[f32; SUB_LEN],
        weights: &[f32; SUB_LEN],
    ) -> ([f32; SUB_LEN], u32) {
        let mut magnitudes = *x;
        let mut signs = 0u32;
        for (i, x) in magnitudes.iter_mut().enumerate() {
            if *x < 0.0 {
                *x = -*x;
                signs |= 1 << i;
            }
        }
        if self.even_signs {
            for first in (0..SUB_LEN).step_by(8) {
                if (signs >> first & 0xff).count_ones() % 2 == 1 {
                    let cost = |i: usize| weights[i] * x[i] * x[i];
                    let mut flipped = first;
                    for i in first + 1..first + 8 {
                        if cost(i) < cost(flipped) {
                            flipped = i;
                        }
                    }
                    magnitudes[flipped] = -magnitudes[flipped];
                    signs ^= 1 << flipped;
                }
            }
        }
        (magnitudes, signs)
    }

    /// Scale and points of a sub-block whose largest magnitude is around `reach`.
    #[inline(always)]
    fn fit<const SUB_LEN: usize>(
        &self,
        book: &SearchBook<DIMS, LEVELS>,
        x: &[f32; SUB_LEN],
        weights: &[f32; SUB_LEN],
        mut scale: f32,
        reach: f32,
    ) -> (f32, [u16; 8]) {
        let groups = SUB_LEN / DIMS;
        let roots = weights.map(f32::sqrt);
        let weighted: [f32; SUB_LEN] = std::array::from_fn(|i| weights[i] * x[i]);
        let group = |g: usize| -> (&[f32; DIMS], &[f32; DIMS]) {
            (&x.as_chunks().0[g], &roots.as_chunks().0[g])
        };
        // Sums of `w x q` and `w q q`, which give the best scale for the points and how good it is.
        let sums = |points: &[u16; 8]| {
            let (mut qx, mut q2) = (0.0, 0.0);
            let values = weighted.as_chunks::<DIMS>().0.iter();
            let all = values.zip(weights.as_chunks::<DIMS>().0).zip(points);
            for ((weighted, weights), &point) in all {
                let coordinates = book.coordinates(point);
                for i in 0..DIMS {
                    let q = f32::from(2 * coordinates[i] + 1);
                    qx += weighted[i] * q;
                    q2 += weights[i] * q * q;
                }
            }
            (qx, q2)
        };

        let mut points = [0; 8];
        let mut missed = match self.refit {
            Refit::AllIfMissed => u8::MAX,
            _ => 0,
        };
        let mut best = 0.0;
        for step in -self.tries..=self.tries {
            let inverse = (Self::LAST + step as f32 * self.step) / reach;
            let tried_scale = 1.0 / inverse;
            let (mut tried, mut tried_missed) = ([0; 8], 0);
            for (g, point) in tried[..groups].iter_mut().enumerate() {
                let (x, roots) = group(g);
                let (index, member) = round(book, x, roots, inverse, tried_scale);
                *point = index;
                tried_missed |= u8::from(!member) << g;
            }
            let (qx, q2) = sums(&tried);
            if q2 > 0.0 && qx * qx > best * q2 {
                scale = qx / q2;
                best = scale * qx;
                (points, missed) = (tried, tried_missed);
            }
        }
        let again = match self.refit {
            Refit::Always => u8::MAX,
            Refit::Missed => missed,
            Refit::AllIfMissed if missed != 0 => u8::MAX,
            Refit::AllIfMissed => 0,
        };
        if again != 0 && scale > 0.0 {
            let inverse = 1.0 / scale;
            for (g, point) in points[..groups].iter_mut().enumerate() {
                if again >> g & 1 == 1 {
                    let (x, roots) = group(g);
                    *point = round(book, x, roots, inverse, scale).0;
                }
            }
            let (qx, q2) = sums(&points);
            if q2 > 0.0 {
                scale = qx / q2;
            }
        }
        (scale, points)
    }
}

/// The codebook's point for a group at a scale, and whether single rounding led to it.
#[inline(always)]
fn round<const DIMS: usize, const LEVELS: usize>(
    book: &SearchBook<DIMS, LEVELS>,
    x: &[f32; DIMS],
    roots: &[f32; DIMS],
    inverse: f32,
    scale: f32,
) -> (u16, bool) {
    let coordinates = x.map(|x| {
        let c = nearest(0.5 * (inverse * x - 1.0));
        c.clamp(0, LEVELS as i32 - 1) as u8
    });
    match book.find(&coordinates) {
        Found::Member(index) => (index, true),
        Found::Candidates(candidates) => {
            let errors = std::array::from_fn(|i| {
                std::array::from_fn(|c| {
                    let difference = scale * (2 * c + 1) as f32 - x[i];
                    roots[i] * difference * difference
                })
            });
            (book.best(candidates, &errors), false)
        }
    }
}

/// The common scale `d` and the 4-bit steps `s` of the sub-blocks, each scale being about `d (2 s + 1)`; the largest is
/// exactly the last step. `None` if all are zero.
pub(crate) fn scale_steps<const SUBS: usize>(subs: &[SubBlock; SUBS]) -> Option<(f32, [u8; SUBS])> {
    let max = subs.iter().fold(
        0.0,
        |max, sub| if max > sub.scale { max } else { sub.scale },
    );
    if max == 0.0 {
        return None;
    }
    let d = max / 31.0;
    let inverse = 1.0 / d;
    Some((d, subs.map(|sub| step(inverse, sub.scale, 15))))
}

/// The step of a scale, given one over the common scale.
pub(crate) fn step(inverse: f32, scale: f32, last: i32) -> u8 {
    nearest(0.5 * (inverse * scale - 1.0)).clamp(0, last) as u8
}
