//! Telling model files apart without reading them whole.

use std::fmt::Write;

use burn_gguf::gguf::Gguf;
use sha2::{Digest, Sha256};

/// Bytes of a sample of a tensor, and how many are taken, the first and the last bytes among them.
const SAMPLE: usize = 64;
const SAMPLES: usize = 16;

/// A hash of what files hold: their metadata but for the tokenizer's, tensor names, shapes and types, and samples across
/// each tensor. Fine-tunes of a model differ in it; a change of single values may not.
#[derive(Default)]
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    /// Adds a file.
    pub fn add(&mut self, gguf: &Gguf) -> &mut Self {
        let hasher = &mut self.0;
        for (key, value) in gguf.metadata().iter() {
            if !key.starts_with("tokenizer.") {
                hasher.update(key.as_bytes());
                hasher.update(format!("{value:?}").as_bytes());
            }
        }
        for tensor in gguf.tensors() {
            hasher.update(tensor.name().as_bytes());
            for n in tensor.shape() {
                hasher.update(n.to_le_bytes());
            }
            hasher.update(tensor.type_id().to_le_bytes());
            let data = tensor.data();
            let last = data.len().saturating_sub(SAMPLE);
            for i in 0..SAMPLES {
                let from = last / (SAMPLES - 1) * i;
                hasher.update(&data[from..data.len().min(from + SAMPLE)]);
            }
            hasher.update(&data[last..]);
        }
        self
    }

    /// Adds bytes.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(bytes);
        self
    }

    /// The hash in hexadecimal.
    pub fn finish(&self) -> String {
        let hash = self.0.clone().finalize();
        hash.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}
