//! The codebooks of the `IQ` types: short lists of points that groups of four or eight values are rounded to.
//!
//! A point has four coordinates of 0..8 or eight of 0..3, and a book is a subset of all such points, in rising order
//! with the last coordinate as the most significant digit. So the subset alone says everything: each book is written
//! down as a bitmap over the points of its [`Cube`], and unfolded at compile time into
//!
//! - `POINTS`: coordinates of 2 or 3 bits, the first in the lowest bits, one `u16` per point; the quantizers search these;
//! - `GRID`: what the coordinates stand for, one byte each, the first in the lowest; the decoders look these up.
//!
//! Which points are members is part of ggml's file format: it kept those that weights of real models fall on most.

mod iq1;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4;
mod signs;

pub(crate) use iq1::IQ1;
pub(crate) use iq2_s::IQ2_S;
pub(crate) use iq2_xs::IQ2_XS;
pub(crate) use iq2_xxs::IQ2_XXS;
pub(crate) use iq3_s::IQ3_S;
pub(crate) use iq3_xxs::IQ3_XXS;
pub(crate) use iq4::IQ4;
pub(crate) use signs::{apply_signs, even_parity};

use crate::GgmlType;

/// A codebook of `N` points whose grid entries are `W` (`u64` for eight bytes, `u32` for four).
pub(crate) struct Codebook<W: 'static, const N: usize> {
    /// Packed coordinates in rising order.
    pub(crate) points: [u16; N],
    /// The bytes the coordinates stand for.
    pub(crate) grid: [W; N],
}

/// The points a bitmap has one bit for each of.
struct Cube {
    /// Two (eight coordinates of 0..3) or three (four coordinates of 0..8).
    bits_per_coordinate: u32,
    /// Only points whose coordinates have an even sum: those of the lattices D4 and E8.
    even_sum: bool,
}

impl Cube {
    /// Whether the packed coordinates are a point of the cube.
    const fn contains(&self, packed: u16) -> bool {
        let (lowest, valid) = match self.bits_per_coordinate {
            2 => (0x5555, packed & packed >> 1 & 0x5555 == 0),
            _ => (0o1111, packed <= 0o7777),
        };
        valid && !(self.even_sum && (packed & lowest).count_ones() % 2 == 1)
    }

    /// The points whose bit is set; bit `i % 64` of word `i / 64` is point `i` of the cube.
    const fn members<const N: usize>(&self, bitmap: &[u64]) -> [u16; N] {
        let mut points = [0; N];
        let (mut found, mut index, mut packed) = (0, 0, 0);
        while found < N {
            if self.contains(packed) {
                if bitmap[index / 64] >> (index % 64) & 1 == 1 {
                    points[found] = packed;
                    found += 1;
                }
                index += 1;
            }
            packed += 1;
        }
        points
    }
}

/// Eight bytes per point: coordinate `c` stands for `levels[c]`.
const fn grid_of_eight<const N: usize>(points: &[u16; N], levels: [u8; 3]) -> [u64; N] {
    let mut grid = [0; N];
    let mut i = 0;
    while i < N * 8 {
        let level = levels[(points[i / 8] >> (i % 8 * 2) & 3) as usize];
        grid[i / 8] |= (level as u64) << (i % 8 * 8);
        i += 1;
    }
    grid
}

/// Four bytes per point: coordinate `c` stands for `levels[c]`.
const fn grid_of_four<const N: usize>(points: &[u16; N], levels: [u8; 8]) -> [u32; N] {
    let mut grid = [0; N];
    let mut i = 0;
    while i < N * 4 {
        let level = levels[(points[i / 4] >> (i % 4 * 3) & 7) as usize];
        grid[i / 4] |= (level as u32) << (i % 4 * 8);
        i += 1;
    }
    grid
}

/// The grid of a type as 32-bit words for a device buffer: one word for four values, low bytes first.
///
/// Bytes are magnitudes for `IQ2` and `IQ3`, `value + 128` for `IQ4`, and for `IQ1` 0, 1 and 2 for -1, 0 and 1.
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub(crate) fn grid_words(ty: GgmlType) -> Option<&'static [u32]> {
    // A `u64` is two words in this order on the little-endian hosts GGUF is read on.
    Some(match ty {
        GgmlType::IQ1S | GgmlType::IQ1M => bytemuck::cast_slice(&IQ1.grid),
        GgmlType::IQ2XXS => bytemuck::cast_slice(&IQ2_XXS.grid),
        GgmlType::IQ2XS => bytemuck::cast_slice(&IQ2_XS.grid),
        GgmlType::IQ2S => bytemuck::cast_slice(&IQ2_S.grid),
        GgmlType::IQ3XXS => &IQ3_XXS.grid,
        GgmlType::IQ3S => &IQ3_S.grid,
        GgmlType::IQ4NL | GgmlType::IQ4XS => &iq4::WORDS,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_rise_and_have_the_promised_parity() {
        fn check(points: &[u16], lowest: u16, even: bool) {
            assert!(points.is_sorted_by(|a, b| a < b));
            if even {
                assert!(
                    points
                        .iter()
                        .all(|p| (p & lowest).count_ones().is_multiple_of(2))
                );
            }
        }
        check(&IQ1.points, 0x5555, false);
        check(&IQ2_XXS.points, 0x5555, true);
        check(&IQ2_XS.points, 0x5555, true);
        check(&IQ2_S.points, 0x5555, true);
        check(&IQ3_XXS.points, 0o1111, true);
        check(&IQ3_S.points, 0o1111, false);
    }

    #[test]
    fn words_are_the_grid_in_order() {
        let words = grid_words(GgmlType::IQ2S).unwrap();
        assert_eq!(words.len(), 2 * IQ2_S.grid.len());
        for (pair, grid) in words.chunks_exact(2).zip(IQ2_S.grid) {
            assert_eq!(u64::from(pair[0]) | u64::from(pair[1]) << 32, grid);
        }
        let words = grid_words(GgmlType::IQ4NL).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes, IQ4.map(|value| (i32::from(value) + 128) as u8));
        assert!(grid_words(GgmlType::Q4_0).is_none());
    }
}
