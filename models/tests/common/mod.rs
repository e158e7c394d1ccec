//! What the suites over models share: where the cases are, `.npy` files, devices, and the measure of agreement.

#![allow(dead_code)] // Each suite uses a part.

use std::io::Write;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf::device::{compiled_devices, open_device};
use burn_gguf::gguf::Gguf;
use burn_gguf_models::{AutoModel, LoadOptions, ModelError, SessionOptions};

/// Prints a line past the test harness, which would keep it back when the test passes.
pub fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("standard output is open");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The shared cases: `BURN_GGUF_SHARED/cases`, else `shared/cases` beside the workspace.
pub fn shared() -> PathBuf {
    std::env::var_os("BURN_GGUF_SHARED")
        .map_or_else(|| root().join("../shared"), PathBuf::from)
        .join("cases")
}

/// A file or folder of the cases, from the fixtures or the shared folder; `None` after saying that it is nowhere.
pub fn case(path: &str) -> Option<PathBuf> {
    let found = [root().join("tests/fixtures"), shared()]
        .map(|dir| dir.join(path))
        .into_iter()
        .find(|p| p.exists());
    if found.is_none() {
        say(&format!(
            "skipped: {path} is neither in tests/fixtures nor in {}",
            shared().display()
        ));
    }
    found
}

/// The folder of the real models: `BURN_GGUF_MODELS`, else `models-cache` in the workspace.
pub fn real_models() -> PathBuf {
    std::env::var_os("BURN_GGUF_MODELS").map_or_else(|| root().join("models-cache"), PathBuf::from)
}

/// The devices of `BURN_GGUF_DEVICES`, all of which must work, or those compiled in that this machine has.
pub fn devices() -> Vec<(String, Device)> {
    if let Some(names) = std::env::var_os("BURN_GGUF_DEVICES") {
        let names = names.into_string().expect("BURN_GGUF_DEVICES is UTF-8");
        let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
        return names
            .map(|name| {
                (
                    name.to_string(),
                    open_device(name).unwrap_or_else(|e| panic!("BURN_GGUF_DEVICES: {e}")),
                )
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

/// A `.npy` array: its shape and its values.
pub struct Npy {
    pub shape: Vec<usize>,
    descr: String,
    data: Vec<u8>,
}

impl Npy {
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let header = std::str::from_utf8(&bytes[10..start]).unwrap();
        assert!(
            header.contains("'fortran_order': False"),
            "{}",
            path.display()
        );
        let after = |key: &str| header.split(key).nth(1).unwrap();
        let shape = after("'shape': (")
            .split(')')
            .next()
            .unwrap()
            .split(',')
            .filter_map(|n| n.trim().parse().ok());
        Self {
            shape: shape.collect(),
            descr: after("'descr': '").split('\'').next().unwrap().to_string(),
            data: bytes[start..].to_vec(),
        }
    }

    pub fn floats(&self) -> Vec<f32> {
        match self.descr.as_str() {
            "<f4" => self
                .data
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect(),
            "<f2" => self
                .data
                .chunks_exact(2)
                .map(|b| half_to_f32(u16::from_le_bytes(b.try_into().unwrap())))
                .collect(),
            other => panic!("{other} are no floats"),
        }
    }

    pub fn ids(&self) -> Vec<u32> {
        let ids = self.ints().into_iter();
        ids.map(|id| u32::try_from(id).unwrap()).collect()
    }

    pub fn ints(&self) -> Vec<i64> {
        assert_eq!(self.descr, "<i4");
        self.data
            .chunks_exact(4)
            .map(|b| i32::from_le_bytes(b.try_into().unwrap()).into())
            .collect()
    }
}

fn half_to_f32(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => f32::INFINITY,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// Squared error relative to the squared reference.
pub fn nmse(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().all(|v| v.is_finite()), "a logit is not finite");
    let square = |v: f64| v * v;
    let error: f64 = got
        .iter()
        .zip(want)
        .map(|(&g, &w)| square(f64::from(g) - f64::from(w)))
        .sum();
    let size: f64 = want.iter().map(|&w| square(f64::from(w))).sum();
    assert!(size > 0.0, "the reference is zero");
    error / size
}

/// The first of the largest values.
pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.expect("there are logits").0 as u32
}

pub fn load(path: &Path, device: &Device, arithmetic: Arithmetic) -> Result<AutoModel, ModelError> {
    let options = LoadOptions {
        arithmetic,
        ..LoadOptions::default()
    };
    AutoModel::load(Gguf::open(path)?, device, options)
}

pub fn chunked(chunk: usize) -> SessionOptions {
    SessionOptions {
        chunk,
        ..SessionOptions::default()
    }
}
