//! Loading a model for a command.

use std::io::Write;
use std::time::Duration;

use burn_gguf::device::{Backend, default_device_name, open_device};
use burn_gguf::gguf::Gguf;
use burn_gguf_models::layers::CacheDtype;
use burn_gguf_models::{AutoModel, LoadOptions, SessionOptions};
use indicatif::{ProgressBar, ProgressStyle};

use super::CommandResult;
use super::devices::quietly;
use crate::args::{CacheArg, ModelArgs};
use crate::source::resolve;

/// Loads the model on its device; a progress bar shows uploads that take a while.
pub fn load(args: &ModelArgs) -> CommandResult<AutoModel> {
    let name = match &args.device {
        Some(name) => name.as_str(),
        None => {
            default_device_name().ok_or("this build has no device; enable a backend feature")?
        }
    };
    let gguf = Gguf::open(resolve(&args.model)?)?;
    let device = quietly(|| open_device(name))?;
    if matches!(args.cache, CacheArg::F16) && matches!(Backend::of(&device)?, Backend::NdArray) {
        return Err("--cache f16 does not work on ndarray, which has no 16-bit floats".into());
    }
    let mut options = LoadOptions {
        arithmetic: args.arithmetic.into(),
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
    let model = AutoModel::load(gguf, &device, options)?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
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
