//! Nothing is read or written outside the slices given: all of them end, or start, at a page that cannot be touched.

use super::*;
use std::ffi::{c_int, c_long, c_void};

// Declared here: three functions of every C library do not call for a dependency.
unsafe extern "C" {
    fn mmap(
        addr: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: c_long,
    ) -> *mut c_void;
    fn mprotect(addr: *mut c_void, len: usize, protection: c_int) -> c_int;
    fn munmap(addr: *mut c_void, len: usize) -> c_int;
}

const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 3;
const MAP_PRIVATE: c_int = 2;
#[cfg(target_os = "linux")]
const MAP_ANONYMOUS: c_int = 0x20;
#[cfg(not(target_os = "linux"))]
const MAP_ANONYMOUS: c_int = 0x1000;

/// A multiple of every page size in use.
const PAGE: usize = 1 << 16;

/// At which end of its memory a slice lies.
#[derive(Clone, Copy, Debug)]
enum Side {
    Start,
    End,
}

/// Memory between two pages that cannot be touched.
struct Guarded {
    base: *mut u8,
    len: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Self {
        let len = bytes.next_multiple_of(PAGE).max(PAGE);
        // SAFETY: new memory, and protection changed inside it only.
        unsafe {
            let whole = mmap(
                std::ptr::null_mut(),
                len + 2 * PAGE,
                PROT_READ_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(whole as isize, -1, "mmap");
            let base = whole.cast::<u8>().add(PAGE);
            assert_eq!(mprotect(whole, PAGE, PROT_NONE), 0);
            assert_eq!(mprotect(base.add(len).cast(), PAGE, PROT_NONE), 0);
            Self { base, len }
        }
    }

    /// A copy of `values` at one end.
    fn place<T: Copy>(&mut self, values: &[T], side: Side) -> &mut [T] {
        let size = size_of_val(values);
        assert!(size <= self.len);
        let at = match side {
            Side::Start => 0,
            Side::End => self.len - size,
        };
        // SAFETY: that part is inside and aligned, since sizes are multiples of the alignment and ends of pages too.
        unsafe {
            let start = self.base.add(at).cast::<T>();
            start.copy_from_nonoverlapping(values.as_ptr(), values.len());
            std::slice::from_raw_parts_mut(start, values.len())
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: all of what was mapped, which nothing borrows any more.
        unsafe { munmap(self.base.sub(PAGE).cast(), self.len + 2 * PAGE) };
    }
}

/// Every operation at every level with one matrix, all slices at `side`.
fn check(ty: GgmlType, rows: usize, cols: usize, side: Side) {
    const EXPERTS: usize = 2;
    let matrix = random_blocks(ty, rows * cols / ty.block_len(), 3);
    let (mut w_memory, mut x_memory, mut y_memory) = (
        Guarded::new(EXPERTS * matrix.len()),
        Guarded::new(4 * 9 * cols.max(rows)),
        Guarded::new(4 * 9 * cols.max(rows) * EXPERTS),
    );
    let bytes = &*w_memory.place(&matrix, side);
    for isa in levels() {
        let mut want = vec![0.0; rows * cols];
        crate::cpu::dequantize::dequantize_as(ty, bytes, &mut want, isa).unwrap();
        let mut out_memory = Guarded::new(4 * rows * cols);
        let out = out_memory.place(&vec![f32::NAN; rows * cols], side);
        crate::cpu::dequantize::dequantize_as(ty, bytes, out, isa).unwrap();
        assert!(
            out.iter()
                .zip(&want)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
        for n in [1, 2, 3, 5, 9] {
            for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
                let matrix = Matrix {
                    ty,
                    bytes,
                    rows,
                    cols,
                };
                let x = &*x_memory.place(&noise(n * cols, 5), side);
                let y = y_memory.place(&vec![f32::NAN; n * rows], side);
                linear_many_at(isa, &[matrix], x, n, &mut [y], arithmetic).unwrap();
                let elsewhere = (bytes.to_vec(), x.to_vec());
                let matrix = Matrix {
                    bytes: &elsewhere.0,
                    ..matrix
                };
                let mut want = vec![f32::NAN; n * rows];
                linear_many_at(
                    isa,
                    &[matrix],
                    &elsewhere.1,
                    n,
                    &mut [&mut want],
                    arithmetic,
                )
                .unwrap();
                let equal = y.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(
                    equal,
                    "{ty} {isa:?} {arithmetic:?} {n} rows at the {side:?}"
                );
            }
        }
    }
    let out = y_memory.place(&vec![f32::NAN; 2 * cols], side);
    gather_rows(ty, bytes, cols, &[rows as i64 - 1, 0], out).unwrap();
    let stack = [&matrix[..], &matrix[..]].concat();
    let bytes = &*w_memory.place(&stack, side);
    let stack = Experts {
        ty,
        bytes,
        experts: EXPERTS,
        rows,
        cols,
    };
    for isa in levels() {
        for tokens in [1, 9] {
            let x = &*x_memory.place(&noise(tokens * cols, 5), side);
            let y = y_memory.place(&vec![f32::NAN; tokens * EXPERTS * rows], side);
            let ids: Vec<i64> = (0..tokens * EXPERTS)
                .map(|i| (i % EXPERTS) as i64)
                .collect();
            let x = ExpertInput::Tokens(x);
            linear_experts_many_at(isa, &[stack], x, &ids, EXPERTS, &mut [y], Arithmetic::Fast)
                .unwrap();
        }
    }
}

#[test]
fn nothing_outside_the_slices_is_touched() {
    for &ty in blocks::IMPLEMENTED {
        for side in [Side::Start, Side::End] {
            for cols in [ty.block_len().max(32), 256 + ty.block_len().max(32)] {
                if ty.row_bytes(cols).is_some() {
                    check(ty, 5, cols, side);
                }
            }
        }
    }
}
