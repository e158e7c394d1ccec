//! `y = x . W^T` for a few rows of `x`: bound by the bytes of `W`.
//!
//! `units` neighbouring units share a strip of rows of `W` and walk along it, a part each per step, so that they read
//! neighbouring words. A unit decodes its part of every row of the strip into registers and multiplies it with the
//! same values of every row of `x`: one load of `x` serves the whole strip, one decoding of `W` all rows of `x`.
//! Each weight word is needed by one unit only (by two for `Q5_K`'s high bits and `Q6_K`, at the same time).
//!
//! The partial sums of a strip are added up by a plane sum where the device has planes of one known size, and
//! through shared memory otherwise, because wgpu may vary the plane size inside a launch. On a software device a unit
//! takes strips alone: nothing is gained by sharing one, and without planes or shared memory nothing is needed from the
//! driver. (CubeCL 0.11.3 emits invalid SPIR-V for shared memory where `VK_KHR_workgroup_memory_explicit_layout` is
//! missing, as in Mesa 22's lavapipe.)

use cubecl::{client::Client, ir::features::Plane, prelude::*};

use super::{
    CubeMatrix, Piece,
    part::{PART_LEN, PART_QUADS, PartLayout, part_base, quad_offset, unpack_part},
    route::{Layout, Product, Route, Tile, row_at, slot_at, spread, tile_at, write_sum},
    words::Quad,
};
use crate::GgmlType;

/// Most rows of `x` this kernel takes at a time.
pub(crate) const MAX_ROWS: usize = 8;

/// How the units of a strip come to one sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// A plane sum: the units of a strip are a plane.
    Plane,
    /// Through shared memory.
    Shared,
    /// There is one unit per strip.
    Alone,
}

impl Reduction {
    /// The best one for a device.
    pub(crate) fn of(properties: &DeviceProperties) -> Self {
        let hardware = &properties.hardware;
        let size = hardware.plane_size_max;
        if properties.features.plane.contains(Plane::Ops) {
            let fixed = hardware.plane_size_min == size;
            if fixed && size.is_power_of_two() && (8..=64).contains(&size) {
                return Reduction::Plane;
            }
        } else if is_software(properties) {
            return Reduction::Alone;
        }
        Reduction::Shared
    }
}

/// Whether the device is a Vulkan driver that runs on the CPU.
///
/// CubeCL names no card for it and switches plane operations off, which leaves it `NonUniformControlFlow` of the plane
/// features of its SPIR-V compiler; a browser's GPU has no name either, and not that feature.
fn is_software(properties: &DeviceProperties) -> bool {
    let plane = &properties.features.plane;
    properties.identity.physical.is_none() && plane.contains(Plane::NonUniformControlFlow)
}

/// What the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemvConfig {
    pub(super) ty: GgmlType,
    reduction: Reduction,
    /// Units that share a strip.
    pub(super) units: usize,
    /// Strips in one cube.
    pub(super) strips: usize,
    /// Rows of `W` in a strip.
    pub(super) strip: usize,
    /// Rows of `x` computed; the real number may be lower.
    pub(super) tokens: usize,
    pub(super) route: Route,
}

impl GemvConfig {
    pub(super) fn new(
        properties: &DeviceProperties,
        ty: GgmlType,
        rows: usize,
        tokens: usize,
        route: Route,
        reduction: Reduction,
    ) -> Self {
        // Long strips only where there are enough of them to fill a large device.
        let strip = match (tokens, rows) {
            (1 | 2, 4096..) => 4,
            (4 | 8, 4096..) => 2,
            _ => 1,
        };
        let (units, strips, strip) = match reduction {
            Reduction::Plane => (properties.hardware.plane_size_max as usize, 4, strip),
            Reduction::Shared => (32, 4, strip),
            Reduction::Alone => (1, 32, if rows < 128 { 1 } else { 4 }),
        };
        Self {
            ty,
            reduction,
            units,
            strips,
            strip,
            tokens,
            route,
        }
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        CubeDim::new_2d(self.units as u32, self.strips as u32)
    }

    /// Sums a unit keeps.
    pub(super) fn sums(&self) -> usize {
        self.strip * self.tokens
    }

    /// Words of shared memory that a strip's units exchange their sums in; padded against bank conflicts.
    fn shared_row(&self) -> usize {
        self.units + 1
    }
}

/// Launches the kernel for one piece of `W`. More than [`MAX_ROWS`] rows of `x` are taken in turns, decoding `W` again.
pub(crate) fn launch(
    client: &Client,
    matrix: &CubeMatrix,
    piece: &Piece,
    product: &Product,
    reduction: Reduction,
) {
    let rows = product.rows(piece.rows);
    let tokens = product.tile_len(MAX_ROWS);
    let (ty, route) = (matrix.ty(), product.route());
    let config = GemvConfig::new(client.properties(), ty, rows, tokens, route, reduction);
    let cols = matrix.cols();
    let vector = if cols.is_multiple_of(PART_LEN) { 4 } else { 1 };
    let group = PartLayout::known(ty).group;
    let parts = cols.div_ceil(PART_LEN * group) * group;
    let row_cubes = rows.div_ceil(config.strips * config.strip);
    let cubes = row_cubes * product.tiles(config.tokens);
    let (table, table_len) = product.table(matrix.codebook());
    // SAFETY: the lengths are those of the buffers. Rows are clamped to those of the piece and slots to those that
    // exist, reads past the end of plain rows are clamped and masked, and only existing outputs are written.
    unsafe {
        gemv_kernel::launch_unchecked(
            client,
            spread(client, cubes),
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
            parts,
            row_cubes,
            config,
        );
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
pub(super) fn gemv_kernel<N: Size>(
    words: &[u32],
    codebook: &[u32],
    x: &[Vector<f32, N>],
    table: &[u32],
    out: &mut [f32],
    layout: Layout,
    shift: usize,
    row_bytes: usize,
    cols: usize,
    parts: usize,
    row_cubes: usize,
    #[comptime] config: GemvConfig,
) {
    let ty = comptime!(config.ty);
    let units = comptime!(config.units);
    let strip = comptime!(config.strip);
    let tokens = comptime!(config.tokens);
    let sums = comptime!(config.sums());
    let route = comptime!(config.route);

    let unit = UNIT_POS_X as usize;
    let place = UNIT_POS_Y as usize;
    let row0 = (CUBE_POS % row_cubes * comptime!(config.strips) + place) * strip;
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
    let mut acc = Sequence::<RuntimeCell<Quad>>::new();
    #[unroll]
    for _ in 0..sums {
        acc.push(RuntimeCell::new(Quad::new(0.0)));
    }

    let mut part = unit;
    while part < parts {
        let mut weights = Sequence::<Quad>::new();
        #[unroll]
        for r in 0..strip {
            let quads = unpack_part(words, codebook, row_starts[r], part, ty);
            #[unroll]
            for q in 0..PART_QUADS {
                weights.push(quads[q]);
            }
        }
        let base = part_base(part, ty);
        #[unroll]
        for q in 0..PART_QUADS {
            let offset = base + comptime!(quad_offset(ty, q));
            #[unroll]
            for t in 0..tokens {
                let quad = read_quad(x, x_starts[t], offset, cols);
                #[unroll]
                for r in 0..strip {
                    let weight =
                        mask_quad::<N>(weights[comptime!(r * PART_QUADS + q)], offset, cols);
                    let i = comptime!(r * tokens + t);
                    acc[i].store(fma(weight, quad, acc[i].read()));
                }
            }
        }
        part += units;
    }

    let mut parts = Sequence::<f32>::new();
    #[unroll]
    for i in 0..sums {
        parts.push(sum_quad(acc[i].read()));
    }
    reduce(out, table, &layout, &tile, row0, &parts, config);
}

/// Adds up the `parts` of a sum that each unit of a strip has, and writes the sums: one per row of the strip and slot.
#[cube]
pub(crate) fn reduce(
    out: &mut [f32],
    table: &[u32],
    layout: &Layout,
    tile: &Tile,
    row0: usize,
    parts: &Sequence<f32>,
    #[comptime] config: GemvConfig,
) {
    let unit = UNIT_POS_X as usize;
    let units = comptime!(config.units);
    let strip = comptime!(config.strip);
    let tokens = comptime!(config.tokens);
    let sums = comptime!(config.sums());
    let route = comptime!(config.route);
    if comptime!(config.reduction == Reduction::Shared) {
        let stride = comptime!(config.shared_row());
        let mut shared =
            Shared::<[f32]>::new_slice(comptime!(config.strips * sums * config.shared_row()));
        let start = UNIT_POS_Y as usize * comptime!(sums * stride);
        #[unroll]
        for i in 0..sums {
            shared[start + comptime!(i * stride) + unit] = parts[i];
        }
        sync_cube();
        // One unit per sum: `sums` is at most the number of units.
        if unit < sums {
            let from = start + unit * stride;
            let mut sum = 0.0f32;
            for i in 0..units {
                sum += shared[from + i];
            }
            let row = row_at(layout, tile, row0 + unit / tokens, route);
            let position = tile.start + unit % tokens;
            write_sum(out, table, layout, tile, &row, position, sum, route);
        }
    } else {
        #[unroll]
        for r in 0..strip {
            #[unroll]
            for t in 0..tokens {
                let mut sum = parts[comptime!(r * tokens + t)];
                if comptime!(config.reduction == Reduction::Plane) {
                    sum = plane_sum(sum);
                }
                if unit == 0 {
                    let row = row_at(layout, tile, row0 + r, route);
                    write_sum(out, table, layout, tile, &row, tile.start + t, sum, route);
                }
            }
        }
    }
}

/// Values `at .. at + 4` of the row of `x` that starts at `row`. Where `x` is bound value by value, those from `cols`
/// on are zero.
#[cube]
pub(crate) fn read_quad<N: Size>(x: &[Vector<f32, N>], row: usize, at: usize, cols: usize) -> Quad {
    let width = N::value();
    let mut quad = Quad::new(0.0);
    if comptime!(width == 1) {
        #[unroll]
        for i in 0..4usize {
            let value = x[row + min(at + i, cols - 1)];
            quad.insert(i, select(at + i < cols, value.extract(0usize), 0.0));
        }
    } else {
        let line = x[(row + at) / 4];
        #[unroll]
        for i in 0..4usize {
            quad.insert(i, line.extract(i));
        }
    }
    quad
}

/// Zero in the values of `quad` from index `cols` of their row on, where rows may end inside a part (`N` is 1): what was
/// decoded there belongs to the next row, and may be infinite.
#[cube]
pub(crate) fn mask_quad<N: Size>(quad: Quad, at: usize, cols: usize) -> Quad {
    let width = N::value();
    let mut masked = quad;
    if comptime!(width == 1) {
        #[unroll]
        for i in 0..4usize {
            masked.insert(i, select(at + i < cols, quad.extract(i), 0.0));
        }
    }
    masked
}

/// The sum of four values.
#[cube]
pub(crate) fn sum_quad(quad: Quad) -> f32 {
    (quad.extract(0usize) + quad.extract(1usize)) + (quad.extract(2usize) + quad.extract(3usize))
}
