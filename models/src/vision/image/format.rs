//! Which format bytes are in, by their first bytes; extensions are not looked at.

use image::ImageFormat;

use super::{ImageError, Origin};

/// A format that is decoded.
pub(super) fn detect(bytes: &[u8], origin: &Origin) -> Result<ImageFormat, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty {
            origin: origin.clone(),
        });
    }
    if let Some(format) = supported(bytes) {
        return Ok(format);
    }
    Err(match refused(bytes) {
        Some((kind, advice)) => ImageError::UnsupportedFormat {
            origin: origin.clone(),
            kind,
            advice,
        },
        None => ImageError::UnknownFormat {
            origin: origin.clone(),
            start: hexadecimal(&bytes[..bytes.len().min(8)]),
        },
    })
}

/// Name of a format that is decoded.
pub(super) fn name(format: ImageFormat) -> &'static str {
    match format {
        ImageFormat::Png => "PNG",
        ImageFormat::Jpeg => "JPEG",
        ImageFormat::WebP => "WebP",
        ImageFormat::Gif => "GIF",
        ImageFormat::Bmp => "BMP",
        _ => "TIFF",
    }
}

fn supported(bytes: &[u8]) -> Option<ImageFormat> {
    let riff = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    let starts: [(&[u8], ImageFormat); 8] = [
        (b"\x89PNG\r\n\x1a\n", ImageFormat::Png),
        (b"\xff\xd8\xff", ImageFormat::Jpeg),
        (b"GIF87a", ImageFormat::Gif),
        (b"GIF89a", ImageFormat::Gif),
        (b"BM", ImageFormat::Bmp),
        (b"II*\0", ImageFormat::Tiff),
        (b"MM\0*", ImageFormat::Tiff),
        (b"II+\0", ImageFormat::Tiff),
    ];
    let start = starts
        .into_iter()
        .find(|(start, _)| bytes.starts_with(start))
        .map(|(_, format)| format);
    start.or_else(|| riff.then_some(ImageFormat::WebP))
}

/// Kind and advice for what people take for a readable image.
fn refused(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    const CONVERT: &str = "convert it to PNG or JPEG";
    if bytes.get(4..8) == Some(b"ftyp") {
        return Some(match bytes.get(8..12)? {
            b"avif" | b"avis" => ("an AVIF image", CONVERT),
            b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
                ("a HEIC image", CONVERT)
            }
            _ => (
                "a video or another MP4-like file",
                "extract its frames as PNG or JPEG files",
            ),
        });
    }
    let starts: [(&[u8], (&str, &str)); 11] = [
        (b"\xff\x0a", ("a JPEG XL image", CONVERT)),
        (b"\0\0\0\x0cJXL ", ("a JPEG XL image", CONVERT)),
        (b"\0\0\0\x0cjP  ", ("a JPEG 2000 image", CONVERT)),
        (b"\0\0\x01\0", ("an icon file", CONVERT)),
        (b"8BPS", ("a Photoshop file", "export it as PNG or JPEG")),
        (b"%PDF", ("a PDF document", "render its pages as PNG files")),
        (b"qoif", ("a QOI image", CONVERT)),
        (
            b"\x1aE\xdf\xa3",
            (
                "a Matroska or WebM video",
                "extract its frames as PNG or JPEG files",
            ),
        ),
        (b"GGUF", ("a GGUF file", "give the image, not the model")),
        (b"PK\x03\x04", ("a ZIP archive", "unpack it")),
        (b"\x1f\x8b", ("a gzip archive", "unpack it")),
    ];
    if let Some((_, refusal)) = starts
        .into_iter()
        .find(|(start, _)| bytes.starts_with(start))
    {
        return Some(refusal);
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(512)]).to_ascii_lowercase();
    if text.contains("<svg") {
        Some(("an SVG drawing", "render it as PNG"))
    } else if text.trim_start().starts_with("<!doctype html")
        || text.trim_start().starts_with("<html")
    {
        Some((
            "an HTML page",
            "it may be an error page saved in place of the image: download it again",
        ))
    } else {
        None
    }
}

/// Size written at a fixed place of the header, so that it is known before any decoder runs.
pub(super) fn declared_size(format: ImageFormat, bytes: &[u8]) -> Option<(u64, u64)> {
    let field = |at: usize, len: usize| bytes.get(at..at + len);
    let big = |at| field(at, 4).map(|b| u64::from(u32::from_be_bytes([b[0], b[1], b[2], b[3]])));
    let little = |at| {
        field(at, 4).map(|b| u64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]]).unsigned_abs()))
    };
    let short = |at| field(at, 2).map(|b| u64::from(u16::from_le_bytes([b[0], b[1]])));
    match format {
        ImageFormat::Png if field(12, 4) == Some(b"IHDR") => Some((big(16)?, big(20)?)),
        ImageFormat::Gif => Some((short(6)?, short(8)?)),
        // The 12-byte header of OS/2 has 16-bit sides.
        ImageFormat::Bmp if little(14) == Some(12) => Some((short(18)?, short(20)?)),
        ImageFormat::Bmp => Some((little(18)?, little(22)?)),
        _ => None,
    }
}

/// Whether a JPEG has an end-of-image marker behind its first scan. Decoders fill what is missing with grey.
pub(super) fn jpeg_is_whole(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[0xff, marker]) = bytes.get(at..at + 2) {
        match marker {
            0xff => at += 1,
            0xda => return bytes[at + 2..].windows(2).any(|pair| pair == [0xff, 0xd9]),
            0x01 | 0xd0..=0xd8 => at += 2,
            _ => match bytes.get(at + 2..at + 4) {
                Some(&[high, low]) => at += 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => return false,
            },
        }
    }
    false
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}
