//! Which rows of a stack of matrices meet which rows of `x`: how the matrix kernels serve plain products and mixtures of
//! experts alike.
//!
//! A kernel computes tiles of some rows of `W` by some rows of `x` (*slots*: for experts, a token has one per expert it
//! chose). All slots of a tile share their `W`. Plain products have one `W`; with experts either every slot is a tile of
//! its own, or slots were sorted by expert before (`experts.rs`).

use cubecl::{client::Client, prelude::*, server::Handle};

/// How slots are grouped into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// One `W` for all; slots in their order.
    All,
    /// A tile per slot; `route` holds the expert of each.
    Slots,
    /// `route` holds the tiles as triples of expert, first and last-but-one position, then the slot at each position.
    Sorted,
}

/// The buffers of a product `[n, rows]`, `n` slots.
#[derive(Clone)]
pub(crate) struct Product {
    pub x: Handle,
    /// Rows of `x`.
    pub x_rows: usize,
    pub n: usize,
    pub out: Handle,
    pub experts: Option<Experts>,
}

/// What a product with a stack of experts needs beyond.
#[derive(Clone)]
pub(crate) struct Experts {
    pub count: usize,
    /// Rows of one expert.
    pub rows: usize,
    /// Slots that share a row of `x`.
    pub slots_per_x: usize,
    pub route: Route,
    /// Expert ids, or the sorted tiles.
    pub table: Handle,
    /// Words of `table`.
    pub table_len: usize,
    /// Slots of a tile.
    pub tile_len: usize,
    /// Tiles, where they are sorted.
    pub tiles: usize,
}

impl Product {
    pub(crate) fn route(&self) -> Route {
        self.experts.as_ref().map_or(Route::All, |e| e.route)
    }

    /// Slots of a tile for a kernel that takes up to `most`.
    pub(crate) fn tile_len(&self, most: usize) -> usize {
        match &self.experts {
            None => self.n.next_power_of_two().min(most),
            Some(e) => e.tile_len,
        }
    }

    /// Tiles of up to `tokens` slots.
    pub(crate) fn tiles(&self, tokens: usize) -> usize {
        match &self.experts {
            None => self.n.div_ceil(tokens),
            Some(e) if e.route == Route::Slots => self.n,
            Some(e) => e.tiles,
        }
    }

    /// The rows a tile can have of `W`, of which the piece at hand has `piece_rows`.
    pub(crate) fn rows(&self, piece_rows: usize) -> usize {
        self.experts.as_ref().map_or(piece_rows, |e| e.rows)
    }

    /// The table, or what stands for it in a plain product.
    pub(crate) fn table(&self, spare: &super::codebook::Codebook) -> (Handle, usize) {
        match &self.experts {
            None => (spare.handle.clone(), spare.words),
            Some(e) => (e.table.clone(), e.table_len),
        }
    }

    /// The scalars of [`Layout`].
    pub(crate) fn layout(&self, piece: &super::Piece, all_rows: usize) -> LayoutLaunch {
        let (experts, rows, slots_per_x, tiles) = match &self.experts {
            None => (1, all_rows, 1, 0),
            Some(e) => (e.count, e.rows, e.slots_per_x, e.tiles),
        };
        LayoutLaunch::new(
            self.n,
            rows,
            piece.rows,
            piece.first_row,
            experts,
            slots_per_x,
            tiles,
            f32::NAN.to_bits(),
        )
    }
}

/// Sizes that place tiles in the operands.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Layout {
    /// Slots.
    pub n: usize,
    /// Values in a row of the output.
    pub out_rows: usize,
    /// Rows of `W` in this piece of it.
    pub piece_rows: usize,
    /// The row of the whole `W` that is the first here.
    pub first_row: usize,
    pub experts: usize,
    pub slots_per_x: usize,
    pub tiles: usize,
    // An argument because WGSL refuses a constant that is NaN.
    pub nan_bits: u32,
}

/// Slots of one expert.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Tile {
    pub expert: usize,
    /// The first position.
    pub start: usize,
    /// The position after the last.
    pub end: usize,
}

/// A row of `W`.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Row {
    /// Its place in the piece; some row of the piece where it is not `here`.
    pub at: usize,
    /// Whether this piece has the row.
    pub here: bool,
    /// Its place in a row of the output.
    pub column: usize,
}

/// Tile `index` of up to `tokens` slots.
#[cube]
pub(crate) fn tile_at(
    table: &[u32],
    layout: &Layout,
    index: usize,
    #[comptime] tokens: usize,
    #[comptime] route: Route,
) -> Tile {
    match comptime!(route) {
        Route::All => Tile {
            expert: 0usize.runtime(),
            start: index * tokens,
            end: min(index * tokens + tokens, layout.n),
        },
        Route::Slots => Tile {
            expert: usize::cast_from(table[min(index, layout.n - 1)]),
            start: index,
            end: min(index + 1, layout.n),
        },
        Route::Sorted => {
            let at = min(index, layout.tiles - 1) * 3;
            Tile {
                expert: usize::cast_from(table[at]),
                start: usize::cast_from(table[at + 1]),
                end: usize::cast_from(select(index < layout.tiles, table[at + 2], 0u32)),
            }
        }
    }
}

/// The slot at a position; some slot where there is none.
#[cube]
pub(crate) fn slot_at(
    table: &[u32],
    layout: &Layout,
    position: usize,
    #[comptime] route: Route,
) -> usize {
    let position = min(position, layout.n - 1);
    if comptime!(route == Route::Sorted) {
        usize::cast_from(table[layout.tiles * 3 + position])
    } else {
        position
    }
}

/// Row `row` of a tile's `W`.
#[cube]
pub(crate) fn row_at(layout: &Layout, tile: &Tile, row: usize, #[comptime] route: Route) -> Row {
    let last = layout.piece_rows - 1;
    if comptime!(route == Route::All) {
        Row {
            at: min(row, last),
            here: row < layout.piece_rows,
            column: layout.first_row + row,
        }
    } else {
        let expert = min(tile.expert, layout.experts - 1);
        let global = expert * layout.out_rows + min(row, layout.out_rows - 1);
        let after = global >= layout.first_row;
        let at = select(after, global - layout.first_row, 0usize);
        // The first piece also marks the rows of experts that do not exist.
        let known = tile.expert < layout.experts;
        let mine = select(
            known,
            after && at < layout.piece_rows,
            layout.first_row == 0,
        );
        Row {
            at: min(at, last),
            here: row < layout.out_rows && mine,
            column: row,
        }
    }
}

/// Writes one output of a tile, or NaN where its expert does not exist.
#[cube]
pub(crate) fn write_sum(
    out: &mut [f32],
    table: &[u32],
    layout: &Layout,
    tile: &Tile,
    row: &Row,
    position: usize,
    sum: f32,
    #[comptime] route: Route,
) {
    if row.here && position < tile.end {
        let slot = slot_at(table, layout, position, route);
        let mut value = sum;
        if comptime!(route != Route::All) {
            let nan = f32::reinterpret(layout.nan_bits);
            value = select(tile.expert < layout.experts, sum, nan);
        }
        out[slot * layout.out_rows + row.column] = value;
    }
}

/// A grid of at least `cubes` cubes within the limits of the device.
pub(crate) fn spread(client: &Client, cubes: usize) -> CubeCount {
    let limit = client.properties().hardware.max_cube_count.0.max(1) as usize;
    let y = cubes.div_ceil(limit).max(1);
    CubeCount::Static(cubes.div_ceil(y) as u32, y as u32, 1)
}
