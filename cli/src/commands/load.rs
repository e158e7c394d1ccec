//! Loading a model for a command.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use burn_gguf::device::{Backend, compiled_devices, default_device_name, open_device};
use burn_gguf::gguf::Gguf;
use burn_gguf_models::layers::CacheDtype;
use burn_gguf_models::lora::LoraFile;
use burn_gguf_models::vision::VisionOptions;
use burn_gguf_models::vision::discover::{LogLevel, LogLine, VisionSource};
use burn_gguf_models::{AutoModel, LoadOptions, PlacementOptions, SessionOptions};
use indicatif::{ProgressBar, ProgressStyle};

use super::CommandResult;
use super::devices::quietly;
use crate::args::{CacheArg, ModelArgs, VisionArgs};
use crate::source::resolve;

/// Loads the model on its device; a progress bar shows uploads that take a while.
pub fn load(args: &ModelArgs) -> CommandResult<AutoModel> {
    let name = device_name(args.device.as_deref())?;
    let gguf = Gguf::open(resolve(&args.model)?)?;
    let mut devices = name
        .split(',')
        .map(|name| quietly(|| open_device(name.trim())))
        .collect::<Result<Vec<_>, _>>()?;
    let device = devices.remove(0);
    for device in [&device].into_iter().chain(&devices) {
        if matches!(args.cache, CacheArg::F16) && matches!(Backend::of(device)?, Backend::NdArray) {
            return Err("--cache f16 does not work on ndarray, which has no 16-bit floats".into());
        }
    }
    let experts = match &args.experts {
        Some(name) => {
            let name = experts_device(name)?;
            Some(quietly(|| open_device(name))?)
        }
        None => None,
    };
    let placement = PlacementOptions {
        more: devices,
        shares: args.split.clone(),
        experts,
    };
    let mut options = LoadOptions {
        arithmetic: args.arithmetic.into(),
        vision: vision_options(&args.vision),
        placement,
        lora: args
            .lora
            .iter()
            .map(|lora| lora_file(lora))
            .collect::<CommandResult<_>>()?,
        ..LoadOptions::default()
    };
    // On the CPU the file's map is the storage: nothing is copied and there is nothing to wait for.
    let bar = (!Backend::of(&device)?.is_cpu()).then(|| progress_bar(name));
    if let Some(bar) = bar.clone() {
        options.progress = Some(Box::new(move |p| {
            bar.set_length(p.total);
            bar.set_position(p.bytes);
        }));
    }
    let file = gguf.file().to_string();
    let model = AutoModel::load(gguf, &device, options).map_err(|error| {
        // Errors of keys and tensors name those; which file they are in may not be plain.
        let text = error.to_string();
        match text.contains(&file) {
            true => text,
            false => format!("{file}: {text}"),
        }
    })?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    print_log(model.vision_log());
    let skipped = model.report().skipped.len();
    if skipped > 0 {
        let _ = writeln!(
            std::io::stderr(),
            "note: {skipped} tensors of blocks that predict further tokens (MTP) are not run"
        );
    }
    let unused = &model.report().unused;
    if !unused.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "note: {} tensors of the file are not used: {}",
            unused.len(),
            unused.join(", ")
        );
    }
    Ok(model)
}

/// The device asked for, or the best of this build.
pub fn device_name(asked: Option<&str>) -> CommandResult<&str> {
    match asked {
        Some(name) => Ok(name),
        None => Ok(
            default_device_name().ok_or("this build has no device; enable a backend feature")?
        ),
    }
}

/// The device of `--experts`, where `cpu` is the best CPU backend of this build.
fn experts_device(name: &str) -> CommandResult<&str> {
    match name.eq_ignore_ascii_case("cpu") {
        true => compiled_devices()
            .into_iter()
            .find(|name| matches!(*name, "flex" | "ndarray"))
            .ok_or_else(|| "--experts cpu needs the `flex` or `ndarray` feature".into()),
        false => Ok(name),
    }
}

/// `FILE` or `FILE:SCALE`; a file whose own name ends like that is taken by its name.
fn lora_file(text: &str) -> CommandResult<LoraFile> {
    let whole = LoraFile::new(text);
    if whole.path.exists() {
        return Ok(whole);
    }
    match text.rsplit_once(':') {
        Some((path, scale)) if Path::new(path).exists() => {
            let scale = scale.parse();
            let scale: f32 = scale.map_err(|_| format!("--lora {text}: the scale is no number"))?;
            Ok(LoraFile {
                path: path.into(),
                scale,
            })
        }
        _ => Ok(whole),
    }
}

/// How images are read by these arguments.
pub fn vision_options(args: &VisionArgs) -> VisionOptions {
    VisionOptions {
        source: match (&args.mmproj, args.no_vision) {
            (_, true) => VisionSource::Off,
            (Some(file), _) => VisionSource::File(file.clone()),
            (None, _) => VisionSource::Auto,
        },
        dtype: args.mmproj_dtype.into(),
        style: args.image_style.into(),
        min_tokens: args.image_min_tokens,
        max_tokens: args.image_max_tokens,
        processor: args.processor.clone(),
    }
}

/// Says how the mmproj file was found.
pub fn print_log(log: &[LogLine]) {
    for line in log {
        let level = match line.level {
            LogLevel::Info => "",
            LogLevel::Warning => "warning: ",
        };
        let _ = writeln!(std::io::stderr(), "{level}{}", line.text);
    }
}

/// As [`load`], without looking for an mmproj file: for commands that feed text only.
pub fn load_text(args: &ModelArgs) -> CommandResult<AutoModel> {
    let mut args = args.clone();
    args.vision.mmproj = None;
    args.vision.no_vision = true;
    load(&args)
}

/// The session options of these arguments.
pub fn session_options(args: &ModelArgs) -> CommandResult<SessionOptions> {
    if args.chunk == 0 {
        return Err("--chunk must be at least 1".into());
    }
    if args.context == Some(0) {
        return Err("--ctx must be at least 1".into());
    }
    Ok(SessionOptions {
        context: args.context,
        chunk: args.chunk,
        cache_dtype: match args.cache {
            CacheArg::F32 => CacheDtype::F32,
            CacheArg::F16 => CacheDtype::F16,
        },
    })
}

fn progress_bar(device: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "loading to {msg} [{bar:30}] {bytes}/{total_bytes} ({bytes_per_sec})";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(device.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
