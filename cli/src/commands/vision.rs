//! `burn-gguf vision`: what a model sees of an image.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use burn_gguf::device::open_device;
use burn_gguf::gguf::Gguf;
use burn_gguf_models::tokenizer::Tokenizer;
use burn_gguf_models::vision::Vision;
use burn_gguf_models::vision::discover::find;
use burn_gguf_models::vision::image::ImageInput;
use burn_gguf_models::vision::mmproj::{Mmproj, TextFacts, image_width};
use burn_gguf_models::vision::processor::ProcessedImage;
use image::{Rgb, RgbImage, imageops};

use super::CommandResult;
use super::devices::quietly;
use super::load::{device_name, print_log, vision_options};
use crate::args::{VisionArgs, VisionCommandArgs};
use crate::source::resolve;

/// Small pictures are enlarged to about this side, so that the lines leave the pixels visible.
const SHOWN_SIDE: u32 = 768;
const PATCH_LINE: [u8; 3] = [90, 200, 255];
const TOKEN_LINE: [u8; 3] = [255, 60, 60];

pub fn run(args: VisionCommandArgs) -> CommandResult {
    let mmproj = mmproj(&args)?;
    if let Some(path) = &args.save {
        check_save(&args, &mmproj, path)?;
    }
    let options = vision_options(&args.vision);
    let processor = options.processor(&mmproj)?;
    let image = ImageInput::parse(&args.image).decode(&processor.decode_options())?;
    let seen = processor.process(&image)?;
    let (patches, tokens) = (seen.patch_grid(), seen.token_grid());
    let (width, height) = seen.placement().canvas;
    let mut out = std::io::stdout().lock();
    writeln!(out, "picture   {} x {}", image.width(), image.height())?;
    writeln!(out, "seen at   {width} x {height}")?;
    writeln!(
        out,
        "patches   {} x {} = {}",
        patches.columns,
        patches.rows,
        patches.len()
    )?;
    writeln!(
        out,
        "tokens    {} x {}, {} in the prompt",
        tokens.columns,
        tokens.rows,
        seen.token_count()
    )?;
    writeln!(
        out,
        "projector {}, {} style",
        mmproj.projector(),
        processor.config().style
    )?;
    if let Some(path) = &args.save {
        save(&seen, path)?;
        writeln!(
            out,
            "written   {}: token borders red, patch borders blue",
            path.display()
        )?;
    }
    if args.encode > 0 {
        let name = device_name(args.device.as_deref())?;
        let device = quietly(|| open_device(name))?;
        let vision = Vision::load(&mmproj, &device, &options, args.arithmetic.into())?;
        let mut times = Vec::with_capacity(args.encode);
        for _ in 0..args.encode {
            let start = Instant::now();
            for rows in vision.tower().encode(&seen)? {
                // On a GPU the work is done when its result is here.
                let _ = rows.into_data();
            }
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        writeln!(
            out,
            "encoded   in {:.0} ms (median of {}, best {:.0} ms) on {name}, weights {}",
            times[times.len() / 2],
            times.len(),
            times[0],
            options.dtype.name()
        )?;
    }
    Ok(())
}

/// The mmproj file itself, or that of a text model.
fn mmproj(args: &VisionCommandArgs) -> CommandResult<Mmproj> {
    let gguf = Gguf::open(resolve(&args.model)?)?;
    let VisionArgs { no_vision, .. } = args.vision;
    if no_vision {
        return Err("--no-vision leaves nothing to see with".into());
    }
    let architecture = gguf.metadata().architecture()?.to_owned();
    if architecture == "clip" {
        return Ok(Mmproj::from_gguf(gguf)?);
    }
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let has_token = |text: &str| tokenizer.token_id(text).is_some();
    let facts = TextFacts {
        architecture: &architecture,
        image_width: image_width(&gguf)?,
        has_token: &has_token,
    };
    let found = find(&gguf, &facts, &vision_options(&args.vision).source)?;
    print_log(&found.log);
    found.mmproj.ok_or_else(|| {
        let reason = found.reason.unwrap_or_default();
        format!("the model reads no images: {reason}").into()
    })
}

/// The picture must not take the place of what is read.
fn check_save(args: &VisionCommandArgs, mmproj: &Mmproj, path: &Path) -> CommandResult {
    let place = |path: &Path| std::fs::canonicalize(path).ok();
    let read = [args.model.as_str(), args.image.as_str()].map(Path::new);
    let mut read = read.into_iter().chain(mmproj.gguf().shards());
    match read.find(|other| place(other).is_some() && place(other) == place(path)) {
        Some(other) => {
            Err(format!("--save {}: {} is read", path.display(), other.display()).into())
        }
        None => Ok(()),
    }
}

/// The resized picture with lines between patches and tokens.
fn save(seen: &ProcessedImage, path: &Path) -> CommandResult {
    let pixels = seen.pixels();
    let (width, height) = pixels.dimensions();
    let scale = (SHOWN_SIDE / width.max(height)).max(1);
    let (wide, high) = (width * scale, height * scale);
    let mut picture = imageops::resize(pixels, wide, high, imageops::FilterType::Nearest);
    let (patches, tokens) = (seen.patch_grid(), seen.token_grid());
    lines(
        &mut picture,
        patches.columns as u32,
        patches.rows as u32,
        PATCH_LINE,
        0.45,
    );
    lines(
        &mut picture,
        tokens.columns as u32,
        tokens.rows as u32,
        TOKEN_LINE,
        0.9,
    );
    picture
        .save_with_format(path, image::ImageFormat::Png)
        .map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

/// Lines between the cells of a grid.
fn lines(picture: &mut RgbImage, columns: u32, rows: u32, colour: [u8; 3], strength: f32) {
    let (width, height) = picture.dimensions();
    let mut blend = |x: u32, y: u32| {
        let Rgb(pixel) = picture.get_pixel_mut(x, y);
        for (value, target) in pixel.iter_mut().zip(colour) {
            *value = (f32::from(*value) * (1.0 - strength) + f32::from(target) * strength) as u8;
        }
    };
    for column in 1..columns {
        let x = (u64::from(width) * u64::from(column) / u64::from(columns)) as u32;
        (0..height).for_each(|y| blend(x, y));
    }
    for row in 1..rows {
        let y = (u64::from(height) * u64::from(row) / u64::from(rows)) as u32;
        (0..width).for_each(|x| blend(x, y));
    }
}
