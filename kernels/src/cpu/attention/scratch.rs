//! Working memory, kept per thread so that a call allocates nothing once warm.

use std::cell::Cell;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    static LINES: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// This thread's memory, given back when dropped.
pub(super) struct Scratch(Vec<Line>);

impl Scratch {
    pub(super) fn take() -> Scratch {
        Scratch(LINES.take())
    }

    /// One slice per entry of `sizes`, each of at least so many elements and beginning at a cache line, with arbitrary
    /// content.
    pub(super) fn split<const N: usize>(&mut self, sizes: [usize; N]) -> [&mut [f32]; N] {
        let lines = sizes.map(|n| n.div_ceil(16));
        let total = lines.iter().sum();
        if self.0.len() < total {
            self.0.resize(total, Line([0.0; 16]));
        }
        let mut rest = &mut self.0[..];
        lines.map(|n| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n);
            rest = tail;
            // SAFETY: a `Line` is sixteen `f32` without padding.
            unsafe {
                std::slice::from_raw_parts_mut(head.as_mut_ptr().cast::<f32>(), head.len() * 16)
            }
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        LINES.set(std::mem::take(&mut self.0));
    }
}
