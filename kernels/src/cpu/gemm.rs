//! Matrix times many activation rows, on codes.
//!
//! A panel of `Level::ROWS` weight rows is unpacked once, interleaved so that one register holds four values of every
//! row, and used for all activation rows. One inner loop per level then serves every block type, and the cost of
//! unpacking shrinks with the number of activation rows.

use super::buffer::Buffer;
use super::input::{Group, SumKind};
use super::level::{CodePanel, GROUP, Kernel, Level, MAX_ROWS};
use super::linear::RowTask;
use super::types::CpuCode;
use crate::blocks::MAX_BLOCK_LEN;
use std::cell::Cell;
use std::marker::PhantomData;

/// Buffers for the panels of one task, kept by each thread.
#[derive(Default)]
struct Panels {
    codes: Buffer<u8>,
    scales: Buffer<f32>,
    mins: Buffer<f32>,
}

thread_local! {
    // Taken out while in use: a task that waits inside rayon may find itself running another one.
    static PANELS: Cell<Panels> = Cell::default();
}

/// Multiplies the rows of a task with all groups.
pub(super) fn rows<T: CpuCode>(task: &RowTask<'_>, groups: &[Group]) {
    let mut panels = PANELS.take();
    // SAFETY: levels are checked where they enter.
    unsafe {
        task.isa.run(Multiply::<T> {
            task,
            groups,
            panels: &mut panels,
            of: PhantomData,
        })
    }
    PANELS.set(panels);
}

struct Multiply<'a, T> {
    task: &'a RowTask<'a>,
    groups: &'a [Group],
    panels: &'a mut Panels,
    of: PhantomData<T>,
}

impl<T: CpuCode> Kernel for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Level>(self) {
        let Self {
            task,
            groups,
            panels,
            ..
        } = self;
        let kind = const { SumKind::of::<T>() };
        let (code_len, scale_len) = (task.cols * L::ROWS, task.cols / T::SUB_LEN * L::ROWS);
        let count = task.rows.len().div_ceil(L::ROWS);
        panels.codes.grow(count * code_len);
        panels.scales.grow(count * scale_len);
        if T::HAS_MIN {
            panels.mins.grow(count * scale_len);
        }
        for panel in 0..count {
            let mins = if T::HAS_MIN {
                &mut panels.mins[panel * scale_len..][..scale_len]
            } else {
                &mut []
            };
            let codes = &mut panels.codes[panel * code_len..][..code_len];
            let scales = &mut panels.scales[panel * scale_len..][..scale_len];
            // SAFETY: `run` is called with the features of `L` present.
            unsafe { pack::<T, L>(task, panel * L::ROWS, codes, scales, mins) };
        }
        let mut out = [0.0; GROUP * MAX_ROWS];
        for (index, group) in groups.iter().enumerate() {
            let group = group.view(kind);
            let first_token = index * GROUP;
            let tokens = GROUP.min(task.tokens - first_token);
            for panel in 0..count {
                let view = CodePanel {
                    codes: &panels.codes[panel * code_len..][..code_len],
                    scales: &panels.scales[panel * scale_len..][..scale_len],
                    mins: if T::HAS_MIN {
                        &panels.mins[panel * scale_len..][..scale_len]
                    } else {
                        &[]
                    },
                };
                // SAFETY: panel and group have the layout of their fields, for `task.cols` columns each.
                unsafe { L::code_tile::<T>(view, group, tokens, &mut out) };
                let rows = L::ROWS.min(task.rows.len() - panel * L::ROWS);
                for token in 0..tokens {
                    // SAFETY: a task's rows are its own.
                    let to = unsafe { task.out(first_token + token, panel * L::ROWS, rows) };
                    to.copy_from_slice(&out[token * L::ROWS..][..rows]);
                }
            }
        }
    }
}

/// Unpacks `L::ROWS` rows of a task from `first` into a panel. Rows past the end repeat the last one; their products
/// are dropped.
///
/// # Safety
/// The CPU must have the features of `L`.
#[inline(always)]
unsafe fn pack<T: CpuCode, L: Level>(
    task: &RowTask<'_>,
    first: usize,
    codes: &mut [u8],
    scales: &mut [f32],
    mins: &mut [f32],
) {
    let subs = T::LEN / T::SUB_LEN;
    let mut unpacked = [0u8; MAX_ROWS * MAX_BLOCK_LEN];
    let (mut block_scales, mut block_mins) = ([0.0; 16], [0.0; 16]);
    for block in 0..task.cols / T::LEN {
        for row in 0..L::ROWS {
            let bytes =
                &task.row((first + row).min(task.rows.len() - 1))[block * T::BYTES..][..T::BYTES];
            let row_codes = &mut unpacked[row * T::LEN..][..T::LEN];
            // SAFETY: the caller's; one block and buffers for the longest.
            unsafe { L::unpack::<T>(bytes, row_codes, &mut block_scales, &mut block_mins) };
            if T::CODE_BITS == 8 && L::SIGNED_8BIT {
                row_codes.iter_mut().for_each(|code| *code ^= 0x80);
            }
            let at = block * subs * L::ROWS..(block + 1) * subs * L::ROWS;
            for (to, scale) in scales[at.clone()]
                .chunks_exact_mut(L::ROWS)
                .zip(block_scales)
            {
                to[row] = scale;
            }
            if T::HAS_MIN {
                for (to, min) in mins[at].chunks_exact_mut(L::ROWS).zip(block_mins) {
                    to[row] = min;
                }
            }
        }
        let codes = &mut codes[block * T::LEN * L::ROWS..][..T::LEN * L::ROWS];
        for column in (0..T::LEN).step_by(32) {
            for row in (0..L::ROWS).step_by(8) {
                let from = unpacked[row * T::LEN + column..][..7 * T::LEN + 32]
                    .as_ptr()
                    .cast();
                let to = codes[column * L::ROWS + 4 * row..][..4 * (7 * L::ROWS + 8)]
                    .as_mut_ptr()
                    .cast();
                // SAFETY: the slices reach from the first to the last word.
                unsafe { L::transpose(from, T::LEN / 4, to, L::ROWS) };
            }
        }
    }
}
