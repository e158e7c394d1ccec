//! Where pictures come from.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use image::{DynamicImage, RgbImage};

use super::{ContentHash, DecodeOptions, Frame, ImageError, alpha, data_url, decode, frames};

/// A picture that is not decoded yet.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageInput {
    /// A file.
    Path(PathBuf),
    /// The bytes of a file.
    Bytes(Arc<[u8]>),
    /// A `data:` URL.
    DataUrl(String),
    /// A web address. Decoding it is an error that says so.
    Remote(String),
    /// A picture in memory.
    Decoded(Arc<DynamicImage>),
}

/// Where a picture came from, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// Bytes.
    Bytes {
        /// How many.
        len: usize,
    },
    /// A `data:` URL.
    DataUrl {
        /// Its first characters.
        start: String,
        /// Its length.
        len: usize,
    },
    /// A picture in memory.
    Memory,
    /// A frame of an animation.
    Frame {
        /// Counted from 0.
        index: usize,
        /// The animation.
        of: Box<Origin>,
    },
}

impl Origin {
    pub(super) fn of_data_url(url: &str) -> Self {
        Self::DataUrl {
            start: url.chars().take(32).collect(),
            len: url.len(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(out, "the image file `{}`", path.display()),
            Self::Bytes { len } => write!(out, "the image of {len} bytes"),
            Self::DataUrl { start, len } => {
                write!(out, "the data URL `{start}...` of {len} characters")
            }
            Self::Memory => out.write_str("the image in memory"),
            Self::Frame { index, of } => write!(out, "frame {index} of {of}"),
        }
    }
}

impl ImageInput {
    /// A `data:` URL, a web address, a `file://` URL or a path, as a user writes it.
    pub fn parse(text: &str) -> Self {
        let scheme = |scheme: &str| {
            text.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        if data_url::is_data_url(text) {
            Self::DataUrl(text.to_owned())
        } else if scheme("http://") || scheme("https://") {
            Self::Remote(text.to_owned())
        } else if scheme("file://") {
            Self::Path(PathBuf::from(&text["file://".len()..]))
        } else {
            Self::Path(PathBuf::from(text))
        }
    }

    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Path(path) => Origin::File(path.clone()),
            Self::Bytes(bytes) => Origin::Bytes { len: bytes.len() },
            Self::DataUrl(url) => Origin::of_data_url(url),
            Self::Remote(url) => Origin::File(PathBuf::from(url)),
            Self::Decoded(_) => Origin::Memory,
        }
    }

    /// Reads and decodes the picture: upright, 8-bit RGB; the first frame of an animation.
    pub fn decode(&self, options: &DecodeOptions) -> Result<Image, ImageError> {
        let origin = self.origin();
        match self {
            Self::Decoded(picture) => {
                Image::from_dynamic(picture.as_ref().clone(), origin, options)
            }
            _ => decode::picture(&self.bytes(options)?, &origin, options),
        }
    }

    /// Reads and decodes all frames of a GIF, APNG or animated WebP; one frame of anything else.
    pub fn decode_frames(&self, options: &DecodeOptions) -> Result<Vec<Frame>, ImageError> {
        match self {
            Self::Decoded(_) => Ok(vec![Frame::still(self.decode(options)?)]),
            _ => frames::decode(&self.bytes(options)?, &self.origin(), options),
        }
    }

    fn bytes(&self, options: &DecodeOptions) -> Result<Arc<[u8]>, ImageError> {
        let limit = options.max_file_bytes;
        match self {
            Self::Path(path) => read(path, limit).map(Arc::from),
            Self::Bytes(bytes) if bytes.len() as u64 > limit => Err(ImageError::TooManyBytes {
                origin: self.origin(),
                limit,
            }),
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::DataUrl(url) => data_url::decode(url, &self.origin(), limit).map(Arc::from),
            Self::Remote(url) => Err(ImageError::Remote { url: url.clone() }),
            Self::Decoded(_) => unreachable!("callers handle pictures in memory themselves"),
        }
    }
}

/// The file's bytes. Devices and pipes have no length beforehand, so the limit is on what is read.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ImageError> {
    let origin = Origin::File(path.to_owned());
    let unreadable = |error| ImageError::Unreadable {
        origin: origin.clone(),
        error,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        return Err(ImageError::TooManyBytes { origin, limit });
    }
    Ok(bytes)
}

impl From<PathBuf> for ImageInput {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&Path> for ImageInput {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<&str> for ImageInput {
    /// [`ImageInput::parse`].
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

impl From<Vec<u8>> for ImageInput {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<DynamicImage> for ImageInput {
    fn from(picture: DynamicImage) -> Self {
        Self::Decoded(Arc::new(picture))
    }
}

impl From<RgbImage> for ImageInput {
    fn from(picture: RgbImage) -> Self {
        DynamicImage::from(picture).into()
    }
}

/// A decoded picture: upright, 8-bit RGB, at least one pixel. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Image {
    pixels: Arc<RgbImage>,
    origin: Origin,
    hash: OnceLock<ContentHash>,
}

impl Image {
    pub(super) fn from_dynamic(
        picture: DynamicImage,
        origin: Origin,
        options: &DecodeOptions,
    ) -> Result<Self, ImageError> {
        options.check_size(picture.width().into(), picture.height().into(), &origin)?;
        let pixels = alpha::to_rgb8(picture, options.alpha);
        Ok(Self {
            pixels: Arc::new(pixels),
            origin,
            hash: OnceLock::new(),
        })
    }

    /// A picture in memory, as it is.
    pub fn from_rgb(pixels: RgbImage) -> Result<Self, ImageError> {
        Self::from_dynamic(pixels.into(), Origin::Memory, &DecodeOptions::default())
    }

    /// The pixels.
    pub fn pixels(&self) -> &RgbImage {
        &self.pixels
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.pixels.width()
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.pixels.height()
    }

    /// Where it came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Hash of size and pixels, computed on first use.
    pub fn hash(&self) -> ContentHash {
        *self.hash.get_or_init(|| ContentHash::of([self.pixels()]))
    }
}
