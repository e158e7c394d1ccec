//! What can be wrong with a vision file, one variant a rule.

use burn_gguf::gguf::{FileName, GgufError};

use super::super::processor::{ConfigError, ProcessorKind};

/// Why a file is no vision tower, or not one for this model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values the messages print
pub enum MmprojError {
    /// The file cannot be read, or a key is missing or of another kind.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// `general.architecture` is that of a text model.
    #[error(
        "{file}: a text model, not an mmproj file: `general.architecture` is \"{architecture}\"; give the mmproj file of the model, whose architecture is \"clip\""
    )]
    TextModel {
        file: FileName,
        architecture: String,
    },
    /// A vision tower was given where a text model belongs.
    #[error(
        "{file}: an mmproj file (a vision tower), not a model; give the text model as the model and this file with --mmproj"
    )]
    MainModel { file: FileName },
    /// `general.type` says it is something else.
    #[error(
        "{file}: `general.type` is \"{value}\", not \"mmproj\"; give the mmproj file of the model"
    )]
    FileType { file: FileName, value: String },
    /// A tower for sound alone.
    #[error("{file}: audio only: the file has an audio encoder and no vision encoder")]
    AudioOnly { file: FileName },
    /// No tower at all.
    #[error("{file}: no vision encoder: {reason}")]
    NoVision { file: FileName, reason: String },
    /// The projector is not named.
    #[error(
        "{file}: neither `clip.projector_type` nor `clip.vision.projector_type` is there; supported are {}",
        supported()
    )]
    NoProjector { file: FileName },
    /// The projector is not known.
    #[error(
        "{file}: `{key}` is \"{value}\", which is not supported; supported are {}",
        supported()
    )]
    UnknownProjector {
        file: FileName,
        key: &'static str,
        value: String,
    },
    /// The projector is named twice.
    #[error(
        "{file}: `clip.projector_type` is \"{general}\" and `clip.vision.projector_type` is \"{vision}\"; they must agree"
    )]
    TwoProjectors {
        file: FileName,
        general: String,
        vision: String,
    },
    /// A value that makes no sense.
    #[error("{file}: `{key}` is {value}: {reason}")]
    InvalidValue {
        file: FileName,
        key: String,
        value: String,
        reason: String,
    },
    /// A tensor of another shape than the keys say.
    #[error("{file}: tensor `{tensor}` has shape {shape:?}, expected {expected}")]
    Shape {
        file: FileName,
        tensor: String,
        shape: Vec<u64>,
        expected: String,
    },
    /// `is_deepstack_layers` and the tensors disagree.
    #[error(
        "{file}: `clip.vision.is_deepstack_layers` is {flag} for layer {layer}, but tensor `v.deepstack.{layer}.fc1.weight` is {}",
        if *.flag { "missing" } else { "there" }
    )]
    DeepStack {
        file: FileName,
        layer: usize,
        flag: bool,
    },
    /// The settings of the image processor do not work.
    #[error("{file}: {source}")]
    Processor {
        file: FileName,
        #[source]
        source: ConfigError,
    },
    /// A model that takes no images.
    #[error(
        "{file}: of no use here: a model of architecture \"{architecture}\" takes text only; leave it out"
    )]
    TextOnly {
        file: FileName,
        architecture: String,
    },
    /// A tower of another family.
    #[error(
        "{file}: projector \"{}\" belongs to another family: architecture \"{architecture}\" takes {}",
        .projector.projector(), names(.takes)
    )]
    Family {
        file: FileName,
        projector: ProcessorKind,
        architecture: String,
        takes: &'static [ProcessorKind],
    },
    /// A tower of another width.
    #[error(
        "{file}: the output is {width} wide ({parts} of {projection}), the model takes {expected}; it is the mmproj file of another model"
    )]
    Width {
        file: FileName,
        width: usize,
        parts: usize,
        projection: usize,
        expected: usize,
    },
    /// The tokenizer lacks what stands around an image.
    #[error(
        "{file}: projector \"{}\" puts {} around images, which the model's tokenizer does not have",
        .projector.projector(), .missing.join(" and ")
    )]
    Tokens {
        file: FileName,
        projector: ProcessorKind,
        missing: Vec<&'static str>,
    },
    /// The text model was converted without positions for images.
    #[error(
        "{file}: projector \"{}\" needs `{key}`, which the model does not have; it was converted for text only",
        .projector.projector()
    )]
    Positions {
        file: FileName,
        projector: ProcessorKind,
        key: String,
    },
    /// Frames cannot be told apart.
    #[error("{file}: no videos: {reason}")]
    NoVideo {
        file: FileName,
        reason: &'static str,
    },
}

/// The projectors there are, comma separated.
fn supported() -> String {
    let names = ProcessorKind::ALL.map(ProcessorKind::projector);
    names.join(", ")
}

fn names(kinds: &[ProcessorKind]) -> String {
    let names: Vec<_> = kinds
        .iter()
        .map(|kind| format!("\"{}\"", kind.projector()))
        .collect();
    names.join(" or ")
}
