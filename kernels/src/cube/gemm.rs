//! `y = x . W^T` for many rows of `x`: bound by arithmetic.
//!
//! A cube computes a tile of `ROWS` rows of `W` by `tokens` rows of `x`. It walks along the contraction in steps of a few
//! parts (64 values for most K types, 32 otherwise): the units decode the weights of the step into shared memory, copy the
//! values of `x` beside them in the same order, and each adds up a block of 4 x 4 outputs in registers. Outputs of a unit
//! lie `ROWS / 4` rows apart, so that neighbouring units read neighbouring lines of shared memory.

use cubecl::{client::Client, prelude::*};

use super::{
    CubeMatrix, Piece,
    gemv::{mask_quad, read_quad, sum_quad},
    part::{PART_LEN, PART_QUADS, PartLayout, part_base, quad_offset, unpack_part},
    route::{Layout, Product, Route, row_at, slot_at, spread, tile_at, write_sum},
    words::Quad,
};
use crate::GgmlType;

/// Outputs of a unit along each side of its block.
const BLOCK: usize = 4;

/// Fewest and most rows of `x` in a tile.
pub(crate) const MIN_TOKENS: usize = 16;
pub(crate) const MAX_TOKENS: usize = 32;

/// What the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemmConfig {
    ty: GgmlType,
    /// Rows of `W` in a tile.
    rows: usize,
    /// Rows of `x` in a tile.
    tokens: usize,
    /// Values of the contraction in a step.
    depth: usize,
    route: Route,
}

impl GemmConfig {
    pub(super) fn new(
        properties: &DeviceProperties,
        ty: GgmlType,
        tokens: usize,
        route: Route,
    ) -> Self {
        let group = PartLayout::known(ty).group;
        let mut config = Self {
            ty,
            rows: 64,
            tokens,
            depth: PART_LEN * group.clamp(2, 4),
            route,
        };
        let available = properties.hardware.max_shared_memory_size;
        while config.shared_bytes() > available && config.rows > BLOCK {
            config.rows /= 2;
        }
        config
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        CubeDim::new_1d(self.units() as u32)
    }

    fn row_units(&self) -> usize {
        self.rows / BLOCK
    }

    fn units(&self) -> usize {
        self.row_units() * self.tokens / BLOCK
    }

    /// Quads of a row of a tile in shared memory; odd, against bank conflicts.
    fn line(&self) -> usize {
        self.depth / 4 + 1
    }

    fn shared_bytes(&self) -> usize {
        (self.rows + self.tokens) * self.line() * 16
    }
}

/// Launches the kernel for one piece of `W`.
pub(crate) fn launch(client: &Client, matrix: &CubeMatrix, piece: &Piece, product: &Product) {
    let tokens = product.tile_len(MAX_TOKENS).max(MIN_TOKENS);
    let (ty, route) = (matrix.ty(), product.route());
    let config = GemmConfig::new(client.properties(), ty, tokens, route);
    let cols = matrix.cols();
    // Rows of plain numbers may end inside a step, where values are masked one by one.
    let vector = if cols.is_multiple_of(config.depth) {
        4
    } else {
        1
    };
    let row_tiles = product.rows(piece.rows).div_ceil(config.rows);
    let tiles = row_tiles * product.tiles(config.tokens);
    let (table, table_len) = product.table(matrix.codebook());
    // SAFETY: the lengths are those of the buffers. Rows are clamped to those of the piece and slots to those that
    // exist, reads past the end of plain rows are clamped and masked, and only existing outputs are written.
    unsafe {
        gemm_kernel::launch_unchecked(
            client,
            spread(client, tiles),
            config.cube_dim(),
            vector,
            BufferArg::from_raw_parts(piece.handle.clone(), piece.words),
            matrix.codebook().arg(),
            BufferArg::from_raw_parts(product.x.clone(), product.x_rows * cols / vector),
            BufferArg::from_raw_parts(table, table_len),
            BufferArg::from_raw_parts(product.out.clone(), product.n * product.rows(matrix.rows())),
            product.layout(piece, matrix.rows()),
            piece.shift,
            matrix.row_bytes(),
            cols,
            cols.div_ceil(config.depth),
            row_tiles,
            config,
        );
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn gemm_kernel<N: Size>(
    words: &[u32],
    codebook: &[u32],
    x: &[Vector<f32, N>],
    table: &[u32],
    out: &mut [f32],
    layout: Layout,
    shift: usize,
    row_bytes: usize,
    cols: usize,
    steps: usize,
    row_tiles: usize,
    #[comptime] config: GemmConfig,
) {
    let ty = comptime!(config.ty);
    let units = comptime!(config.units());
    let row_units = comptime!(config.row_units());
    let token_units = comptime!(config.tokens / BLOCK);
    let line = comptime!(config.line());
    let parts = comptime!(config.depth / PART_LEN);
    let quads = comptime!(config.depth / 4);
    let route = comptime!(config.route);

    let unit = UNIT_POS as usize;
    // Neighbouring cubes share the rows of `x` and differ in those of `W`.
    let tile_row = CUBE_POS % row_tiles * comptime!(config.rows);
    let tile = tile_at(table, &layout, CUBE_POS / row_tiles, config.tokens, route);
    let my_row = unit % row_units;
    let my_token = unit / row_units;

    let mut tile_w = Shared::<[Quad]>::new_slice(comptime!(config.rows * line));
    let mut tile_x = Shared::<[Quad]>::new_slice(comptime!(config.tokens * line));
    let mut acc = Sequence::<RuntimeCell<Quad>>::new();
    #[unroll]
    for _ in 0..comptime!(BLOCK * BLOCK) {
        acc.push(RuntimeCell::new(Quad::new(0.0)));
    }

    for step in 0..steps {
        let first = step * parts;

        let mut task = unit;
        while task < comptime!(config.rows * parts) {
            let at = task / parts;
            let row = row_at(&layout, &tile, tile_row + at, route).at;
            let part = task % parts;
            let decoded = unpack_part(words, codebook, shift + row * row_bytes, first + part, ty);
            let base = part_base(first + part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                let offset = base + comptime!(quad_offset(ty, q));
                tile_w[at * line + part * PART_QUADS + q] =
                    mask_quad::<N>(decoded[q], offset, cols);
            }
            task += units;
        }

        let mut task = unit;
        while task < comptime!(config.tokens * parts) {
            let at = task / parts;
            let slot = slot_at(table, &layout, tile.start + at, route);
            let part = task % parts;
            let base = part_base(first + part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                let offset = base + comptime!(quad_offset(ty, q));
                tile_x[at * line + part * PART_QUADS + q] =
                    read_quad(x, slot / layout.slots_per_x * cols, offset, cols);
            }
            task += units;
        }

        sync_cube();

        for k in 0..quads {
            let mut w = Sequence::<Quad>::new();
            #[unroll]
            for i in 0..BLOCK {
                w.push(tile_w[(my_row + comptime!(i * row_units)) * line + k]);
            }
            #[unroll]
            for j in 0..BLOCK {
                let value = tile_x[(my_token + comptime!(j * token_units)) * line + k];
                #[unroll]
                for i in 0..BLOCK {
                    let at = comptime!(j * BLOCK + i);
                    acc[at].store(fma(w[i], value, acc[at].read()));
                }
            }
        }

        sync_cube();
    }

    #[unroll]
    for j in 0..BLOCK {
        let position = tile.start + my_token + comptime!(j * token_units);
        #[unroll]
        for i in 0..BLOCK {
            let row = tile_row + my_row + comptime!(i * row_units);
            let row = row_at(&layout, &tile, row, route);
            let sum = sum_quad(acc[comptime!(j * BLOCK + i)].read());
            write_sum(out, table, &layout, &tile, &row, position, sum, route);
        }
    }
}
