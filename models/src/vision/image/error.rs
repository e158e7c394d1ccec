//! What can be wrong with a picture.

use std::path::PathBuf;

use super::Origin;

/// Why a picture was refused. Every message names the picture, what is wrong with it, and what helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file cannot be read.
    #[error("{origin} cannot be read: {error}; check the path and its permissions")]
    Unreadable {
        /// The picture.
        origin: Origin,
        /// What the system says.
        error: std::io::Error,
    },
    /// A web address: nothing is downloaded.
    #[error("`{url}` is a web address, which is not fetched; download the image and give its path")]
    Remote {
        /// The address.
        url: String,
    },
    /// There are no bytes.
    #[error("{origin} is empty (0 bytes); save or download it again")]
    Empty {
        /// The picture.
        origin: Origin,
    },
    /// The bytes are of a known kind that is not decoded.
    #[error(
        "{origin} is {kind}, which is not supported; {advice} (PNG, JPEG, WebP, GIF, BMP and TIFF are read)"
    )]
    UnsupportedFormat {
        /// The picture.
        origin: Origin,
        /// The kind, with its article.
        kind: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The bytes start like no image format.
    #[error(
        "{origin} is no image of a known format (it starts with {start}); \
         PNG, JPEG, WebP, GIF, BMP and TIFF are read, whatever the extension"
    )]
    UnknownFormat {
        /// The picture.
        origin: Origin,
        /// The first bytes, in hexadecimal.
        start: String,
    },
    /// The format is right, its contents are not.
    #[error("{origin} is a broken {format} image: {reason}; save or download it again")]
    Broken {
        /// The picture.
        origin: Origin,
        /// Name of the format.
        format: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// A `data:` URL that is not well formed.
    #[error("{origin} is not well formed: {reason}; expected `data:image/png;base64,...`")]
    DataUrl {
        /// The picture.
        origin: Origin,
        /// What is wrong.
        reason: String,
    },
    /// Width or height is 0.
    #[error("{origin} has no pixels ({width} x {height})")]
    NoPixels {
        /// The picture.
        origin: Origin,
        /// Width.
        width: u64,
        /// Height.
        height: u64,
    },
    /// More pixels than the limit.
    #[error(
        "{origin} is {width} x {height} pixels, more than the {limit} allowed; scale it down first"
    )]
    TooManyPixels {
        /// The picture.
        origin: Origin,
        /// Width.
        width: u64,
        /// Height.
        height: u64,
        /// Pixels allowed.
        limit: u64,
    },
    /// A side is longer than the limit.
    #[error(
        "{origin} is {width} x {height} pixels, but sides of up to {limit} are allowed; scale it down or crop it"
    )]
    TooLong {
        /// The picture.
        origin: Origin,
        /// Width.
        width: u64,
        /// Height.
        height: u64,
        /// Longest side allowed.
        limit: u32,
    },
    /// Decoding would take more memory than the limit.
    #[error("{origin} would take {} to decode, more than the {limit} bytes allowed; scale it down first",
        needed.map_or("too much memory".to_owned(), |needed| format!("{needed} bytes")))]
    TooMuchMemory {
        /// The picture.
        origin: Origin,
        /// Bytes needed, where known.
        needed: Option<u64>,
        /// Bytes allowed.
        limit: u64,
    },
    /// The encoded picture is larger than the limit.
    #[error("{origin} is larger than the {limit} bytes allowed for an encoded image")]
    TooManyBytes {
        /// The picture.
        origin: Origin,
        /// Bytes allowed.
        limit: u64,
    },
    /// An animation has more frames than the limit.
    #[error("{origin} has more than {limit} frames; leave some out")]
    TooManyFrames {
        /// The picture.
        origin: Origin,
        /// Frames allowed.
        limit: usize,
    },
    /// One side is too many times as long as the other.
    #[error(
        "{origin} is {width} x {height}: one side is more than {limit} times the other; crop it"
    )]
    Ratio {
        /// The picture.
        origin: Origin,
        /// Width.
        width: u32,
        /// Height.
        height: u32,
        /// Largest ratio allowed.
        limit: u32,
    },
    /// No size within the token limit fits the picture.
    #[error(
        "{origin} is {width} x {height}, which takes {tokens} tokens, more than the {limit} allowed; crop it"
    )]
    TooManyTokens {
        /// The picture.
        origin: Origin,
        /// Width.
        width: u32,
        /// Height.
        height: u32,
        /// Tokens needed.
        tokens: u64,
        /// Tokens allowed.
        limit: u64,
    },
    /// An already resized picture does not consist of whole tokens.
    #[error(
        "{origin} is {width} x {height}, not a multiple of {multiple} as an already resized image has to be"
    )]
    NotAligned {
        /// The picture.
        origin: Origin,
        /// Width.
        width: u32,
        /// Height.
        height: u32,
        /// What both sides have to be a multiple of.
        multiple: u32,
    },
    /// A folder of frames holds none.
    #[error("the folder `{}` holds no file that looks like an image", path.display())]
    NoFrames {
        /// The folder.
        path: PathBuf,
    },
    /// A video of a family that reads single images only.
    #[error("{projector} reads single images, not videos; give the frames as images")]
    NoVideo {
        /// The projector.
        projector: &'static str,
    },
    /// Frames of a video differ in size.
    #[error(
        "{origin} is {width} x {height}, but the first frame is {first_width} x {first_height}"
    )]
    FrameSize {
        /// The frame.
        origin: Origin,
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// Width of the first.
        first_width: u32,
        /// Height of the first.
        first_height: u32,
    },
}
