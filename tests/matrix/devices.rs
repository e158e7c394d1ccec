//! Which devices the suite runs on.

use burn::tensor::Device;
use burn_gguf::device::{compiled_devices, open_device};

use crate::report::say;

/// The devices of `BURN_GGUF_DEVICES`, all of which must work, or those compiled in that this machine has.
pub fn picked() -> Vec<(String, Device)> {
    if let Some(names) = std::env::var_os("BURN_GGUF_DEVICES") {
        let names = names.into_string().expect("BURN_GGUF_DEVICES is UTF-8");
        let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
        return names
            .map(|name| match open_device(name) {
                Ok(device) => (name.to_string(), device),
                Err(error) => panic!("BURN_GGUF_DEVICES: {error}"),
            })
            .collect();
    }
    let mut devices = Vec::new();
    for name in compiled_devices() {
        match open_device(name) {
            Ok(device) => devices.push((name.to_string(), device)),
            Err(error) => say(&format!("skipped: {name}: {error}")),
        }
    }
    devices
}
