//! What differs between instruction levels: a handful of inner loops, one file per level.
//!
//! An operation is a [`Kernel`], generic over [`Level`] and inlined whole into one function per level that carries
//! `#[target_feature]`. So the portable parts of a kernel (unpacking codes, quantizing activations) are compiled with
//! the level's instructions too, and the functions here need not be called through pointers.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
pub(super) use scalar::Scalar;

use super::gemv::RowInput;
use super::panel;
use super::types::{CpuCode, CpuType};

/// Activation rows that are quantized side by side for the matrix product.
pub(super) const GROUP: usize = 8;

/// Most weight rows of a panel of codes at any level.
pub(super) const MAX_ROWS: usize = 16;

/// The sums of one tile of a code panel: token by token, `Level::ROWS` rows each.
pub(super) type TileOut = [f32; GROUP * MAX_ROWS];

/// Adds the products of values `from..len` of a row of plain numbers to dot products.
///
/// # Safety
/// As [`Level::float_dots`].
#[inline(always)]
unsafe fn float_rest<T: CpuType, const N: usize>(
    row: *const u8,
    x: &[*const f32; N],
    values: std::ops::Range<usize>,
    out: &mut [f32; N],
) {
    for k in values {
        let mut value = 0.0;
        // SAFETY: the caller says that the row has enough values.
        let bytes = unsafe { std::slice::from_raw_parts(row.add(k * T::BYTES), T::BYTES) };
        T::dequantize_block(bytes, std::slice::from_mut(&mut value));
        for (out, x) in out.iter_mut().zip(x) {
            // SAFETY: the caller says that each pointer leads to enough values.
            *out += value * unsafe { *x.add(k) };
        }
    }
}

/// One operation, to be run at a level chosen at run time.
pub(super) trait Kernel {
    type Output;

    /// The operation. Implementations are `#[inline(always)]`, and so is all they call in the inner loops.
    ///
    /// # Safety
    /// The CPU must have the features of `L`.
    unsafe fn run<L: Level>(self) -> Self::Output;
}

/// A panel of `Level::ROWS` weight rows of codes, four consecutive values of each row side by side.
#[derive(Clone, Copy)]
pub(super) struct CodePanel<'a> {
    /// `[cols / 4, ROWS, 4]`.
    pub codes: &'a [u8],
    /// `[cols / SUB_LEN, ROWS]`.
    pub scales: &'a [f32],
    /// As `scales`, where the type has mins.
    pub mins: &'a [f32],
}

/// A group of [`GROUP`] activation rows, 8-bit codes with a scale per 32 values.
#[derive(Clone, Copy)]
pub(super) struct TokenGroup<'a> {
    /// `[cols / 32, GROUP, 32]`, each in -127..=127.
    pub codes: &'a [i8],
    /// `[cols / 32, GROUP]`.
    pub scales: &'a [f32],
    /// `[cols / SUB_LEN, GROUP]`: the bits of what the sums of the codes contribute. For a type with mins, the sum
    /// times the scale (`f32`); else the sum times `-OFFSET` (`i32`).
    pub sums: &'a [u32],
}

/// The inner loops of one instruction level.
///
/// All functions require the features of the level to be present, and are `unsafe` for that reason first; what else
/// they require is said at each.
pub(super) trait Level: Copy + 'static {
    /// Weight rows of a panel of codes.
    const ROWS: usize;
    /// Whether panels hold 8-bit codes as signed numbers (code - 128), so that no sum of activations is needed.
    const SIGNED_8BIT: bool;

    /// `a * b + c`, fused where the level has the instruction.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn mul_add(a: f32, b: f32, c: f32) -> f32;

    /// Widens `out.len()` values of a type that `WIDENS`.
    ///
    /// # Safety
    /// `bytes` must hold as many.
    unsafe fn widen<T: CpuType>(bytes: &[u8], out: &mut [f32]);

    /// Dot products of `R` rows of `len` values of a type that `WIDENS` with `N` rows as long.
    ///
    /// # Safety
    /// Each pointer must lead to `len` values.
    unsafe fn float_dots<T: CpuType, const R: usize, const N: usize>(
        rows: [*const u8; R],
        x: [*const f32; N],
        len: usize,
    ) -> [[f32; N]; R];

    /// As `CodeBlock::unpack_block`, of exactly one block.
    ///
    /// # Safety
    /// The slices must have the lengths `unpack_block` asks for.
    unsafe fn unpack<T: CpuCode>(
        block: &[u8],
        codes: &mut [u8],
        scales: &mut [f32],
        mins: &mut [f32],
    );

    /// `scale * (code - OFFSET)`, less `min` where the type has mins. Product and difference are rounded each, as ggml
    /// does.
    ///
    /// # Safety
    /// `codes` and `out` must have the same length, a multiple of 16.
    unsafe fn scale_codes<T: CpuCode>(codes: &[u8], scale: f32, min: f32, out: &mut [f32]);

    /// Adds to `total` the products of 32 codes, less `OFFSET`, and 32 activations, summed by 4 neighbours and scaled:
    /// the first 16 by `scales[0]`, the others by `scales[1]`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn add_dot<T: CpuCode>(
        codes: &[u8; 32],
        x: &[i8; 32],
        scales: [f32; 2],
        total: [f32; 8],
    ) -> [f32; 8];

    /// Transposes 8 x 8 words: word `j` of row `i` of `from` becomes word `i` of row `j` of `to`.
    ///
    /// # Safety
    /// Both must have 8 rows of 8 words, the given numbers of words apart; neither needs alignment.
    unsafe fn transpose(from: *const u32, from_step: usize, to: *mut u32, to_step: usize);

    /// Products of a panel with the first `tokens` rows of a group.
    ///
    /// # Safety
    /// The slices must have the lengths given at their fields, for the same number of columns.
    unsafe fn code_tile<T: CpuCode>(
        panel: CodePanel<'_>,
        group: TokenGroup<'_>,
        tokens: usize,
        out: &mut TileOut,
    );

    /// Products of a panel of numbers, `[depth, panel::ROWS]`, with `N` rows of numbers that lie `panel::STEP` apart.
    ///
    /// # Safety
    /// Panel and rows must be `depth` long.
    unsafe fn float_tile<const N: usize>(
        panel: *const f32,
        x: *const f32,
        depth: usize,
        out: &mut [[f32; panel::ROWS]; N],
    );

    /// Dot products of one row of blocks with `N` quantized activation rows.
    ///
    /// # Safety
    /// `row` must hold `x[_].len / LEN` blocks.
    unsafe fn row_dot<T: CpuCode, const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N];
}
