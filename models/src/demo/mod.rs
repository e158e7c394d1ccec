//! A tiny vision model that comes with the crate, and the pictures it was trained on.
//!
//! Two GGUF files, about two megabytes, that describe pictures of coloured shapes. They are `qwen3vl` files like any
//! other; the example `train_demo` makes them.
//!
//! ```
//! use burn_gguf_models::demo::{Picture, Split};
//!
//! let picture = Picture::new(Split::HeldOut, 4);
//! assert_eq!(picture.caption(), "a green triangle left of an orange star");
//! ```

mod pictures;
mod random;
mod scene;

pub use pictures::{CELLS, Picture, SIDE, Split};
pub use scene::{Colour, Group, Relation, Scene, Shape};

/// What to ask. The model knows these requests only.
pub const PROMPTS: [&str; 4] = [
    "Describe the picture.",
    "What is in the picture?",
    "What do you see?",
    "Caption this image.",
];
