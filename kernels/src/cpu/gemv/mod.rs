//! Matrix times few activation rows: products of single weight rows, straight from their blocks.
//!
//! Bound by how fast the weights come from memory, so each is read once, in order, and unpacked in registers; the
//! hardware prefetches such a stream better than instructions for it did. Sums stay in vector accumulators over the
//! whole row. One file per type holds its inner loops; a type without them unpacks each block to memory
//! ([`dot_unpacked`]).

#[cfg(target_arch = "x86_64")]
mod block32;
#[cfg(target_arch = "x86_64")]
mod grid;
#[cfg(target_arch = "x86_64")]
mod run;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Implements [`CpuCode`] for a type whose loops are those of `block32` or `run`; elsewhere than on x86, of the
/// portable level.
macro_rules! cpu_code {
    ($frame:ident: $($ty:ident),*) => {$(
        impl $crate::cpu::types::CpuCode for $crate::blocks::$ty {
            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn unpack_avx2(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
                // SAFETY: the caller's promises are the callee's.
                unsafe { $crate::cpu::gemv::$frame::unpack_avx2::<Self>(block, codes, scales, mins) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn dot_avx2<const N: usize>(row: &[u8], x: &[$crate::cpu::gemv::RowInput<'_>; N]) -> [f32; N] {
                // SAFETY: the caller's promises are the callee's.
                unsafe { $crate::cpu::gemv::$frame::dot_avx2::<Self, N>(row, x) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn dot_avx512<const N: usize>(row: &[u8], x: &[$crate::cpu::gemv::RowInput<'_>; N]) -> [f32; N] {
                // SAFETY: the caller's promises are the callee's.
                unsafe { $crate::cpu::gemv::$frame::dot_avx512::<Self, N>(row, x) }
            }
        }
    )*};
}

mod fp4;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod low;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_k;
mod q5_0;
mod q5_k;
mod q6_k;
mod q8_0;
mod tq1_0;

pub(super) use super::input::RowInput;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::sum_avx2;

use super::input::{RowBuffers, SCALE_LEN};
use super::level::{Kernel, Level};
use super::linear::RowTask;
use super::types::CpuCode;
use crate::blocks::MAX_BLOCK_LEN;
use std::marker::PhantomData;

/// Activation rows that one pass over a weight row serves.
const TOKENS: usize = 4;

/// Multiplies the rows of a task with all activation rows.
pub(super) fn rows<T: CpuCode>(task: &RowTask<'_>, x: &RowBuffers) {
    // SAFETY: levels are checked where they enter.
    unsafe {
        task.isa.run(Multiply::<T> {
            task,
            x,
            of: PhantomData,
        })
    }
}

struct Multiply<'a, T> {
    task: &'a RowTask<'a>,
    x: &'a RowBuffers,
    of: PhantomData<T>,
}

impl<T: CpuCode> Kernel for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Level>(self) {
        let tokens = self.task.tokens;
        for first in (0..tokens).step_by(TOKENS) {
            // SAFETY: `run` is called with the features of `L` present.
            unsafe {
                match tokens - first {
                    1 => self.some::<L, 1>(first),
                    2 => self.some::<L, 2>(first),
                    _ => self.some::<L, TOKENS>(first),
                }
            }
        }
    }
}

impl<T: CpuCode> Multiply<'_, T> {
    /// The products with `N` activation rows from `first`, or as many as there are: the last one fills up, since its
    /// products cost little beside unpacking, and a loop for every number would cost as much code again.
    ///
    /// # Safety
    /// The CPU must have the features of `L`.
    #[inline(always)]
    unsafe fn some<L: Level, const N: usize>(&self, first: usize) {
        let x: [RowInput<'_>; N] = {
            let last = self.task.tokens - 1;
            std::array::from_fn(|t| self.x.row(self.task.input((first + t).min(last))))
        };
        for row in 0..self.task.rows.len() {
            // SAFETY: rows and inputs have `task.cols` values; a task's rows of the output are its own.
            unsafe {
                let dots = L::row_dot::<T, N>(self.task.row(row), &x);
                for (t, dot) in dots.into_iter().enumerate().take(self.task.tokens - first) {
                    self.task.out(first + t, row, 1)[0] = dot;
                }
            }
        }
    }
}

/// The row product of any type by way of `unpack_block`.
///
/// # Safety
/// The CPU must have the features of `L`.
#[inline(always)]
pub(super) unsafe fn dot_unpacked<T: CpuCode, L: Level, const N: usize>(
    row: &[u8],
    x: &[RowInput<'_>; N],
) -> [f32; N] {
    let (mut codes, mut scales, mut mins) = ([0u8; MAX_BLOCK_LEN], [0.0f32; 16], [0.0f32; 16]);
    let mut total = [[0.0; 8]; N];
    let mut total_min = [0.0; N];
    for (index, block) in row.chunks_exact(T::BYTES).enumerate() {
        // SAFETY: the caller's; one block and buffers for the longest.
        unsafe { L::unpack::<T>(block, &mut codes, &mut scales, &mut mins) };
        for (part, codes) in codes[..T::LEN]
            .as_chunks::<SCALE_LEN>()
            .0
            .iter()
            .enumerate()
        {
            let at = index * T::LEN / SCALE_LEN + part;
            let halves = [0, 16].map(|half| scales[(part * SCALE_LEN + half) / T::SUB_LEN]);
            for t in 0..N {
                let x_codes = &x[t].codes.as_chunks::<SCALE_LEN>().0[at];
                let scales = halves.map(|scale| scale * x[t].scales[at]);
                // SAFETY: the caller's.
                total[t] = unsafe { L::add_dot::<T>(codes, x_codes, scales, total[t]) };
            }
        }
        if T::HAS_MIN {
            let subs = T::LEN / T::SUB_LEN;
            for t in 0..N {
                let sums = if T::SUB_LEN == SCALE_LEN {
                    x[t].sums
                } else {
                    x[t].sums16
                };
                let sums = &sums[index * subs..][..subs];
                total_min[t] += mins
                    .iter()
                    .zip(sums)
                    .map(|(min, sum)| min * sum)
                    .sum::<f32>();
            }
        }
    }
    std::array::from_fn(|t| total[t].iter().sum::<f32>() - total_min[t])
}
