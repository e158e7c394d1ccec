//! `y = x . W^T` for many rows of `x` on tensor cores: weights and activations are rounded to `bfloat16`.
//!
//! Not to `f16`, whose range neither the activations of large models nor every block type keep. Sums are `f32`. As in
//! `gemm.rs` a cube walks along the contraction with its tiles in shared memory; each of its planes multiplies 16 rows of
//! `W` with all rows of `x` of the tile.

use cubecl::{
    client::Client,
    cmma,
    ir::{ElemType, FloatKind, features::MmaConfig},
    prelude::*,
};
use half::bf16;

use super::{
    CubeMatrix, Piece,
    gemv::read_quad,
    part::{PART_LEN, PART_QUADS, PartLayout, is_plain, part_base, quad_offset, unpack_part},
    route::{Layout, Product, Route, row_at, slot_at, spread, tile_at, write_sum},
    words::Quad,
};
use crate::GgmlType;

/// Rows and columns of a fragment.
const SIDE: usize = 16;
/// Planes of a cube.
const PLANES: usize = 4;
/// Fragments along the rows of `x`.
const FRAGMENTS: usize = 2;

/// Rows of `W` in a tile.
const ROWS: usize = SIDE * PLANES;
/// Rows of `x` in a tile.
pub(crate) const TOKENS: usize = SIDE * FRAGMENTS;

/// Whether the device multiplies matrices of `bfloat16`, and the kernel takes weights of this type.
pub(crate) fn takes(properties: &DeviceProperties, ty: GgmlType) -> bool {
    let hardware = &properties.hardware;
    let bf16 = ElemType::Float(FloatKind::BF16);
    let wanted = MmaConfig {
        a_type: bf16,
        b_type: bf16,
        cd_type: ElemType::Float(FloatKind::F32),
        m: SIDE as u32,
        n: SIDE as u32,
        k: SIDE as u32,
    };
    !is_plain(ty)
        && hardware.plane_size_min == hardware.plane_size_max
        && properties.features.matmul.cmma.contains(&wanted)
}

/// What the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CmmaConfig {
    ty: GgmlType,
    /// Units of a plane.
    plane: usize,
    /// Values of the contraction in a step.
    depth: usize,
    route: Route,
}

impl CmmaConfig {
    pub(super) fn new(properties: &DeviceProperties, ty: GgmlType, route: Route) -> Self {
        Self {
            ty,
            plane: properties.hardware.plane_size_max as usize,
            depth: PART_LEN * PartLayout::known(ty).group.clamp(2, 4),
            route,
        }
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        CubeDim::new_2d(self.plane as u32, PLANES as u32)
    }

    /// Values from one row of a tile to the next; fragments need rows of whole 16 bytes, and the 8 more values keep rows
    /// in different banks.
    fn line(&self) -> usize {
        self.depth + 8
    }
}

/// Launches the kernel for one piece of `W`.
pub(crate) fn launch(client: &Client, matrix: &CubeMatrix, piece: &Piece, product: &Product) {
    let config = CmmaConfig::new(client.properties(), matrix.ty(), product.route());
    let cols = matrix.cols();
    let row_tiles = product.rows(piece.rows).div_ceil(ROWS);
    let tiles = row_tiles * product.tiles(TOKENS);
    let (table, table_len) = product.table(matrix.codebook());
    // SAFETY: the lengths are those of the buffers. Rows are clamped to those of the piece and slots to those that
    // exist, rows of these types are whole steps, and only existing outputs are written.
    unsafe {
        gemm_cmma_kernel::launch_unchecked(
            client,
            spread(client, tiles),
            config.cube_dim(),
            BufferArg::from_raw_parts(piece.handle.clone(), piece.words),
            matrix.codebook().arg(),
            BufferArg::from_raw_parts(product.x.clone(), product.x_rows * cols / 4),
            BufferArg::from_raw_parts(table, table_len),
            BufferArg::from_raw_parts(product.out.clone(), product.n * product.rows(matrix.rows())),
            product.layout(piece, matrix.rows()),
            piece.shift,
            matrix.row_bytes(),
            cols,
            row_tiles,
            config,
        );
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn gemm_cmma_kernel(
    words: &[u32],
    codebook: &[u32],
    x: &[Quad],
    table: &[u32],
    out: &mut [f32],
    layout: Layout,
    shift: usize,
    row_bytes: usize,
    cols: usize,
    row_tiles: usize,
    #[comptime] config: CmmaConfig,
) {
    let ty = comptime!(config.ty);
    let route = comptime!(config.route);
    let line = comptime!(config.line());
    let parts = comptime!(config.depth / PART_LEN);
    let units = comptime!(config.plane * PLANES);

    let unit = UNIT_POS as usize;
    let plane = UNIT_POS_Y as usize;
    let tile_row = CUBE_POS % row_tiles * ROWS;
    let tile = tile_at(table, &layout, CUBE_POS / row_tiles, TOKENS, route);

    let mut tile_w = Shared::<[bf16]>::new_slice(comptime!(ROWS * config.line()));
    let mut tile_x = Shared::<[bf16]>::new_slice(comptime!(TOKENS * config.line()));
    let mut tile_y = Shared::<[f32]>::new_slice(comptime!(TOKENS * ROWS));
    let mut acc = Sequence::<cmma::Matrix<f32>>::new();
    #[unroll]
    for _ in 0..FRAGMENTS {
        acc.push(cmma::Matrix::<f32>::from_value(
            cmma::MatrixIdent::Accumulator,
            SIDE,
            SIDE,
            SIDE,
            cmma::MatrixLayout::Undefined,
            0.0,
        ));
    }

    for step in 0..cols / comptime!(config.depth) {
        let first = step * parts;
        let mut task = unit;
        while task < comptime!(ROWS * parts) {
            let at = task / parts;
            let row = row_at(&layout, &tile, tile_row + at, route).at;
            let part = task % parts;
            let decoded = unpack_part(words, codebook, shift + row * row_bytes, first + part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                let to = at * line + part * PART_LEN + comptime!(4 * q);
                store_quad(&mut tile_w, to, decoded[q]);
            }
            task += units;
        }
        let mut task = unit;
        while task < comptime!(TOKENS * parts) {
            let at = task / parts;
            let slot = slot_at(table, &layout, tile.start + at, route);
            let part = task % parts;
            let base = part_base(first + part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                let offset = base + comptime!(quad_offset(ty, q));
                let quad = read_quad(x, slot / layout.slots_per_x * cols, offset, cols);
                let to = at * line + part * PART_LEN + comptime!(4 * q);
                store_quad(&mut tile_x, to, quad);
            }
            task += units;
        }
        sync_cube();

        #[unroll]
        for k in 0..parts {
            let from = plane * comptime!(SIDE * line) + comptime!(k * SIDE);
            let w = cmma::Matrix::<bf16>::from_slice(
                cmma::MatrixIdent::B,
                SIDE,
                SIDE,
                SIDE,
                cmma::MatrixLayout::ColMajor,
                &tile_w[from..comptime!(ROWS * line)],
                comptime!(line as u32),
            );
            #[unroll]
            for f in 0..FRAGMENTS {
                let from = comptime!(f * SIDE * line + k * SIDE);
                let x = cmma::Matrix::<bf16>::from_slice(
                    cmma::MatrixIdent::A,
                    SIDE,
                    SIDE,
                    SIDE,
                    cmma::MatrixLayout::RowMajor,
                    &tile_x[from..comptime!(TOKENS * line)],
                    comptime!(line as u32),
                );
                cmma::execute(&x, &w, &acc[f], &acc[f]);
            }
        }
        sync_cube();
    }

    #[unroll]
    for f in 0..FRAGMENTS {
        let to = plane * SIDE + comptime!(f * SIDE * ROWS);
        cmma::store(
            &mut tile_y[to..comptime!(TOKENS * ROWS)],
            &acc[f],
            comptime!(ROWS as u32),
            cmma::MatrixLayout::RowMajor,
        );
    }
    sync_cube();
    let mut at = unit;
    while at < comptime!(TOKENS * ROWS) {
        let row = row_at(&layout, &tile, tile_row + at % ROWS, route);
        let position = tile.start + at / ROWS;
        write_sum(
            out, table, &layout, &tile, &row, position, tile_y[at], route,
        );
        at += units;
    }
}

/// Rounds a quad into a tile.
#[cube]
fn store_quad(tile: &mut Shared<[bf16]>, to: usize, quad: Quad) {
    #[unroll]
    for i in 0..4usize {
        tile[to + i] = bf16::cast_from(quad.extract(i));
    }
}
