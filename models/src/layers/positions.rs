//! Where tokens and image patches stand.

/// Time, row and column of each token of a forward pass, for rotary embeddings. The three are equal for text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    thw: Vec<[u32; 3]>,
}

impl Positions {
    /// `len` text tokens from `start` on.
    pub fn run(start: usize, len: usize) -> Self {
        Self {
            thw: (start..start + len).map(|p| [p as u32; 3]).collect(),
        }
    }

    /// Positions given one by one.
    pub fn from_thw(thw: Vec<[u32; 3]>) -> Self {
        Self { thw }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.thw.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.thw.is_empty()
    }

    /// Time, row and column, token by token.
    pub fn thw(&self) -> &[[u32; 3]] {
        &self.thw
    }

    /// Adds `len` text tokens behind everything so far, at least at `start`.
    pub fn push_text(&mut self, start: usize, len: usize) {
        let first = self.next().max(start);
        self.thw.extend(Self::run(first, len).thw);
    }

    /// Adds the tokens of an image of `rows` by `columns` behind everything so far, at least at `start`: they share the
    /// time, and count rows and columns from it.
    pub fn push_grid(&mut self, start: usize, rows: usize, columns: usize) {
        let first = self.next().max(start) as u32;
        let cells = (0..rows as u32).flat_map(|y| (0..columns as u32).map(move |x| (y, x)));
        self.thw
            .extend(cells.map(|(y, x)| [first, first + y, first + x]));
    }

    /// The text position that follows.
    pub fn next(&self) -> usize {
        let largest = self.thw.iter().flatten().max();
        largest.map_or(0, |&p| p as usize + 1)
    }

    /// Those from `from` up to `to`.
    pub fn slice(&self, from: usize, to: usize) -> Self {
        Self {
            thw: self.thw[from..to].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_advances_text_by_its_longer_side() {
        let mut positions = Positions::default();
        positions.push_text(5, 2);
        positions.push_grid(5, 2, 3);
        positions.push_text(5, 1);
        assert_eq!(
            positions.thw(),
            [
                [5, 5, 5],
                [6, 6, 6],
                [7, 7, 7],
                [7, 7, 8],
                [7, 7, 9],
                [7, 8, 7],
                [7, 8, 8],
                [7, 8, 9],
                [10, 10, 10]
            ]
        );
        assert_eq!(positions.next(), 11);
        assert_eq!(positions.slice(1, 3).thw(), [[6, 6, 6], [7, 7, 7]]);
    }
}
