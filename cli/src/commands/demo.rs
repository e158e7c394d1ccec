//! `burn-gguf demo`: the model that comes with the program describes a picture.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use burn_gguf::device::open_device;
use burn_gguf_models::demo::{self, PROMPTS, Picture, Split};
use burn_gguf_models::vision::image::ImageInput;
use image::imageops::{FilterType, resize};
use image::{Rgb, RgbImage};

use super::CommandResult;
use super::devices::quietly;
use super::load::device_name;
use crate::args::DemoArgs;

/// Columns of the picture in the terminal, and two lines of pixels a row.
const COLUMNS: u32 = 48;

pub fn run(args: DemoArgs) -> CommandResult {
    let drawn = match args.image {
        Some(_) => None,
        None => Some(Picture::new(
            Split::HeldOut,
            args.seed.unwrap_or_else(any_number),
        )),
    };
    let input = match (&args.image, &drawn) {
        (Some(path), _) => ImageInput::parse(path),
        (None, Some(picture)) => ImageInput::from(picture.to_image()),
        (None, None) => return Err("there is no picture".into()),
    };
    let name = device_name(args.device.as_deref())?;
    let device = quietly(|| open_device(name))?;
    let model = demo::load(&device, args.arithmetic.into())?;
    let image = input.decode(&model.vision()?.processor().decode_options())?;
    if let Some(path) = &args.save {
        save(image.pixels(), path)?;
    }
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        show(image.pixels(), &mut out)?;
    }
    let prompt = args.prompt.as_deref().unwrap_or(PROMPTS[0]);
    let caption = demo::describe(&model, input, prompt)?;
    writeln!(out, "model:   {caption}")?;
    if let Some(picture) = drawn {
        writeln!(out, "picture: {}", picture.caption())?;
    }
    Ok(())
}

/// A number of its own for every run.
fn any_number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| u64::from(time.subsec_nanos()))
}

fn save(picture: &RgbImage, path: &Path) -> CommandResult {
    picture
        .save_with_format(path, image::ImageFormat::Png)
        .map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

/// The picture in 24-bit colours: each character is an upper half block, two pixels one above the other.
fn show(picture: &RgbImage, out: &mut impl Write) -> CommandResult {
    let (width, height) = picture.dimensions();
    let (width, height) = (f64::from(width.max(1)), f64::from(height.max(1)));
    // Tall pictures are made narrower instead of running off the screen.
    let scale = f64::from(COLUMNS) / width.max(height);
    let side = |length: f64| ((length * scale).round() as u32).clamp(1, COLUMNS);
    let (columns, rows) = (side(width), side(height).next_multiple_of(2));
    let small = resize(picture, columns, rows, FilterType::Triangle);
    for row in (0..rows).step_by(2) {
        for column in 0..columns {
            let Rgb([r, g, b]) = *small.get_pixel(column, row);
            write!(out, "\x1b[38;2;{r};{g};{b}m")?;
            let Rgb([r, g, b]) = *small.get_pixel(column, row + 1);
            write!(out, "\x1b[48;2;{r};{g};{b}m\u{2580}")?;
        }
        writeln!(out, "\x1b[0m")?;
    }
    Ok(())
}
