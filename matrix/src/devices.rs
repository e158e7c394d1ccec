//! Which devices the suite runs on.

use burn::tensor::Device;
use burn_gguf::device::{Backend, compiled_devices, open_device};

use crate::error::MatrixError;

/// A device of the suite.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name, as [`open_device`] takes it.
    pub name: String,
    /// The device, or why there is none on this machine.
    pub device: Result<Device, String>,
}

impl Target {
    /// Whether it is a CPU backend.
    pub fn is_cpu(&self) -> bool {
        let backend = self.device.as_ref().ok().map(Backend::of);
        matches!(backend, Some(Ok(backend)) if backend.is_cpu())
    }
}

/// The devices of these names, all of which must work; or, without names, every device compiled in, those that this
/// machine lacks with the reason.
///
/// # Errors
/// A name that is no device of this build and machine, or no name and no device at all.
pub fn targets<S: AsRef<str>>(names: &[S]) -> Result<Vec<Target>, MatrixError> {
    if names.is_empty() {
        let compiled = compiled_devices();
        let targets: Vec<_> = compiled
            .iter()
            .map(|&name| Target {
                name: name.to_string(),
                device: open_device(name).map_err(|e| e.to_string()),
            })
            .collect();
        return match targets.iter().any(|target| target.device.is_ok()) {
            true => Ok(targets),
            false => Err(MatrixError::NoDevice {
                compiled: compiled.join(", "),
            }),
        };
    }
    let mut targets: Vec<Target> = Vec::new();
    for name in names.iter().map(|name| name.as_ref().trim()) {
        if targets.iter().all(|target| target.name != name) {
            targets.push(Target {
                name: name.to_string(),
                device: Ok(open_device(name)?),
            });
        }
    }
    Ok(targets)
}
