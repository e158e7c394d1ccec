//! Content hashes, by which embeddings are cached.

use std::fmt;

use image::RgbImage;
use sha2::{Digest, Sha256};

/// SHA-256 of a picture's size and pixels: equal for equal pictures however they were stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// Hash of pictures in order; one for a still image.
    pub fn of<'a>(pictures: impl IntoIterator<Item = &'a RgbImage>) -> Self {
        let mut hasher = Sha256::new();
        for picture in pictures {
            hasher.update(picture.width().to_le_bytes());
            hasher.update(picture.height().to_le_bytes());
            hasher.update(picture.as_raw());
        }
        Self(hasher.finalize().into())
    }

    /// Of its 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ContentHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_counts_as_well_as_pixels() {
        let hash = |width, height| ContentHash::of([&RgbImage::new(width, height)]);
        assert_eq!(hash(2, 3), hash(2, 3));
        assert_ne!(hash(2, 3), hash(3, 2));
        assert_eq!(hash(1, 1).to_string().len(), 64);
    }
}
