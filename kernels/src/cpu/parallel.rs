//! Runs numbered tasks on rayon's current pool.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `task` once for each number below `count`, from as many threads as the pool has, the caller among them.
///
/// Threads take the next number from a shared counter, so one that is slow, or late because another process has its
/// core, holds up nobody: it takes fewer tasks. Inside a pool (`ThreadPool::install`) this is cheapest, because the
/// caller can then take back helpers that have not started by the time the work is done.
pub(super) fn for_each(count: usize, task: impl Fn(usize) + Sync) {
    let threads = rayon::current_num_threads().min(count);
    if threads <= 1 {
        return (0..count).for_each(task);
    }
    let next = AtomicUsize::new(0);
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            break;
        }
        task(index);
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| work());
        }
        work();
    });
}
