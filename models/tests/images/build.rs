//! Files that no encoder writes.

use image::codecs::gif::GifEncoder;
use image::codecs::webp::WebPEncoder;
use image::{
    Delay, ExtendedColorType, Frame, ImageEncoder, ImageFormat, RgbImage, Rgba, RgbaImage,
};

use super::{encode, scene};

// PNG

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    })
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [kind.as_slice(), data].concat();
    [
        &(data.len() as u32).to_be_bytes(),
        body.as_slice(),
        &crc(&body).to_be_bytes(),
    ]
    .concat()
}

fn header(width: u32, height: u32, depth: u8, colour: u8) -> Vec<u8> {
    chunk(
        b"IHDR",
        &[
            &width.to_be_bytes(),
            &height.to_be_bytes(),
            [depth, colour, 0, 0, 0].as_slice(),
        ]
        .concat(),
    )
}

/// A zlib stream of one stored block.
fn stored(data: &[u8]) -> Vec<u8> {
    let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    });
    let len = data.len() as u16;
    let start = [
        &[0x78, 0x01, 0x01],
        len.to_le_bytes().as_slice(),
        &(!len).to_le_bytes(),
    ]
    .concat();
    [start.as_slice(), data, &(b << 16 | a).to_be_bytes()].concat()
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

fn png(chunks: &[Vec<u8>]) -> Vec<u8> {
    [PNG, &chunks.concat(), &chunk(b"IEND", &[])].concat()
}

/// Red without opacity, black with half of it, blue.
pub fn palette_png_with_alpha() -> Vec<u8> {
    png(&[
        header(3, 1, 8, 3),
        chunk(b"PLTE", &[255, 0, 0, 0, 0, 0, 0, 0, 255]),
        chunk(b"tRNS", &[0, 127]),
        chunk(b"IDAT", &stored(&[0, 0, 1, 2])),
    ])
}

/// An `eXIf` chunk behind the header of `bytes`.
pub fn png_with_exif(bytes: &[u8], exif: &[u8]) -> Vec<u8> {
    let header_end = PNG.len() + 25;
    [
        &bytes[..header_end],
        &chunk(b"eXIf", exif),
        &bytes[header_end..],
    ]
    .concat()
}

/// Frames of one colour each, 40 ms long.
pub fn apng(colours: &[[u8; 3]], width: u32, height: u32) -> Vec<u8> {
    let mut sequence = 0u32;
    let mut next = || {
        sequence += 1;
        (sequence - 1).to_be_bytes()
    };
    let count = (colours.len() as u32).to_be_bytes();
    let mut chunks = vec![
        header(width, height, 8, 2),
        chunk(b"acTL", &[count, [0; 4]].concat()),
    ];
    for (index, colour) in colours.iter().enumerate() {
        let size = [width.to_be_bytes(), height.to_be_bytes(), [0; 4], [0; 4]].concat();
        chunks.push(chunk(
            b"fcTL",
            &[&next(), size.as_slice(), &[0, 40, 3, 232, 0, 0]].concat(),
        ));
        let row = [vec![0], colour.repeat(width as usize)].concat();
        let data = stored(&row.repeat(height as usize));
        chunks.push(if index == 0 {
            chunk(b"IDAT", &data)
        } else {
            chunk(b"fdAT", &[&next(), data.as_slice()].concat())
        });
    }
    png(&chunks)
}

/// Frames of one colour each, 40 ms long.
pub fn gif(colours: &[[u8; 3]], width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    for &[red, green, blue] in colours {
        let picture = RgbaImage::from_pixel(width, height, Rgba([red, green, blue, 255]));
        let delay = Delay::from_numer_denom_ms(40, 1);
        encoder
            .encode_frame(Frame::from_parts(picture, 0, 0, delay))
            .unwrap();
    }
    drop(encoder);
    bytes
}

// Wrong sizes

/// Small files that declare enormous pictures.
pub fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let png = png(&[
        header(100_000, 100_000, 8, 6),
        chunk(b"IDAT", &stored(&[0; 9])),
    ]);
    let mut gif = gif(&[[1, 2, 3]], 4, 4);
    gif[6..10].fill(0xff);
    let mut bmp = encode(scene(4, 4), ImageFormat::Bmp);
    bmp[18..22].copy_from_slice(&100_000i32.to_le_bytes());
    bmp[22..26].copy_from_slice(&(-100_000i32).to_le_bytes());
    let mut jpeg = encode(scene(8, 8), ImageFormat::Jpeg);
    let frame = jpeg
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let mut webp = encode(scene(4, 4), ImageFormat::WebP);
    let lossless = webp.windows(4).position(|name| name == b"VP8L").unwrap() + 9;
    webp[lossless..lossless + 4].copy_from_slice(&(0x3ffeu32 | 0x3ffe << 14).to_le_bytes());
    let tiff = tiff(100_000, 100_000, 1, &[0; 12]);
    vec![
        ("PNG", png),
        ("GIF", gif),
        ("BMP", bmp),
        ("JPEG", jpeg),
        ("WebP", webp),
        ("TIFF", tiff),
    ]
}

/// Files whose width or height is 0.
pub fn without_pixels() -> Vec<(&'static str, Vec<u8>)> {
    let png = png(&[header(0, 7, 8, 2), chunk(b"IDAT", &stored(&[]))]);
    let mut gif = gif(&[[1, 2, 3]], 4, 4);
    gif[6..8].fill(0);
    let mut bmp = encode(scene(4, 4), ImageFormat::Bmp);
    bmp[22..26].fill(0);
    vec![("PNG", png), ("GIF", gif), ("BMP", bmp)]
}

// TIFF and EXIF

/// An uncompressed little-endian RGB TIFF of one strip.
fn tiff(width: u32, height: u32, orientation: u16, pixels: &[u8]) -> Vec<u8> {
    const ENTRIES: u16 = 10;
    let directory_len = 2 + 12 * u32::from(ENTRIES) + 4;
    let bits_at = 8 + directory_len;
    let pixels_at = bits_at + 6;
    let entries: [(u16, u16, u32, u32); ENTRIES as usize] = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 3, bits_at),
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, pixels_at),
        (274, 3, 1, orientation.into()),
        (277, 3, 1, 3),
        (278, 4, 1, height),
        (279, 4, 1, pixels.len() as u32),
    ];
    let mut bytes = [
        b"II*\0".as_slice(),
        &8u32.to_le_bytes(),
        &ENTRIES.to_le_bytes(),
    ]
    .concat();
    for (tag, kind, count, value) in entries {
        bytes.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        bytes.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
    }
    bytes.extend([0; 4]);
    bytes.extend([8, 0, 8, 0, 8, 0]);
    bytes.extend(pixels);
    bytes
}

/// A TIFF with that orientation, and its pixels as stored.
pub fn tiff_with_orientation(orientation: u16) -> (Vec<u8>, RgbImage) {
    let stored = scene(5, 3);
    (tiff(5, 3, orientation, stored.as_raw()), stored)
}

/// EXIF data that holds an orientation, behind another entry.
pub fn exif(orientation: u16, big_endian: bool) -> Vec<u8> {
    let short = |value: u16| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let long = |value: u32| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let mut bytes = [if big_endian { *b"MM" } else { *b"II" }, short(42)].concat();
    bytes.extend(long(8));
    bytes.extend(short(2));
    for (tag, value) in [(0x100, 9), (0x112, orientation)] {
        bytes.extend([short(tag), short(3)].concat());
        bytes.extend(long(1));
        bytes.extend([short(value), short(0)].concat());
    }
    bytes.extend(long(0));
    bytes
}

/// EXIF data that says nothing usable.
pub fn malformed_exif() -> Vec<(&'static str, Vec<u8>)> {
    let good = exif(6, false);
    let with = |at: usize, bytes: &[u8]| {
        let mut exif = good.clone();
        exif[at..at + bytes.len()].copy_from_slice(bytes);
        exif
    };
    vec![
        ("one byte", vec![0]),
        ("text", b"this is not EXIF".to_vec()),
        ("no byte order", with(0, b"XX")),
        ("cut in the entry", good[..26].to_vec()),
        (
            "directory beyond the end",
            with(4, &0xffff_fff0u32.to_le_bytes()),
        ),
        (
            "more entries than bytes",
            [&with(8, &[0xff, 0xff])[..22], &[0; 3]].concat(),
        ),
        ("orientation 0", exif(0, true)),
        ("orientation 9", exif(9, false)),
        ("orientation 65535", exif(65535, true)),
        ("orientation as text", with(24, &[2, 0])),
    ]
}

/// A lossless WebP with EXIF data.
pub fn webp_with_exif(picture: &RgbImage, exif: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = WebPEncoder::new_lossless(&mut bytes);
    encoder.set_exif_metadata(exif.to_vec()).unwrap();
    encoder
        .encode(
            picture,
            picture.width(),
            picture.height(),
            ExtendedColorType::Rgb8,
        )
        .unwrap();
    bytes
}

// JPEG

fn segment(marker: u8, data: &[u8]) -> Vec<u8> {
    [
        &[0xff, marker],
        ((data.len() + 2) as u16).to_be_bytes().as_slice(),
        data,
    ]
    .concat()
}

/// An EXIF segment behind the start of `bytes`.
pub fn jpeg_with_exif(bytes: &[u8], exif: &[u8]) -> Vec<u8> {
    [
        &bytes[..2],
        &segment(0xe1, &[b"Exif\0\0", exif].concat()),
        &bytes[2..],
    ]
    .concat()
}

/// Bits of entropy-coded data, most significant first.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn push(&mut self, value: u32, len: u32) {
        self.0
            .extend((0..len).rev().map(|bit| value >> bit & 1 == 1));
    }

    fn bytes(mut self) -> Vec<u8> {
        while !self.0.len().is_multiple_of(8) {
            self.0.push(true);
        }
        let bytes = self
            .0
            .chunks(8)
            .map(|bits| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit)));
        bytes
            .flat_map(|byte| {
                if byte == 0xff {
                    vec![0xff, 0]
                } else {
                    vec![byte]
                }
            })
            .collect()
    }
}

/// 8 x 8 pixels of one ink mixture, as Adobe's applications write CMYK: inverted, without a colour transform.
pub fn cmyk_jpeg(ink: [u8; 4]) -> Vec<u8> {
    // Lengths of the codes of the differences' categories 0 to 11, which are all ones with a zero behind but the first six.
    const DC: [u8; 16] = [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0];
    let code = |category: u32| match category {
        0 => (0, 2),
        1..=5 => (category + 1, 3),
        _ => ((1 << (category - 2)) - 2, category - 2),
    };
    let mut bits = Bits::default();
    for value in ink {
        let level = (i32::from(255 - value) - 128) * 8;
        let category = 32 - level.unsigned_abs().leading_zeros();
        let (prefix, len) = code(category);
        bits.push(prefix, len);
        let magnitude = if level < 0 {
            level + (1 << category) - 1
        } else {
            level
        };
        bits.push(magnitude as u32, category);
        // End of block: the only code of the table of the other coefficients.
        bits.push(0, 1);
    }
    let components: Vec<u8> = (1..=4).flat_map(|id| [id, 0x11, 0]).collect();
    let scan: Vec<u8> = (1..=4).flat_map(|id| [id, 0]).collect();
    [
        vec![0xff, 0xd8],
        segment(0xee, b"Adobe\0\x64\0\0\0\0\0"),
        segment(0xdb, &[[0].as_slice(), &[1; 64]].concat()),
        segment(0xc0, &[[8, 0, 8, 0, 8, 4].as_slice(), &components].concat()),
        segment(
            0xc4,
            &[[0].as_slice(), &DC, &(0..12).collect::<Vec<u8>>()].concat(),
        ),
        segment(0xc4, &[[0x10, 1].as_slice(), &[0; 15], &[0]].concat()),
        segment(0xda, &[[4].as_slice(), &scan, &[0, 63, 0]].concat()),
        bits.bytes(),
        vec![0xff, 0xd9],
    ]
    .concat()
}
