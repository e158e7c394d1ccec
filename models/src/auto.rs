//! Opening a model by its file alone.

use std::path::Path;

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use crate::error::ModelError;
use crate::families::{families, family};
use crate::load::{LoadOptions, LoadReport};
use crate::model::TextModel;

/// A model of any supported architecture, loaded on a device.
pub struct AutoModel {
    gguf: Gguf,
    model: Box<dyn TextModel>,
    report: LoadReport,
}

impl AutoModel {
    /// Opens `path` and loads the model its `general.architecture` names, weights packed.
    ///
    /// # Errors
    /// An invalid file, an architecture that is not supported (the error lists those that are), or tensors that
    /// do not make up the model.
    pub fn open(path: impl AsRef<Path>, device: &Device) -> Result<Self, ModelError> {
        Self::load(Gguf::open(path)?, device, LoadOptions::default())
    }

    /// Loads an opened file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn load(gguf: Gguf, device: &Device, options: LoadOptions) -> Result<Self, ModelError> {
        let architecture = gguf.metadata().architecture()?;
        let family = family(architecture).ok_or_else(|| ModelError::UnknownArchitecture {
            architecture: architecture.to_string(),
            supported: supported(),
        })?;
        if gguf.tensors().len() == 0 {
            return Err(ModelError::NoTensors {
                file: gguf.file().to_string(),
            });
        }
        let (model, report) = (family.load)(&gguf, device, options)?;
        Ok(Self {
            gguf,
            model,
            report,
        })
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The model.
    pub fn model(&self) -> &dyn TextModel {
        &*self.model
    }

    /// What the load left over.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }
}

fn supported() -> String {
    let names: Vec<_> = families().iter().map(|f| f.architecture).collect();
    names.join(", ")
}
