//! Sharing an operation among the threads of rayon's pool.
//!
//! Work is cut into about four tasks per thread; operations below [`MIN_TASK_NS`] run on the calling thread, since
//! waking another costs more.

use super::parallel;
use std::ops::Range;

/// Work worth a task of its own, in nanoseconds.
const MIN_TASK_NS: f64 = 20_000.0;

/// How many items of `ns` nanoseconds make the smallest task worth having.
pub(crate) fn least_items(ns: f64) -> usize {
    ((MIN_TASK_NS / ns).ceil() as usize).max(1)
}

/// How many of `n` items, `ns` nanoseconds each, make one task.
pub(crate) fn items_per_task(n: usize, ns: f64) -> usize {
    n.div_ceil(4 * rayon::current_num_threads())
        .max(least_items(ns))
}

/// Calls `f` on ranges covering `0..n`, at most `per_task` long, possibly at the same time.
pub(crate) fn for_each_range(n: usize, per_task: usize, f: &(impl Fn(Range<usize>) + Sync)) {
    let per_task = per_task.clamp(1, n.max(1));
    parallel::for_each(n.div_ceil(per_task), |i| {
        f(i * per_task..((i + 1) * per_task).min(n))
    });
}

/// A pointer that tasks writing disjoint parts may share.
#[derive(Clone, Copy)]
pub(crate) struct SharedMut<T>(*mut T);

// SAFETY: a `SharedMut` only hands out the pointer; whoever dereferences it promises that no two tasks touch the same
// element.
unsafe impl<T: Send> Send for SharedMut<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }

    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn ranges_cover_everything_once() {
        for (n, per_task) in [(0, 3), (1, 1), (7, 3), (9, 3), (100, 1), (5, 100)] {
            let seen = Mutex::new(vec![0; n]);
            for_each_range(n, per_task, &|r: Range<usize>| {
                assert!(r.len() <= per_task && !r.is_empty());
                for i in r {
                    seen.lock().unwrap()[i] += 1;
                }
            });
            assert_eq!(seen.into_inner().unwrap(), vec![1; n], "{n} by {per_task}");
        }
    }
}
