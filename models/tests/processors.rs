//! Image processors against transformers and llama.cpp: sizes, token counts, pixels and the order of values.
//!
//! A part of the cases is in `tests/fixtures/processors`, all of them in `cases/processors` of the shared folder
//! (`BURN_GGUF_SHARED`, else `shared` beside the workspace).

use std::io::Write;
use std::path::{Path, PathBuf};

use burn_gguf_models::vision::image::{Image, ImageError, ImageInput};
use burn_gguf_models::vision::processor::{
    ImageProcessor, PixelValues, ProcessorConfig, ProcessorKind, ProcessorStyle,
};
use image::RgbImage;
use serde_json::Value;
use sha2::{Digest, Sha256};

use ProcessorKind::{DeepSeek4V, Gemma4Uv, Gemma4V, Glm4V, Glm5V, MiniMaxM3, MuseGlimmer, Qwen3Vl};
use ProcessorStyle::{LlamaCpp, Transformers};

/// Name of the case, family, style, settings of its configuration that are not defaults.
const CASES: [(&str, ProcessorKind, ProcessorStyle, &[&str]); 15] = [
    ("qwen3vl", Qwen3Vl, Transformers, &[]),
    (
        "qwen3vl-tight",
        Qwen3Vl,
        Transformers,
        &["shortest_edge=4096", "longest_edge=1048576"],
    ),
    ("gemma4", Gemma4V, Transformers, &[]),
    ("gemma4-70", Gemma4V, Transformers, &["max_soft_tokens=70"]),
    ("gemma4uv", Gemma4Uv, Transformers, &[]),
    ("glm5v", Glm5V, Transformers, &[]),
    ("minimax-m3", MiniMaxM3, Transformers, &[]),
    ("muse-glimmer", MuseGlimmer, Transformers, &[]),
    ("llama-qwen3vl", Qwen3Vl, LlamaCpp, &[]),
    ("llama-gemma4v", Gemma4V, LlamaCpp, &[]),
    ("llama-gemma4uv", Gemma4Uv, LlamaCpp, &[]),
    ("llama-glm5v", Glm5V, LlamaCpp, &[]),
    ("llama-minimax-m3", MiniMaxM3, LlamaCpp, &[]),
    ("llama-muse-glimmer", MuseGlimmer, LlamaCpp, &[]),
    ("llama-deepseek4v", DeepSeek4V, LlamaCpp, &[]),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/processors")
}

fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("BURN_GGUF_SHARED")
        .map_or(root, PathBuf::from)
        .join("cases/processors");
    if !folder.exists() {
        let line = format!("skipped: {} is not there", folder.display());
        writeln!(std::io::stdout().lock(), "{line}").expect("standard output is open");
        return None;
    }
    Some(folder)
}

fn processor(kind: ProcessorKind, style: ProcessorStyle, settings: &[&str]) -> ImageProcessor {
    let mut config = ProcessorConfig::new(kind, style);
    settings
        .iter()
        .for_each(|pair| config.set_pair(pair).unwrap());
    ImageProcessor::new(config).unwrap()
}

fn blank(width: u32, height: u32) -> Image {
    Image::from_rgb(RgbImage::new(width, height)).unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_u64().unwrap())
        .collect()
}

/// Every image of every case of a folder.
fn agree(folder: &Path) {
    let mut compared = 0;
    for (name, kind, style, settings) in CASES {
        let processor = processor(kind, style, settings);
        let case: Value =
            serde_json::from_slice(&std::fs::read(folder.join(format!("{name}.json"))).unwrap())
                .unwrap();
        for (picture, expected) in case["images"].as_object().unwrap() {
            let what = format!("{name} of {picture}");
            let input = numbers(&expected["input"].as_array().unwrap()[..2].into());
            let size = numbers(&expected["resized_wh"]);
            let file = folder.join(format!("inputs/{picture}.png"));
            if !file.exists() {
                let placement = processor
                    .placement(&blank(input[0] as u32, input[1] as u32))
                    .unwrap();
                assert_eq!(
                    [placement.canvas.0, placement.canvas.1].map(u64::from),
                    *size,
                    "{what}"
                );
                continue;
            }
            let picture = ImageInput::from(file)
                .decode(&processor.decode_options())
                .unwrap();
            let processed = processor.process(&picture).unwrap();
            let pixels = processed.pixels();
            assert_eq!(
                [pixels.width(), pixels.height()].map(u64::from),
                *size,
                "{what}"
            );
            assert_eq!(
                processed.token_count() as u64,
                expected["tokens"].as_u64().unwrap(),
                "{what}"
            );
            let hash: String = Sha256::digest(pixels.as_raw())
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hash, expected["sha256_u8_hwc"].as_str().unwrap(), "{what}");
            if style == Transformers {
                values_agree(&processed.pixel_values(), expected, &what);
            }
            compared += 1;
        }
    }
    assert!(compared >= 100, "{compared} pictures are few");
}

fn values_agree(values: &PixelValues, expected: &Value, what: &str) {
    let shape = numbers(&expected["pixel_values_shape"]);
    assert_eq!(values.row_len as u64, *shape.last().unwrap(), "{what}");
    if let Some(grid) = expected.get("grid_thw") {
        assert_eq!(values.grid_thw.map(|n| n as u64), *numbers(grid), "{what}");
        assert_eq!(values.rows as u64, shape[0], "{what}");
    }
    let sums = values
        .values
        .iter()
        .fold((0.0, 0.0), |(sum, magnitude), &value| {
            (sum + f64::from(value), magnitude + f64::from(value.abs()))
        });
    let magnitude = expected["pixel_values_abs_sum"].as_f64().unwrap();
    assert!(
        (sums.0 - expected["pixel_values_sum"].as_f64().unwrap()).abs() <= 1e-6 * magnitude,
        "{what}: {sums:?}"
    );
    assert!(
        (sums.1 - magnitude).abs() <= 1e-6 * magnitude,
        "{what}: {sums:?}"
    );
}

#[test]
fn committed_cases() {
    agree(&fixtures());
}

#[test]
fn shared_cases() {
    if let Some(folder) = shared() {
        agree(&folder);
    }
}

/// Shape and data of a little-endian `.npy` file.
fn npy(path: &Path) -> (Vec<usize>, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let header_len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + header_len]).unwrap();
    assert!(header.contains("'fortran_order': False"), "{header}");
    let shape = header.split('(').nth(1).unwrap().split(')').next().unwrap();
    let shape = shape
        .split(',')
        .filter_map(|side| side.trim().parse().ok())
        .collect();
    (shape, bytes[10 + header_len..].to_vec())
}

/// Value of half-precision bits: normal numbers and zero.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f32::from(bits & 1023) / 1024.0;
    sign * if exponent == 0 {
        fraction * 2f32.powi(-14)
    } else {
        (1.0 + fraction) * 2f32.powi(exponent - 15)
    }
}

fn layouts_agree(folder: &Path, names: &[&str]) {
    for &(name, kind, style, settings) in CASES.iter().filter(|case| names.contains(&case.0)) {
        let (shape, pixels) = npy(&folder.join(name).join("layout_input_u8.npy"));
        let picture = RgbImage::from_raw(shape[1] as u32, shape[0] as u32, pixels).unwrap();
        let processed = processor(kind, style, settings)
            .process_resized(&Image::from_rgb(picture).unwrap())
            .unwrap();
        let values = processed.pixel_values();
        let (shape, data) = npy(&folder.join(name).join("layout_pixel_values.npy"));
        assert_eq!([values.rows, values.row_len], *shape, "{name}");
        for (index, (value, bits)) in values.values.iter().zip(data.chunks_exact(2)).enumerate() {
            let expected = half(u16::from_le_bytes([bits[0], bits[1]]));
            assert!(
                (value - expected).abs() <= 1e-3,
                "{name} at {index}: {value}, expected {expected}"
            );
        }
        let positions = folder.join(name).join("layout_position_ids.npy");
        if positions.exists() {
            // Column and row, as Gemma's position tables are stored.
            let ids = npy(&positions).1;
            let ids: Vec<_> = ids
                .chunks_exact(4)
                .map(|id| u32::from_le_bytes(id.try_into().unwrap()))
                .collect();
            let ours: Vec<_> = values
                .positions
                .iter()
                .flat_map(|&[row, column]| [column, row])
                .collect();
            assert_eq!(ours, ids, "{name}");
        }
    }
}

#[test]
fn order_of_values() {
    layouts_agree(&fixtures(), &["qwen3vl", "gemma4-70", "muse-glimmer"]);
    if let Some(folder) = shared() {
        let names = [
            "qwen3vl",
            "qwen3vl-tight",
            "gemma4",
            "gemma4-70",
            "gemma4uv",
            "glm5v",
            "minimax-m3",
            "muse-glimmer",
        ];
        layouts_agree(&folder, &names);
    }
}

#[test]
fn planes_are_the_values_in_another_order() {
    let picture = RgbImage::from_fn(64, 32, |x, y| {
        image::Rgb([x as u8, y as u8, (x * y % 256) as u8])
    });
    let processed = processor(Qwen3Vl, Transformers, &[])
        .process_resized(&Image::from_rgb(picture).unwrap())
        .unwrap();
    let (planes, values) = (processed.planes(0), processed.pixel_values());
    for (row, &[patch_row, patch_column]) in values.positions.iter().enumerate() {
        for channel in 0..3 {
            for frame in 0..2 {
                let at = row * values.row_len + (channel * 2 + frame) * 256;
                let plane =
                    channel * 64 * 32 + patch_row as usize * 16 * 64 + patch_column as usize * 16;
                assert_eq!(values.values[at..at + 16], planes[plane..plane + 16]);
            }
        }
    }
}

#[test]
fn pictures_that_are_too_long_are_refused() {
    for kind in [Qwen3Vl, Glm4V, MiniMaxM3] {
        let processor = processor(kind, Transformers, &[]);
        assert!(processor.process(&blank(200, 1)).is_ok());
        let error = processor.process(&blank(201, 1)).unwrap_err();
        assert!(
            matches!(
                error,
                ImageError::Ratio {
                    limit: 200,
                    width: 201,
                    height: 1,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("201 x 1"), "{error}");
    }
    let relaxed = processor(Qwen3Vl, Transformers, &["max_ratio=300"]);
    assert!(relaxed.process(&blank(1, 201)).is_ok());
    // A strip whose only aligned size is far beyond the limit is refused before the canvas exists.
    let error = processor(MuseGlimmer, Transformers, &["max_tokens=16"])
        .process(&blank(60_000, 1))
        .unwrap_err();
    assert!(
        matches!(error, ImageError::TooManyTokens { limit: 16, .. }),
        "{error}"
    );
}

/// Every family, style and odd shape gives whole tokens within bounds, and never panics.
#[test]
fn any_size_gives_whole_tokens() {
    let sizes = [
        (1, 1),
        (1, 50),
        (50, 1),
        (27, 29),
        (199, 1),
        (1, 199),
        (300, 301),
        (1000, 130),
        (31, 777),
        (2049, 1025),
    ];
    for kind in ProcessorKind::ALL {
        for style in [Transformers, LlamaCpp] {
            let processor = processor(kind, style, &[]);
            let config = processor.config().clone();
            let multiple = if kind == DeepSeek4V {
                config.patch_size
            } else {
                config.token_size()
            };
            for (width, height) in sizes {
                let what = format!("{kind:?} {style} {width} x {height}");
                let processed = processor.process(&blank(width, height)).unwrap();
                let (canvas_width, canvas_height) = processed.placement().canvas;
                assert!(
                    canvas_width % multiple == 0 && canvas_height % multiple == 0,
                    "{what}"
                );
                let values = processed.pixel_values();
                assert_eq!(values.rows, processed.patch_grid().len(), "{what}");
                assert_eq!(values.values.len(), values.rows * values.row_len, "{what}");
                let limit = if kind == DeepSeek4V {
                    u64::from(config.max_block_tokens)
                } else {
                    config.max_tokens()
                };
                assert!(
                    processed.token_count() as u64 <= limit,
                    "{what}: {}",
                    processed.token_count()
                );
            }
        }
    }
}

#[test]
fn token_limits_move_the_size() {
    let tokens = |min, max| {
        let mut config = ProcessorConfig::new(Qwen3Vl, Transformers);
        config.set_token_limits(min, max).unwrap();
        ImageProcessor::new(config)
            .unwrap()
            .process(&blank(640, 480))
            .unwrap()
            .token_count()
    };
    assert_eq!(tokens(None, None), 300);
    assert!(
        (60..=100).contains(&tokens(None, Some(100))),
        "{}",
        tokens(None, Some(100))
    );
    assert!(
        (1024..1300).contains(&tokens(Some(1024), None)),
        "{}",
        tokens(Some(1024), None)
    );
}

#[test]
fn a_video_shares_one_budget_and_pairs_frames() {
    let processor = processor(Qwen3Vl, Transformers, &[]);
    let frames: Vec<_> = (0..3u8)
        .map(|index| {
            Image::from_rgb(RgbImage::from_pixel(64, 64, image::Rgb([index * 100; 3]))).unwrap()
        })
        .collect();
    let video = processor.process_video(&frames).unwrap();
    let values = video.pixel_values();
    assert_eq!(values.grid_thw, [2, 4, 4]);
    assert_eq!(video.token_count(), 8);
    // Red of the first patch: frame 0 then frame 1; of the second temporal patch: the last frame twice.
    let level = |index: usize| (values.values[index] * 127.5 + 127.5).round();
    assert_eq!([level(0), level(256)], [0.0, 100.0]);
    let second = 16 * values.row_len;
    assert_eq!([level(second), level(second + 256)], [200.0, 200.0]);
    let mut uneven = frames.clone();
    uneven.push(blank(64, 32));
    assert!(matches!(
        processor.process_video(&uneven),
        Err(ImageError::FrameSize { height: 32, .. })
    ));
    let single = self::processor(Gemma4V, Transformers, &[]);
    assert!(matches!(
        single.process_video(&frames),
        Err(ImageError::NoVideo {
            projector: "gemma4v"
        })
    ));
}

#[test]
fn resized_pictures_are_taken_as_they_are() {
    let processor = processor(Qwen3Vl, Transformers, &[]);
    assert_eq!(
        processor
            .process_resized(&blank(32, 64))
            .unwrap()
            .token_count(),
        2
    );
    let error = processor.process_resized(&blank(32, 60)).unwrap_err();
    assert!(
        matches!(
            error,
            ImageError::NotAligned {
                multiple: 32,
                height: 60,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn embeddings_are_keyed_by_what_the_tower_sees() {
    let processor = processor(Qwen3Vl, Transformers, &[]);
    let red = Image::from_rgb(RgbImage::from_pixel(64, 64, image::Rgb([255, 0, 0]))).unwrap();
    let blue = Image::from_rgb(RgbImage::from_pixel(64, 64, image::Rgb([0, 0, 255]))).unwrap();
    let hash = |image: &Image| processor.process(image).unwrap().hash();
    assert_eq!(hash(&red), hash(&red.clone()));
    assert_ne!(hash(&red), hash(&blue));
}
