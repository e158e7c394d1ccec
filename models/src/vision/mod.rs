//! Image input: decoding pictures, turning them into what a vision tower reads, and finding the tower's file.

pub mod discover;
pub mod image;
pub mod mmproj;
pub mod processor;
