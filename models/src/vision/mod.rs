//! Image input: decoding pictures, turning them into what a vision tower reads, the towers, and finding their files.

pub mod discover;
mod encoder;
mod error;
pub mod image;
mod load;
pub mod mmproj;
pub mod processor;
pub mod towers;
mod video;

pub use encoder::{VideoRows, Vision};
pub use error::VisionError;
pub(crate) use load::load_vision;
pub use load::{MmprojDtype, VisionOptions};
pub use video::{TimedFrame, VideoInput};
