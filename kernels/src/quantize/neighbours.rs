//! Where to look in a codebook for a point that is not in it.
//!
//! Values are first rounded one by one. Where the point they make is not a member of the book, the nearest members are
//! tried: all of those at the smallest distances from it, nearer ones first and, at one distance, in the book's order.
//! That order decides between candidates of equal error.

use crate::blocks::codebook;
use std::sync::OnceLock;

/// A codebook with the members to try for every point: `DIMS` coordinates of `0..LEVELS` each.
pub(crate) struct SearchBook<const DIMS: usize, const LEVELS: usize> {
    points: &'static [u16],
    /// By packed coordinates.
    places: Vec<Place>,
    /// Candidates of all points outside the book.
    candidates: Vec<u16>,
}

/// What is known of one point. Members have no candidates, and `start` is their index.
#[derive(Clone, Copy, Default)]
struct Place {
    start: u32,
    len: u32,
}

/// What [`SearchBook::find`] finds.
pub(crate) enum Found<'a> {
    /// The point is in the book, at this index.
    Member(u16),
    /// The indices to try; at least one.
    Candidates(&'a [u16]),
}

impl<const DIMS: usize, const LEVELS: usize> SearchBook<DIMS, LEVELS> {
    const BITS: usize = if LEVELS > 4 { 3 } else { 2 };

    /// Prepares the search of a book with members at up to `distances` different distances as candidates.
    fn new(points: &'static [u16], distances: usize) -> Self {
        let mut places = vec![Place::default(); 1 << (DIMS * Self::BITS)];
        for (index, point) in points.iter().enumerate() {
            places[usize::from(*point)].start = index as u32;
        }
        let mut candidates = Vec::new();
        let mut distance_of = vec![0u8; points.len()];
        let mut at = [0u8; DIMS];
        loop {
            let packed = Self::pack(&at);
            if points.binary_search(&packed).is_err() {
                for (distance, point) in distance_of.iter_mut().zip(points) {
                    *distance = Self::squared_distance(&at, *point);
                }
                let start = candidates.len();
                let mut nearest = 0;
                for _ in 0..distances {
                    let further = distance_of.iter().copied().filter(|&d| d > nearest).min();
                    // Zero is not among the distances: the point would be a member.
                    let Some(distance) = further else { break };
                    nearest = distance;
                    candidates.extend(
                        (0..points.len() as u16)
                            .filter(|&index| distance_of[usize::from(index)] == nearest),
                    );
                }
                places[usize::from(packed)] = Place {
                    start: start as u32,
                    len: (candidates.len() - start) as u32,
                };
            }
            // The next point, as a number of `DIMS` digits.
            let Some(digit) = at.iter().position(|&c| usize::from(c) + 1 < LEVELS) else {
                break;
            };
            at[digit] += 1;
            at[..digit].fill(0);
        }
        Self {
            points,
            places,
            candidates,
        }
    }

    fn squared_distance(at: &[u8; DIMS], point: u16) -> u8 {
        let mut sum = 0;
        for (i, &c) in at.iter().enumerate() {
            let other = (point >> (i * Self::BITS)) as u8 & ((1 << Self::BITS) - 1);
            sum += c.abs_diff(other).pow(2);
        }
        sum
    }

    /// Coordinates as the book's points are packed.
    #[inline(always)]
    pub(crate) fn pack(coordinates: &[u8; DIMS]) -> u16 {
        let mut packed = 0;
        for (i, &c) in coordinates.iter().enumerate() {
            packed |= u16::from(c) << (i * Self::BITS);
        }
        packed
    }

    /// The coordinates of member `index`.
    #[inline(always)]
    pub(crate) fn coordinates(&self, index: u16) -> [u8; DIMS] {
        let packed = self.points[usize::from(index)];
        std::array::from_fn(|i| (packed >> (i * Self::BITS)) as u8 & ((1 << Self::BITS) - 1))
    }

    /// Looks for the point of these coordinates.
    #[inline(always)]
    pub(crate) fn find(&self, coordinates: &[u8; DIMS]) -> Found<'_> {
        let place = self.places[usize::from(Self::pack(coordinates))];
        let start = place.start as usize;
        match place.len as usize {
            0 => Found::Member(place.start as u16),
            len => Found::Candidates(&self.candidates[start..start + len]),
        }
    }

    /// The candidate of least error, where `errors[i][c]` is that of value `i` at coordinate `c`, and the first of
    /// equals. Errors that are not numbers lose.
    #[inline(always)]
    pub(crate) fn best(&self, candidates: &[u16], errors: &[[f32; LEVELS]; DIMS]) -> u16 {
        let (mut best, mut least) = (candidates[0], f32::MAX);
        for &index in candidates {
            let mut error = 0.0;
            for (&c, errors) in self.coordinates(index).iter().zip(errors) {
                error += errors[usize::from(c)];
            }
            if error < least {
                (best, least) = (index, error);
            }
        }
        best
    }
}

macro_rules! search_books {
    ($($name:ident: $book:ident, $dims:literal, $levels:literal, $distances:literal;)*) => {
        $(
            /// The codebook of that name, prepared at its first use.
            pub(crate) fn $name() -> &'static SearchBook<$dims, $levels> {
                static BOOK: OnceLock<SearchBook<$dims, $levels>> = OnceLock::new();
                BOOK.get_or_init(|| SearchBook::new(&codebook::$book.points, $distances))
            }
        )*
    };
}

search_books! {
    iq1: IQ1, 8, 3, 3;
    iq2_xxs: IQ2_XXS, 8, 3, 2;
    iq2_xs: IQ2_XS, 8, 3, 2;
    iq2_s: IQ2_S, 8, 3, 1;
    iq3_xxs: IQ3_XXS, 4, 8, 2;
    iq3_s: IQ3_S, 4, 8, 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every point of a book and around it against sorting by distance and index.
    fn check<const DIMS: usize, const LEVELS: usize>(
        book: &SearchBook<DIMS, LEVELS>,
        distances: usize,
    ) {
        let members: Vec<[u8; DIMS]> = (0..book.points.len() as u16)
            .map(|index| book.coordinates(index))
            .collect();
        for n in (0..LEVELS.pow(DIMS as u32)).step_by(7) {
            let at: [u8; DIMS] = std::array::from_fn(|i| (n / LEVELS.pow(i as u32) % LEVELS) as u8);
            let mut sorted: Vec<(u32, u16)> = (0u16..)
                .zip(&members)
                .map(|(index, member)| {
                    let squares = at.iter().zip(member).map(|(a, b)| a.abs_diff(*b).pow(2));
                    (squares.map(u32::from).sum(), index)
                })
                .collect();
            sorted.sort();
            match book.find(&at) {
                Found::Member(index) => assert_eq!(sorted[0], (0, index)),
                Found::Candidates(candidates) => {
                    let mut kept: Vec<u32> = sorted.iter().map(|(distance, _)| *distance).collect();
                    kept.dedup();
                    kept.truncate(distances);
                    assert!(kept[0] > 0);
                    sorted.retain(|(distance, _)| kept.contains(distance));
                    assert!(sorted.iter().map(|(_, index)| index).eq(candidates));
                }
            }
        }
    }

    #[test]
    fn candidates_are_the_nearest_members_in_order() {
        check(iq1(), 3);
        check(iq2_s(), 1);
        check(iq2_xs(), 2);
        check(iq2_xxs(), 2);
        check(iq3_xxs(), 2);
        check(iq3_s(), 3);
    }

    #[test]
    fn the_first_of_equal_errors_is_the_best() {
        let book = iq2_s();
        assert_eq!(book.best(&[7, 3, 9], &[[1.0; 3]; 8]), 7);
        assert_eq!(book.best(&[7, 3, 9], &[[f32::NAN; 3]; 8]), 7);
    }
}
