//! Vision files: what they say, which model they belong to, and how they are found.
//!
//! The files are written by the tests; those of the shared cases are read where they are there.

mod cases;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod embedded;
mod files;
mod fit;
mod folders;
mod matching;
mod values;
