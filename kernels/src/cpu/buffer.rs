//! Scratch memory that starts at a cache line, so that no register read from it crosses into a second one.

use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: bytes, without padding.
unsafe impl Zeroable for Line {}
// SAFETY: as above.
unsafe impl Pod for Line {}

/// Numbers from the start of a cache line.
#[derive(Clone)]
pub(super) struct Buffer<T> {
    lines: Vec<Line>,
    of: PhantomData<T>,
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            of: PhantomData,
        }
    }
}

impl<T: Pod> Buffer<T> {
    /// Makes it at least `len` long. It never shrinks: growing back would clear it each time.
    pub(super) fn grow(&mut self, len: usize) {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        if self.lines.len() < lines {
            self.lines.resize(lines, Line::zeroed());
        }
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.lines)
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}
