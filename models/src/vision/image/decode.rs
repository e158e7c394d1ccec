//! From bytes to an upright RGB picture, within limits that hold before pixels are allocated.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::{Alpha, Image, ImageError, Origin, format};

/// Limits and conventions of decoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Largest width times height.
    pub max_pixels: u64,
    /// Largest width or height.
    pub max_side: u32,
    /// Largest encoded size in bytes.
    pub max_file_bytes: u64,
    /// Largest memory for decoded pixels in bytes; all frames of an animation together.
    pub max_memory: u64,
    /// Largest number of frames of an animation.
    pub max_frames: usize,
    /// What becomes of an alpha channel.
    pub alpha: Alpha,
    /// Whether EXIF orientation is applied.
    pub orientation: bool,
}

impl Default for DecodeOptions {
    /// 2^27 pixels, sides of 65535, 256 MiB encoded, 1 GiB decoded, 4096 frames; alpha on white, upright.
    fn default() -> Self {
        Self {
            max_pixels: 1 << 27,
            max_side: 65_535,
            max_file_bytes: 256 << 20,
            max_memory: 1 << 30,
            max_frames: 4096,
            alpha: Alpha::OnWhite,
            orientation: true,
        }
    }
}

impl DecodeOptions {
    /// As llama.cpp decodes: alpha dropped, orientation ignored.
    pub fn llama_cpp() -> Self {
        Self {
            alpha: Alpha::Dropped,
            orientation: false,
            ..Self::default()
        }
    }

    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(self.max_memory);
        limits
    }

    /// Refuses a size before anything is allocated for it.
    pub(super) fn check_size(
        &self,
        width: u64,
        height: u64,
        origin: &Origin,
    ) -> Result<(), ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::NoPixels {
                origin: origin.clone(),
                width,
                height,
            });
        }
        if width.saturating_mul(height) > self.max_pixels {
            return Err(ImageError::TooManyPixels {
                origin: origin.clone(),
                width,
                height,
                limit: self.max_pixels,
            });
        }
        // Resampling a strip holds a picture of its old length and new width.
        if width.max(height) > self.max_side.into() {
            return Err(ImageError::TooLong {
                origin: origin.clone(),
                width,
                height,
                limit: self.max_side,
            });
        }
        Ok(())
    }

    /// Translates a decoder's error.
    pub(super) fn refusal(
        &self,
        error: image::ImageError,
        format: ImageFormat,
        origin: &Origin,
    ) -> ImageError {
        match error {
            image::ImageError::Limits(_) => ImageError::TooMuchMemory {
                origin: origin.clone(),
                needed: None,
                limit: self.max_memory,
            },
            error => ImageError::Broken {
                origin: origin.clone(),
                format: format::name(format),
                reason: error.to_string(),
            },
        }
    }
}

/// Format of the bytes, after the checks that need no decoder.
pub(super) fn check(
    bytes: &[u8],
    origin: &Origin,
    options: &DecodeOptions,
) -> Result<ImageFormat, ImageError> {
    let format = format::detect(bytes, origin)?;
    if let Some((width, height)) = format::declared_size(format, bytes) {
        options.check_size(width, height, origin)?;
    }
    if format == ImageFormat::Jpeg && !format::jpeg_is_whole(bytes) {
        let reason = "it ends before its end-of-image marker (truncated)".to_owned();
        return Err(ImageError::Broken {
            origin: origin.clone(),
            format: format::name(format),
            reason,
        });
    }
    Ok(format)
}

/// Decodes a still picture.
pub(super) fn picture(
    bytes: &[u8],
    origin: &Origin,
    options: &DecodeOptions,
) -> Result<Image, ImageError> {
    let format = check(bytes, origin, options)?;
    let refusal = |error| options.refusal(error, format, origin);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(options.limits());
    let mut decoder = reader.into_decoder().map_err(refusal)?;
    let (width, height) = decoder.dimensions();
    options.check_size(width.into(), height.into(), origin)?;
    let needed = decoder.total_bytes();
    if needed > options.max_memory {
        return Err(ImageError::TooMuchMemory {
            origin: origin.clone(),
            needed: Some(needed),
            limit: options.max_memory,
        });
    }
    // Metadata that cannot be read leaves the picture as it is.
    let orientation = match options.orientation {
        true => decoder.orientation().unwrap_or(Orientation::NoTransforms),
        false => Orientation::NoTransforms,
    };
    let mut picture = DynamicImage::from_decoder(decoder).map_err(refusal)?;
    picture.apply_orientation(orientation);
    Image::from_dynamic(picture, origin.clone(), options)
}
