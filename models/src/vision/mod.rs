//! Image input: decoding pictures, and turning them into what a vision tower reads.

pub mod image;
pub mod processor;
