//! `y = x . W^T` for a few rows of `x` in integers: the activations are rounded to 8 bits first.
//!
//! Every 32 values of `x` get a scale of their own, `max |x| / 127`. Products of a quad of codes with a quad of these
//! bytes are one integer dot product (`dp4a`), where the device has it; the walk along the strips, the sharing and the
//! sums are those of `gemv.rs`.

use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*};

use super::{
    CubeMatrix, Piece, Reduction,
    gemv::{GemvConfig, MAX_ROWS, reduce},
    part::{PART_QUADS, PartLayout, is_plain, part_base, quad_offset, signed_codes, unpack_codes},
    route::{Layout, Product, row_at, slot_at, spread, tile_at},
    words::Quad,
};
use crate::GgmlType;

pub(super) const UNITS: u32 = 64;

/// Values that share a scale.
const BLOCK: usize = 32;

/// Whether the kernel takes weights of this type.
pub(crate) fn takes(ty: GgmlType) -> bool {
    !is_plain(ty)
}

/// Launches the kernel for every piece of `W`; see `gemv::launch`.
pub(crate) fn launch(
    client: &Client,
    matrix: &CubeMatrix,
    product: &Product,
    reduction: Reduction,
) {
    let cols = matrix.cols();
    let values = product.x_rows * cols;
    let blocks = values / BLOCK;
    let codes = client.empty(values);
    let scales = client.empty(blocks * 4);
    let cube_dim = CubeDim::new_1d(UNITS);
    // SAFETY: the lengths are those of the buffers: rows of these types are whole blocks. Units beyond the last block do
    // nothing.
    unsafe {
        quantize_kernel::launch_unchecked(
            client,
            calculate_cube_count_elemwise(client, blocks, cube_dim),
            cube_dim,
            BufferArg::from_raw_parts(product.x.clone(), values / 4),
            BufferArg::from_raw_parts(codes.clone(), values / 4),
            BufferArg::from_raw_parts(scales.clone(), blocks),
        );
    }
    for piece in matrix.pieces() {
        launch_piece(client, matrix, piece, product, (&codes, &scales), reduction);
    }
}

fn launch_piece(
    client: &Client,
    matrix: &CubeMatrix,
    piece: &Piece,
    product: &Product,
    (codes, scales): (&cubecl::server::Handle, &cubecl::server::Handle),
    reduction: Reduction,
) {
    let (ty, cols) = (matrix.ty(), matrix.cols());
    let rows = product.rows(piece.rows);
    let tokens = product.tile_len(MAX_ROWS);
    let config = GemvConfig::new(
        client.properties(),
        ty,
        rows,
        tokens,
        product.route(),
        reduction,
    );
    let values = product.x_rows * cols;
    let row_cubes = rows.div_ceil(config.strips * config.strip);
    let cubes = row_cubes * product.tiles(config.tokens);
    let (table, table_len) = product.table(matrix.codebook());
    // SAFETY: the lengths are those of the buffers. Rows are clamped to those of the piece and slots to those that
    // exist, parts end where rows do, and only existing outputs are written.
    unsafe {
        gemv_q8_kernel::launch_unchecked(
            client,
            spread(client, cubes),
            config.cube_dim(),
            BufferArg::from_raw_parts(piece.handle.clone(), piece.words),
            matrix.codebook().arg(),
            BufferArg::from_raw_parts(codes.clone(), values / 4),
            BufferArg::from_raw_parts(scales.clone(), values / BLOCK),
            BufferArg::from_raw_parts(table, table_len),
            BufferArg::from_raw_parts(product.out.clone(), product.n * product.rows(matrix.rows())),
            product.layout(piece, matrix.rows()),
            piece.shift,
            matrix.row_bytes(),
            cols,
            row_cubes,
            config,
        );
    }
}

/// Rounds blocks of 32 values to signed bytes, four in a word, and a scale.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn quantize_kernel(x: &[Quad], codes: &mut [u32], scales: &mut [f32]) {
    let block = ABSOLUTE_POS;
    if block < scales.len() {
        let quads = comptime!(BLOCK / 4);
        let mut largest = Quad::new(0.0);
        #[unroll]
        for q in 0..quads {
            largest = max(largest, x[block * quads + q].abs());
        }
        let pair = max(largest.extract(0usize), largest.extract(1usize));
        let other = max(largest.extract(2usize), largest.extract(3usize));
        let largest = max(pair, other);
        let inverse = select(largest > 0.0, 127.0 / largest, 0.0);
        #[unroll]
        for q in 0..quads {
            let quad = x[block * quads + q];
            let mut word = 0u32;
            #[unroll]
            for i in 0..4usize {
                // Rounded as an unsigned number, which is above zero for every byte.
                let code = u32::cast_from(quad.extract(i) * inverse + 128.5) - 128;
                word |= (code & 0xff) << comptime!(8 * i as u32);
            }
            codes[block * quads + q] = word;
        }
        scales[block] = largest / 127.0;
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn gemv_q8_kernel(
    words: &[u32],
    codebook: &[u32],
    x: &[u32],
    x_scales: &[f32],
    table: &[u32],
    out: &mut [f32],
    layout: Layout,
    shift: usize,
    row_bytes: usize,
    cols: usize,
    row_cubes: usize,
    #[comptime] config: GemvConfig,
) {
    let ty = comptime!(config.ty);
    let strip = comptime!(config.strip);
    let tokens = comptime!(config.tokens);
    let sums = comptime!(config.sums());
    let route = comptime!(config.route);
    let has_min = comptime!(PartLayout::known(ty).has_min);

    let row0 = (CUBE_POS % row_cubes * comptime!(config.strips) + UNIT_POS_Y as usize) * strip;
    let tile = tile_at(table, &layout, CUBE_POS / row_cubes, tokens, route);

    let mut row_starts = Sequence::<usize>::new();
    #[unroll]
    for r in 0..strip {
        row_starts.push(shift + row_at(&layout, &tile, row0 + r, route).at * row_bytes);
    }
    let mut x_starts = Sequence::<usize>::new();
    #[unroll]
    for t in 0..tokens {
        let slot = slot_at(table, &layout, tile.start + t, route);
        x_starts.push(slot / layout.slots_per_x * cols);
    }
    let mut acc = Sequence::<RuntimeCell<f32>>::new();
    #[unroll]
    for _ in 0..sums {
        acc.push(RuntimeCell::new(0.0f32));
    }

    let mut part = UNIT_POS_X as usize;
    while part < cols / 16 {
        let base = part_base(part, ty);
        #[unroll]
        for r in 0..strip {
            let codes = unpack_codes(words, codebook, row_starts[r], part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                let offset = base + comptime!(quad_offset(ty, q));
                let weights = i32::reinterpret(signed_codes(codes.codes[q], ty));
                #[unroll]
                for t in 0..tokens {
                    let at = x_starts[t] + offset;
                    let quad = i32::reinterpret(x[at / 4]);
                    let dot = f32::cast_from(dp4a(weights, quad, 0i32.runtime()));
                    let mut sum = codes.scales[q] * dot;
                    if comptime!(has_min) {
                        let ones = comptime!(0x0101_0101i32).runtime();
                        let total = f32::cast_from(dp4a(ones, quad, 0i32.runtime()));
                        sum = fma(-codes.mins[q], total, sum);
                    }
                    let i = comptime!(r * tokens + t);
                    acc[i].store(fma(sum, x_scales[at / BLOCK], acc[i].read()));
                }
            }
        }
        part += comptime!(config.units);
    }

    let mut parts = Sequence::<f32>::new();
    #[unroll]
    for i in 0..sums {
        parts.push(acc[i].read());
    }
    reduce(out, table, &layout, &tile, row0, &parts, config);
}
