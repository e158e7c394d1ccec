//! Opening a model by its file alone.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;

use crate::chat::ChatTemplate;
use crate::error::ModelError;
use crate::families::{families, family};
use crate::generation::{GenerateError, GenerateOptions, Generation};
use crate::load::{LoadOptions, LoadReport};
use crate::lora::LoraFile;
use crate::model::TextModel;
use crate::prompt::Prompt;
use crate::session::{ModelSource, Session, SessionOptions};
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::vision::discover::LogLine;
use crate::vision::mmproj::{TextFacts, check_main_model};
use crate::vision::{Vision, VisionError, VisionOptions, load_vision};

/// A model of any supported architecture, loaded on a device.
pub struct AutoModel {
    gguf: Gguf,
    model: Box<dyn TextModel>,
    // Kept apart from the weights: whoever feeds token ids needs no tokenizer.
    tokenizer: Result<Tokenizer, Arc<TokenizerError>>,
    report: LoadReport,
    lora: Vec<LoraFile>,
    // Its eyes, or why it has none.
    vision: Result<Vision, String>,
    vision_log: Vec<LogLine>,
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

    /// Loads an opened file, and the mmproj file beside it if the model reads images
    /// ([`VisionOptions`] says which, or none).
    ///
    /// # Errors
    /// As [`open`](Self::open), or an mmproj file that was asked for and does not fit.
    pub fn load(gguf: Gguf, device: &Device, options: LoadOptions) -> Result<Self, ModelError> {
        let (vision, arithmetic) = (options.vision.clone(), options.arithmetic);
        let mut model = Self::load_text(gguf, device, options)?;
        model.load_eyes(device, &vision, arithmetic)?;
        Ok(model)
    }

    fn load_eyes(
        &mut self,
        device: &Device,
        options: &VisionOptions,
        arithmetic: Arithmetic,
    ) -> Result<(), ModelError> {
        let has_token = |text: &str| {
            let tokenizer = self.tokenizer.as_ref().ok();
            tokenizer.is_some_and(|tokenizer| tokenizer.token_id(text).is_some())
        };
        let facts = TextFacts {
            architecture: self.model.architecture(),
            image_width: self.model.image_width(),
            has_token: &has_token,
        };
        let loaded = load_vision(&self.gguf, &facts, device, options, arithmetic)
            .map_err(|error| ModelError::Vision(Box::new(error)))?;
        // A tower inside the text file is not left over.
        let unused = &mut self.report.unused;
        unused.retain(|name| !loaded.embedded.contains(name));
        self.vision = loaded.vision;
        self.vision_log = loaded.log;
        Ok(())
    }

    fn load_text(gguf: Gguf, device: &Device, options: LoadOptions) -> Result<Self, ModelError> {
        let architecture = gguf.metadata().architecture()?;
        check_main_model(&gguf).map_err(|error| ModelError::Vision(Box::new(error.into())))?;
        let family = family(architecture).ok_or_else(|| ModelError::UnknownArchitecture {
            architecture: architecture.to_string(),
            supported: supported(),
        })?;
        if gguf.tensors().len() == 0 {
            return Err(ModelError::NoTensors {
                file: gguf.file().to_string(),
            });
        }
        let lora = options.lora.clone();
        // The vocabulary and the weights are read side by side: the first takes a tenth of a second.
        let (tokenizer, loaded) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| Tokenizer::from_metadata(gguf.metadata()));
            let loaded = (family.load)(&gguf, device, options);
            let tokenizer = tokenizer
                .join()
                .unwrap_or_else(|e| std::panic::resume_unwind(e));
            (tokenizer, loaded)
        });
        let (model, report) = loaded?;
        Ok(Self {
            tokenizer: tokenizer.map_err(Arc::new),
            gguf,
            model,
            report,
            lora,
            vision: Err("no mmproj file was looked for".to_owned()),
            vision_log: Vec::new(),
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

    /// The tokenizer.
    ///
    /// # Errors
    /// If the file's cannot be built; the model runs on token ids all the same.
    pub fn tokenizer(&self) -> Result<&Tokenizer, ModelError> {
        self.tokenizer
            .as_ref()
            .map_err(|error| ModelError::Tokenizer(error.clone()))
    }

    /// The file's chat template.
    ///
    /// # Errors
    /// If the file has none, it does not compile, or there is no tokenizer.
    pub fn chat_template(&self) -> Result<ChatTemplate, GenerateError> {
        let tokenizer = self.tokenizer()?;
        Ok(ChatTemplate::from_metadata(
            self.gguf.metadata(),
            tokenizer,
        )?)
    }

    /// The model's eyes.
    ///
    /// # Errors
    /// If it has none, with the reason.
    pub fn vision(&self) -> Result<&Vision, VisionError> {
        self.vision
            .as_ref()
            .map_err(|reason| VisionError::NoVision {
                reason: reason.clone(),
            })
    }

    /// The model with other eyes, for example those of a file in memory. Their rows must be as wide as
    /// [`image_width`](TextModel::image_width).
    #[must_use]
    pub fn with_vision(mut self, vision: Vision) -> Self {
        self.vision = Ok(vision);
        self
    }

    /// How the mmproj file was found, or why there is none, line by line.
    pub fn vision_log(&self) -> &[LogLine] {
        &self.vision_log
    }

    /// An empty session.
    pub fn session(&self, options: &SessionOptions) -> Session<'_> {
        Session::new(&*self.model, options).with_source(ModelSource {
            gguf: &self.gguf,
            lora: &self.lora,
            vision: self.vision.as_ref().ok(),
        })
    }

    /// Generates from a prompt in a session of its own.
    ///
    /// # Errors
    /// As [`Generation::start`].
    pub fn generate(
        &self,
        prompt: impl Into<Prompt>,
        options: GenerateOptions,
    ) -> Result<Generation<'_>, GenerateError> {
        Generation::start(
            self.session(&options.session),
            self.tokenizer()?,
            &prompt.into(),
            &options,
        )
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
