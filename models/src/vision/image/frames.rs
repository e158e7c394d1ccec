//! Animations, and folders of frames, as videos.

use std::cmp::Ordering;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use image::codecs::gif::GifDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::{AnimationDecoder, DynamicImage, Frames, ImageDecoder, ImageFormat};

use super::{DecodeOptions, Image, ImageError, ImageInput, Origin, decode};

/// A frame of an animation.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The whole picture at that time.
    pub image: Image,
    /// How long it is shown; zero for a still image.
    pub duration: Duration,
}

impl Frame {
    /// A still image.
    pub fn still(image: Image) -> Self {
        Self {
            image,
            duration: Duration::ZERO,
        }
    }
}

/// All frames of the bytes.
pub(super) fn decode(
    bytes: &[u8],
    origin: &Origin,
    options: &DecodeOptions,
) -> Result<Vec<Frame>, ImageError> {
    let format = decode::check(bytes, origin, options)?;
    let Some(frames) = animation(bytes, format, origin, options)? else {
        return Ok(vec![Frame::still(decode::picture(bytes, origin, options)?)]);
    };
    let mut out = Vec::new();
    let mut memory = 0u64;
    for (index, frame) in frames.enumerate() {
        if index >= options.max_frames {
            return Err(ImageError::TooManyFrames {
                origin: origin.clone(),
                limit: options.max_frames,
            });
        }
        let origin = Origin::Frame {
            index,
            of: Box::new(origin.clone()),
        };
        let frame = frame.map_err(|error| options.refusal(error, format, &origin))?;
        let (numerator, denominator) = frame.delay().numer_denom_ms();
        let millis = u64::from(numerator) / u64::from(denominator.max(1));
        // Players show frames without a duration for a tenth of a second.
        let duration = Duration::from_millis(if millis == 0 { 100 } else { millis });
        let picture = DynamicImage::from(frame.into_buffer());
        memory += u64::from(picture.width()) * u64::from(picture.height()) * 3;
        if memory > options.max_memory {
            let limit = options.max_memory;
            return Err(ImageError::TooMuchMemory {
                origin,
                needed: Some(memory),
                limit,
            });
        }
        out.push(Frame {
            image: Image::from_dynamic(picture, origin, options)?,
            duration,
        });
    }
    if out.is_empty() {
        let reason = "it has no frame".to_owned();
        return Err(ImageError::Broken {
            origin: origin.clone(),
            format: super::format::name(format),
            reason,
        });
    }
    Ok(out)
}

/// The frames of a format that has them, after the checks on its size.
fn animation<'a>(
    bytes: &'a [u8],
    format: ImageFormat,
    origin: &Origin,
    options: &DecodeOptions,
) -> Result<Option<Frames<'a>>, ImageError> {
    let refusal = |error| options.refusal(error, format, origin);
    let reader = Cursor::new(bytes);
    let check = |decoder: &dyn ImageDecoder| {
        let (width, height) = decoder.dimensions();
        options.check_size(width.into(), height.into(), origin)
    };
    Ok(match format {
        ImageFormat::Gif => {
            let mut decoder = GifDecoder::new(reader).map_err(refusal)?;
            check(&decoder)?;
            decoder.set_limits(options.limits()).map_err(refusal)?;
            Some(decoder.into_frames())
        }
        ImageFormat::WebP => {
            let mut decoder = WebPDecoder::new(reader).map_err(refusal)?;
            check(&decoder)?;
            decoder.set_limits(options.limits()).map_err(refusal)?;
            decoder.has_animation().then(|| decoder.into_frames())
        }
        ImageFormat::Png => {
            let decoder = PngDecoder::with_limits(reader, options.limits()).map_err(refusal)?;
            check(&decoder)?;
            match decoder.is_apng().map_err(refusal)? {
                true => Some(decoder.apng().map_err(refusal)?.into_frames()),
                false => None,
            }
        }
        _ => None,
    })
}

/// The images of a folder in the order of their names, where numbers count as numbers (`frame2` before `frame10`).
pub fn frame_folder(folder: &Path) -> Result<Vec<ImageInput>, ImageError> {
    const EXTENSIONS: [&str; 9] = [
        "png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff", "jfif",
    ];
    let unreadable = |error| ImageError::Unreadable {
        origin: Origin::File(folder.to_owned()),
        error,
    };
    let mut paths = Vec::<PathBuf>::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path
            .extension()
            .map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(ImageError::NoFrames {
            path: folder.to_owned(),
        });
    }
    paths.sort_by(|left, right| natural(&left.to_string_lossy(), &right.to_string_lossy()));
    Ok(paths.into_iter().map(ImageInput::Path).collect())
}

/// Compares runs of digits by value, the rest by character, equal values by length.
fn natural(left: &str, right: &str) -> Ordering {
    let split = |text: &str| -> Vec<(String, String)> {
        let mut parts = vec![(String::new(), String::new())];
        for character in text.chars() {
            let last = parts.len() - 1;
            if character.is_ascii_digit() {
                parts[last].1.push(character);
            } else if parts[last].1.is_empty() {
                parts[last].0.push(character);
            } else {
                parts.push((character.to_string(), String::new()));
            }
        }
        parts
    };
    let by_value = |left: &str, right: &str| {
        let (left, right) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
        left.len().cmp(&right.len()).then_with(|| left.cmp(right))
    };
    let (left_parts, right_parts) = (split(left), split(right));
    for (left, right) in left_parts.iter().zip(&right_parts) {
        let order = left
            .0
            .cmp(&right.0)
            .then_with(|| by_value(&left.1, &right.1));
        if order != Ordering::Equal {
            return order;
        }
    }
    left_parts
        .len()
        .cmp(&right_parts.len())
        .then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["f10.png", "f2.png", "f1.png", "f1b.png", "a.png", "f02.png"];
        names.sort_by(|left, right| natural(left, right));
        assert_eq!(
            names,
            ["a.png", "f1.png", "f1b.png", "f02.png", "f2.png", "f10.png"]
        );
    }
}
