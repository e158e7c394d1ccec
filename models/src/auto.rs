//! Opening a model by its file alone.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use crate::chat::{Chat, ChatTemplate};
use crate::error::ModelError;
use crate::families::{families, family};
use crate::generation::{GenerateError, GenerateOptions, Generation};
use crate::load::{LoadOptions, LoadReport};
use crate::model::TextModel;
use crate::session::{Session, SessionOptions};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// A model of any supported architecture, loaded on a device.
pub struct AutoModel {
    gguf: Gguf,
    model: Box<dyn TextModel>,
    // Kept apart from the weights: whoever feeds token ids needs no tokenizer.
    tokenizer: Result<Tokenizer, Arc<TokenizerError>>,
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

    /// A conversation as the tokens of a prompt, through the file's chat template.
    ///
    /// # Errors
    /// If the template is missing, refuses the conversation, or its text cannot be encoded.
    pub fn chat_prompt(&self, chat: &Chat) -> Result<Vec<u32>, GenerateError> {
        let text = self.chat_template()?.render(chat)?;
        Ok(self.tokenizer()?.encode_prompt(text)?)
    }

    /// An empty session.
    pub fn session(&self, options: &SessionOptions) -> Session<'_> {
        Session::new(&*self.model, options)
    }

    /// Generates from a prompt in a session of its own.
    ///
    /// # Errors
    /// As [`Generation::start`].
    pub fn generate(
        &self,
        prompt: &[u32],
        options: GenerateOptions,
    ) -> Result<Generation<'_>, GenerateError> {
        Generation::start(
            self.session(&options.session),
            self.tokenizer()?,
            prompt,
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
