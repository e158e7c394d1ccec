//! The CPU threads everything runs on.

use crate::commands::CommandResult;

/// Starting more takes longer than any model gains by it.
const MAX_THREADS: usize = 1024;

/// Runs `body` on a pool of `threads` threads (default: one a core), as one of its workers, so that the model's
/// parallel regions start without a hand-over between threads.
pub fn run(threads: Option<usize>, body: impl FnOnce() -> CommandResult + Send) -> CommandResult {
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(threads) = threads {
        if threads == 0 {
            return Err("--threads must be at least 1".into());
        }
        if threads > MAX_THREADS {
            return Err(format!("--threads {threads} is over {MAX_THREADS}").into());
        }
        pool = pool.num_threads(threads);
    }
    pool.build_global()?;
    let mut result = Ok(());
    rayon::scope(|_| result = body());
    result
}
