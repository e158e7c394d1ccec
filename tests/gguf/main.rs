//! The GGUF container: every error by name, valid files of all kinds, split models, writing, robustness against broken
//! files, the files of the shared cases, and gguf-py as the other side.

mod builder;
mod cases;
mod errors;
mod gguf_py;
mod memory;
mod metadata;
mod read;
mod robust;
mod rows;
mod shards;
mod write;

/// Counts what each thread has allocated, for the tests that bound it.
#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
