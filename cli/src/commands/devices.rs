//! `burn-gguf devices`: what this build and machine can run on.

use std::io::Write;

use burn_gguf::device::{compiled_devices, default_device_name, open_device};

use super::CommandResult;

pub fn run() -> CommandResult {
    let compiled = compiled_devices();
    if compiled.is_empty() {
        return Err("this build has no device; enable a backend feature".into());
    }
    let mut out = std::io::stdout();
    for name in compiled {
        let default = match default_device_name() == Some(name) {
            true => " (default)",
            false => "",
        };
        match quietly(|| open_device(name)) {
            Ok(device) => writeln!(out, "{name:<8} available{default}  {device:?}")?,
            Err(error) => writeln!(out, "{name:<8} {error}")?,
        }
    }
    Ok(())
}

/// Runs `f` without the report a panic would print: a runtime without its driver panics while it is probed.
pub(super) fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = f();
    std::panic::set_hook(hook);
    result
}
