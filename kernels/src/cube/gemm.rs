//! `y = x . W^T` for many rows of `x`: bound by arithmetic.
//!
//! A cube computes a tile of `ROWS` rows of `W` by `tokens` rows of `x`. It walks along the contraction in steps of one
//! span (64 values for the K types, 32 otherwise): the units decode the weights of the step into shared memory, copy the
//! values of `x` beside them, and each adds up a block of 4 x 4 outputs in registers. Outputs of a unit lie
//! `ROWS / 4` rows apart, so that neighbouring units read neighbouring lines of shared memory.

use cubecl::{client::Client, prelude::*, server::Handle};

use super::{
    CubeMatrix, Piece,
    gemv::{mask_quad, read_quad, sum_quad},
    part::{PART_LEN, PART_QUADS, PartLayout, part_base, quad_offset, unpack_part},
    words::Quad,
};
use crate::GgmlType;

/// Outputs of a unit along each side of its block.
const BLOCK: usize = 4;

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
}

impl GemmConfig {
    pub(super) fn new(properties: &DeviceProperties, ty: GgmlType, n: usize) -> Self {
        let group = PartLayout::known(ty).group;
        let mut config = Self {
            ty,
            rows: 64,
            tokens: if n <= 16 { 16 } else { 32 },
            depth: PART_LEN * group.max(2),
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

/// Launches the kernel for one piece: rows `piece.first_row ..` of each of the `n` rows of `out` (`[n, rows]`).
pub(crate) fn launch(
    client: &Client,
    matrix: &CubeMatrix,
    piece: &Piece,
    x: Handle,
    n: usize,
    out: Handle,
) {
    let config = GemmConfig::new(client.properties(), matrix.ty(), n);
    let cols = matrix.cols();
    // Rows of plain numbers may end inside a step, where values are masked one by one.
    let vector = if cols.is_multiple_of(config.depth) {
        4
    } else {
        1
    };
    let row_tiles = piece.rows.div_ceil(config.rows);
    let tiles = row_tiles * n.div_ceil(config.tokens);
    // SAFETY: the lengths are those of the buffers. Rows are clamped to those of the piece and tokens to `n`, reads
    // past the end of plain rows are clamped and masked, and only existing rows and tokens are written.
    unsafe {
        gemm_kernel::launch_unchecked(
            client,
            super::gemv::spread(client, tiles),
            config.cube_dim(),
            vector,
            BufferArg::from_raw_parts(piece.handle.clone(), piece.words),
            BufferArg::from_raw_parts(x, n * cols / vector),
            BufferArg::from_raw_parts(out, n * matrix.rows()),
            piece.shift,
            matrix.row_bytes(),
            piece.rows,
            piece.first_row,
            matrix.rows(),
            cols,
            cols.div_ceil(config.depth),
            n,
            row_tiles,
            config,
        );
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn gemm_kernel<N: Size>(
    words: &[u32],
    x: &[Vector<f32, N>],
    out: &mut [f32],
    shift: usize,
    row_bytes: usize,
    rows: usize,
    first_row: usize,
    all_rows: usize,
    cols: usize,
    steps: usize,
    all_tokens: usize,
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

    let unit = UNIT_POS as usize;
    // Neighbouring cubes share the rows of `x` and differ in those of `W`.
    let tile_row = CUBE_POS % row_tiles * comptime!(config.rows);
    let tile_token = CUBE_POS / row_tiles * comptime!(config.tokens);
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
        let start = step * comptime!(config.depth);

        let mut task = unit;
        while task < comptime!(config.rows * parts) {
            let tile = task / parts;
            let row = min(tile_row + tile, rows - 1);
            let part = task % parts;
            let decoded = unpack_part(words, shift + row * row_bytes, step * parts + part, ty);
            let base = part_base(part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                let offset = base + comptime!(quad_offset(ty, q));
                tile_w[tile * line + offset / 4] = mask_quad::<N>(decoded[q], start + offset, cols);
            }
            task += units;
        }

        let mut task = unit;
        while task < comptime!(config.tokens * quads) {
            let tile = task / quads;
            let token = min(tile_token + tile, all_tokens - 1);
            let quad = task % quads;
            tile_x[tile * line + quad] = read_quad(x, token * cols, start + quad * 4, cols);
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
        let token = tile_token + my_token + comptime!(j * token_units);
        #[unroll]
        for i in 0..BLOCK {
            let row = tile_row + my_row + comptime!(i * row_units);
            if token < all_tokens && row < rows {
                out[token * all_rows + first_row + row] =
                    sum_quad(acc[comptime!(j * BLOCK + i)].read());
            }
        }
    }
}
