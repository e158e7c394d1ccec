//! Pictures that break image readers, each built here: bombs, truncated and wrong files, orientation, odd pixel formats.

mod build;
mod watch;

use std::io::Cursor;
use std::time::Duration;

use burn_gguf_models::vision::image::{DecodeOptions, Image, ImageError, ImageInput, frame_folder};
use image::{DynamicImage, ImageFormat, Luma, Rgb, RgbImage, Rgba, RgbaImage};

const FORMATS: [ImageFormat; 6] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::WebP,
    ImageFormat::Gif,
    ImageFormat::Bmp,
    ImageFormat::Tiff,
];

fn decode(bytes: Vec<u8>) -> Result<Image, ImageError> {
    ImageInput::from(bytes).decode(&DecodeOptions::default())
}

/// A picture with something in every corner.
fn scene(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        Rgb([
            (x * 255 / width) as u8,
            (y * 255 / height) as u8,
            ((x * 7 + y * 13) % 256) as u8,
        ])
    })
}

fn encode(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

#[test]
fn every_format_is_read_by_its_content_whatever_the_extension() {
    let folder = tempfile::tempdir().unwrap();
    for (format, wrong) in FORMATS
        .into_iter()
        .zip(["jpg", "png", "gif", "bmp", "tiff", "webp"])
    {
        let path = folder.path().join(format!("picture.{wrong}"));
        std::fs::write(&path, encode(scene(40, 30), format)).unwrap();
        let picture = ImageInput::from(path.as_path())
            .decode(&DecodeOptions::default())
            .unwrap();
        assert_eq!((picture.width(), picture.height()), (40, 30), "{format:?}");
        let exact = matches!(
            format,
            ImageFormat::Png | ImageFormat::WebP | ImageFormat::Bmp | ImageFormat::Tiff
        );
        assert_eq!(picture.pixels() == &scene(40, 30), exact, "{format:?}");
    }
}

#[test]
fn bombs_are_refused_before_they_are_allocated() {
    for (name, bytes) in build::bombs() {
        let (largest, result) = watch::largest_allocation(|| decode(bytes));
        let error = result.expect_err(name);
        assert!(
            matches!(error, ImageError::TooManyPixels { .. }),
            "{name}: {error}"
        );
        assert!(
            error
                .to_string()
                .contains("pixels, more than the 134217728 allowed"),
            "{name}: {error}"
        );
        assert!(largest < 4 << 20, "{name}: {largest} bytes were allocated");
    }
}

#[test]
fn animations_are_held_to_the_limits() {
    let frames = [[255, 0, 0], [0, 255, 0], [0, 0, 255]];
    let input = ImageInput::from(build::gif(&frames, 20, 10));
    let options = |max_frames, max_memory| DecodeOptions {
        max_frames,
        max_memory,
        ..DecodeOptions::default()
    };
    let refused = input.decode_frames(&options(2, 1 << 30));
    assert!(matches!(
        refused,
        Err(ImageError::TooManyFrames { limit: 2, .. })
    ));
    let refused = input.decode_frames(&options(9, 1300));
    assert!(matches!(refused, Err(ImageError::TooMuchMemory { .. })));
}

#[test]
fn memory_and_file_limits_hold() {
    let bytes = encode(scene(100, 100), ImageFormat::Png);
    let options = DecodeOptions {
        max_memory: 29_999,
        ..DecodeOptions::default()
    };
    let error = ImageInput::from(bytes.clone())
        .decode(&options)
        .unwrap_err();
    assert!(
        matches!(error, ImageError::TooMuchMemory { limit: 29_999, .. }),
        "{error}"
    );
    let options = DecodeOptions {
        max_file_bytes: 10,
        ..DecodeOptions::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.png");
    std::fs::write(&path, &bytes).unwrap();
    for input in [ImageInput::from(bytes), ImageInput::from(path)] {
        let error = input.decode(&options).unwrap_err();
        assert!(
            matches!(error, ImageError::TooManyBytes { limit: 10, .. }),
            "{error}"
        );
    }
}

#[test]
fn endless_strips_are_refused() {
    let strip = RgbImage::new(1, 65_536);
    let inputs = [
        ImageInput::from(encode(strip.clone(), ImageFormat::Png)),
        ImageInput::from(strip),
    ];
    for input in inputs {
        let error = input.decode(&DecodeOptions::default()).unwrap_err();
        assert!(
            matches!(
                error,
                ImageError::TooLong {
                    height: 65_536,
                    limit: 65_535,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn truncated_files_are_broken() {
    for format in FORMATS {
        let whole = encode(scene(64, 48), format);
        for keep in [
            whole.len() / 4,
            whole.len() / 2,
            whole.len() * 3 / 4,
            whole.len() * 9 / 10,
        ] {
            let error = decode(whole[..keep].to_vec()).err();
            let error = error
                .unwrap_or_else(|| panic!("{format:?} cut to {keep} of {} was read", whole.len()));
            assert!(
                matches!(error, ImageError::Broken { .. }),
                "{format:?}: {error}"
            );
            assert!(
                error
                    .to_string()
                    .contains(&format!("image of {keep} bytes")),
                "{error}"
            );
        }
    }
}

#[test]
fn damaged_files_do_not_panic() {
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let options = DecodeOptions {
        max_pixels: 1 << 16,
        max_memory: 1 << 20,
        ..DecodeOptions::default()
    };
    for format in FORMATS {
        let whole = encode(scene(17, 11), format);
        for _ in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 4 {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            let input = ImageInput::from(bytes);
            if let Ok(picture) = input.decode(&options) {
                assert!(picture.width() > 0 && picture.height() > 0);
            }
            let _ = input.decode_frames(&options);
        }
    }
}

#[test]
fn pictures_without_pixels_are_refused() {
    for (name, bytes) in build::without_pixels() {
        let error = decode(bytes).expect_err(name);
        assert!(
            matches!(error, ImageError::NoPixels { .. }),
            "{name}: {error}"
        );
    }
    let error = Image::from_rgb(RgbImage::new(0, 5)).unwrap_err();
    assert!(
        matches!(
            error,
            ImageError::NoPixels {
                width: 0,
                height: 5,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn empty_and_missing_files_say_so() {
    assert!(matches!(decode(Vec::new()), Err(ImageError::Empty { .. })));
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("missing.png"), folder.path().to_owned()] {
        let error = ImageInput::from(path.as_path())
            .decode(&DecodeOptions::default())
            .unwrap_err();
        assert!(matches!(error, ImageError::Unreadable { .. }), "{error}");
        assert!(
            error.to_string().contains(&*path.to_string_lossy()),
            "{error}"
        );
    }
}

#[test]
fn other_formats_are_named() {
    let starts: [(&[u8], &str); 9] = [
        (b"\0\0\0\x1cftypavif\0\0\0\0", "AVIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0", "HEIC"),
        (b"\0\0\0\x18ftypisom\0\0\0\0", "video"),
        (b"\xff\x0a\0\0\0\0", "JPEG XL"),
        (b"<?xml version=\"1.0\"?><svg xmlns=\"x\">", "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"<!DOCTYPE html><html>", "download it again"),
        (b"GGUF\x03\0\0\0", "not the model"),
    ];
    for (start, name) in starts {
        let error = decode(start.to_vec()).unwrap_err();
        assert!(
            matches!(error, ImageError::UnsupportedFormat { .. }),
            "{error}"
        );
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = decode(b"hello, world".to_vec()).unwrap_err();
    assert!(matches!(error, ImageError::UnknownFormat { .. }), "{error}");
    assert!(error.to_string().contains("68 65 6c 6c"), "{error}");
    assert!(matches!(
        decode(b"\0\0\0\x18ftyp".to_vec()),
        Err(ImageError::UnknownFormat { .. })
    ));
}

#[test]
fn web_addresses_are_not_fetched() {
    let error = ImageInput::parse("https://example.com/a.png")
        .decode(&DecodeOptions::default())
        .unwrap_err();
    assert!(matches!(error, ImageError::Remote { .. }), "{error}");
}

#[test]
fn data_urls() {
    use base64::Engine;
    let bytes = encode(scene(9, 5), ImageFormat::Png);
    let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
    let picture = ImageInput::parse(&format!("data:image/jpeg;base64,{text}"))
        .decode(&DecodeOptions::default())
        .unwrap();
    assert_eq!(picture.pixels(), &scene(9, 5));
    for (url, part) in [
        ("data:image/png;base64", "no comma"),
        ("data:image/png;base64,@@", "base64"),
    ] {
        let error = ImageInput::parse(url)
            .decode(&DecodeOptions::default())
            .unwrap_err();
        assert!(
            matches!(error, ImageError::DataUrl { .. }) && error.to_string().contains(part),
            "{error}"
        );
    }
    let error = ImageInput::parse("data:,")
        .decode(&DecodeOptions::default())
        .unwrap_err();
    assert!(matches!(error, ImageError::Empty { .. }), "{error}");
}

/// The upright pixel at (x, y) is the stored one at the place given here (EXIF 2.32, tag 0x0112).
fn stored_at(orientation: u16, x: u32, y: u32, width: u32, height: u32) -> (u32, u32) {
    match orientation {
        2 => (width - 1 - x, y),
        3 => (width - 1 - x, height - 1 - y),
        4 => (x, height - 1 - y),
        5 => (y, x),
        6 => (y, height - 1 - x),
        7 => (width - 1 - y, height - 1 - x),
        8 => (width - 1 - y, x),
        _ => (x, y),
    }
}

fn assert_upright(picture: &RgbImage, stored: &RgbImage, orientation: u16, what: &str) {
    let (width, height) = stored.dimensions();
    let size = if orientation >= 5 {
        (height, width)
    } else {
        (width, height)
    };
    assert_eq!(picture.dimensions(), size, "{what}");
    for (x, y, pixel) in picture.enumerate_pixels() {
        let (stored_x, stored_y) = stored_at(orientation, x, y, width, height);
        assert_eq!(
            pixel,
            stored.get_pixel(stored_x, stored_y),
            "{what} at {x}, {y}"
        );
    }
}

#[test]
fn exif_orientation_is_applied() {
    let png = encode(scene(5, 3), ImageFormat::Png);
    let jpeg = encode(scene(24, 16), ImageFormat::Jpeg);
    let stored_jpeg = decode(jpeg.clone()).unwrap();
    for orientation in 1..=8u16 {
        for big_endian in [false, true] {
            let what = format!("orientation {orientation}, big-endian {big_endian}");
            let exif = build::exif(orientation, big_endian);
            let picture = decode(build::png_with_exif(&png, &exif)).unwrap();
            assert_upright(
                picture.pixels(),
                &scene(5, 3),
                orientation,
                &format!("PNG {what}"),
            );
            let picture = decode(build::jpeg_with_exif(&jpeg, &exif)).unwrap();
            assert_upright(
                picture.pixels(),
                stored_jpeg.pixels(),
                orientation,
                &format!("JPEG {what}"),
            );
            let picture = decode(build::webp_with_exif(&scene(5, 3), &exif)).unwrap();
            assert_upright(
                picture.pixels(),
                &scene(5, 3),
                orientation,
                &format!("WebP {what}"),
            );
            let ignored = ImageInput::from(build::png_with_exif(&png, &exif))
                .decode(&DecodeOptions::llama_cpp());
            assert_eq!(ignored.unwrap().pixels(), &scene(5, 3), "{what}");
        }
        let (bytes, stored) = build::tiff_with_orientation(orientation);
        assert_upright(
            decode(bytes).unwrap().pixels(),
            &stored,
            orientation,
            &format!("TIFF {orientation}"),
        );
    }
}

#[test]
fn malformed_exif_is_ignored() {
    let jpeg = encode(scene(24, 16), ImageFormat::Jpeg);
    let png = encode(scene(5, 3), ImageFormat::Png);
    let stored_jpeg = decode(jpeg.clone()).unwrap();
    for (name, exif) in build::malformed_exif() {
        let picture = decode(build::jpeg_with_exif(&jpeg, &exif))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(picture.pixels(), stored_jpeg.pixels(), "{name}");
        let picture = decode(build::png_with_exif(&png, &exif))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(picture.pixels(), &scene(5, 3), "{name}");
    }
}

#[test]
fn alpha_is_put_on_white() {
    let picture = RgbaImage::from_fn(3, 1, |x, _| Rgba([100, 0, 200, [0, 128, 255][x as usize]]));
    let expected = [255, 255, 255, 177, 127, 227, 100, 0, 200];
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Tiff] {
        assert_eq!(
            decode(encode(picture.clone(), format))
                .unwrap()
                .pixels()
                .as_raw(),
            &expected,
            "{format:?}"
        );
    }
    let palette = decode(build::palette_png_with_alpha()).unwrap();
    assert_eq!(
        palette.pixels().as_raw(),
        &[255, 255, 255, 128, 128, 128, 0, 0, 255]
    );
    let dropped = ImageInput::from(build::palette_png_with_alpha())
        .decode(&DecodeOptions::llama_cpp())
        .unwrap();
    assert_eq!(dropped.pixels().as_raw(), &[255, 0, 0, 0, 0, 0, 0, 0, 255]);
}

#[test]
fn sixteen_bits_and_grey_become_rgb8() {
    let deep = image::ImageBuffer::from_fn(2, 1, |x, _| {
        Rgb([[0u16, 65535][x as usize], 257 * 100, 257 * 7 + 100])
    });
    let grey = image::ImageBuffer::from_fn(2, 1, |x, _| Luma([[257u16 * 30, 65535][x as usize]]));
    for format in [ImageFormat::Png, ImageFormat::Tiff] {
        let picture = decode(encode(deep.clone(), format)).unwrap();
        assert_eq!(
            picture.pixels().as_raw(),
            &[0, 100, 7, 255, 100, 7],
            "{format:?}"
        );
        let picture = decode(encode(grey.clone(), format)).unwrap();
        assert_eq!(
            picture.pixels().as_raw(),
            &[30, 30, 30, 255, 255, 255],
            "{format:?}"
        );
    }
    let memory = ImageInput::from(DynamicImage::from(grey))
        .decode(&DecodeOptions::default())
        .unwrap();
    assert_eq!(memory.pixels().as_raw(), &[30, 30, 30, 255, 255, 255]);
    let float = DynamicImage::new_rgb32f(2, 2);
    assert_eq!(
        ImageInput::from(float)
            .decode(&DecodeOptions::default())
            .unwrap()
            .pixels()
            .as_raw(),
        &[0; 12]
    );
}

#[test]
fn cmyk_jpeg_becomes_rgb() {
    let inks = [
        ([0, 255, 255, 0], [255, 0, 0]),
        ([255, 255, 0, 0], [0, 0, 255]),
        ([0, 0, 0, 255], [0, 0, 0]),
        ([0; 4], [255; 3]),
    ];
    for (ink, expected) in inks {
        let picture = decode(build::cmyk_jpeg(ink)).unwrap();
        assert_eq!((picture.width(), picture.height()), (8, 8));
        let pixel = picture.pixels().get_pixel(3, 4).0;
        let near = pixel
            .iter()
            .zip(expected)
            .all(|(&value, expected)| value.abs_diff(expected) <= 2);
        assert!(near, "{ink:?} became {pixel:?}, expected {expected:?}");
    }
}

#[test]
fn animations_give_their_first_frame_or_all() {
    let colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255]];
    for (name, bytes) in [
        ("GIF", build::gif(&colours, 6, 4)),
        ("APNG", build::apng(&colours, 6, 4)),
    ] {
        let first = decode(bytes.clone()).unwrap();
        assert_eq!(first.pixels().get_pixel(5, 3).0, colours[0], "{name}");
        let frames = ImageInput::from(bytes)
            .decode_frames(&DecodeOptions::default())
            .unwrap();
        assert_eq!(frames.len(), 3, "{name}");
        for (frame, colour) in frames.iter().zip(colours) {
            assert_eq!(frame.image.pixels().get_pixel(0, 0).0, colour, "{name}");
            assert_eq!(frame.duration, Duration::from_millis(40), "{name}");
        }
        assert!(
            frames[1]
                .image
                .origin()
                .to_string()
                .starts_with("frame 1 of"),
            "{name}"
        );
    }
    let still = ImageInput::from(encode(scene(4, 4), ImageFormat::Jpeg))
        .decode_frames(&DecodeOptions::default())
        .unwrap();
    assert_eq!((still.len(), still[0].duration), (1, Duration::ZERO));
}

#[test]
fn a_folder_of_frames_is_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        frame_folder(folder.path()),
        Err(ImageError::NoFrames { .. })
    ));
    for index in [10, 2, 1] {
        let frame = RgbImage::from_pixel(2, 2, Rgb([index; 3]));
        frame
            .save(folder.path().join(format!("frame{index}.png")))
            .unwrap();
    }
    std::fs::write(folder.path().join("notes.txt"), "no frame").unwrap();
    let order: Vec<u8> = frame_folder(folder.path())
        .unwrap()
        .iter()
        .map(|input| {
            input
                .decode(&DecodeOptions::default())
                .unwrap()
                .pixels()
                .get_pixel(0, 0)
                .0[0]
        })
        .collect();
    assert_eq!(order, [1, 2, 10]);
    let missing = frame_folder(&folder.path().join("missing"));
    assert!(matches!(missing, Err(ImageError::Unreadable { .. })));
}

#[test]
fn equal_pictures_have_equal_hashes_however_stored() {
    let png = decode(encode(scene(20, 10), ImageFormat::Png)).unwrap();
    let bmp = decode(encode(scene(20, 10), ImageFormat::Bmp)).unwrap();
    let other = decode(encode(scene(10, 20), ImageFormat::Png)).unwrap();
    assert_eq!(png.hash(), bmp.hash());
    assert_ne!(png.hash(), other.hash());
}
