//! Finding the vision file of a text model.
//!
//! A file that is given must be the model's. Otherwise `*mmproj*.gguf` is looked for beside the model, and one folder
//! up where the model is in a folder of one quantization. What cannot be the model's is passed over, each with a line
//! that says why; among the rest the metadata decide, then the names, then the type: BF16, F32, F16, quantized. Where
//! nothing decides, the model is run on text alone and images are refused with the reason.
//!
//! Nothing is printed here: the caller prints [`Found::log`] and [`Found::load_line`].

mod choose;
mod folder;
mod identity;
mod names;

use std::fmt;
use std::path::PathBuf;

use burn_gguf::gguf::Gguf;

use super::mmproj::{Mmproj, MmprojError, TextFacts, check_main_model, towers};
use identity::{Relation, relation};

/// Where a model's tower comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VisionSource {
    /// The model's own file, else what lies beside it.
    #[default]
    Auto,
    /// This file.
    File(PathBuf),
    /// From nowhere: text only.
    Off,
}

/// What decided between the files of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Its metadata name the model.
    Metadata,
    /// Its file is named like the model.
    Name,
    /// It is the best of those that fit.
    Fit,
}

/// How a tower was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It was given.
    Given,
    /// Inside the text file.
    Embedded,
    /// In the model's folder.
    Beside(Match),
    /// In the folder above that of the model.
    Above(Match),
    /// There is none.
    Nowhere,
    /// None was looked for.
    Off,
}

impl fmt::Display for How {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, matched) = match self {
            How::Given => ("given", Match::Fit),
            How::Embedded => ("inside the model file", Match::Fit),
            How::Beside(matched) => ("found beside the model", *matched),
            How::Above(matched) => ("found above the model's folder", *matched),
            How::Nowhere => ("not found", Match::Fit),
            How::Off => ("off", Match::Fit),
        };
        out.write_str(place)?;
        out.write_str(match matched {
            Match::Metadata => ", by its metadata",
            Match::Name => ", by its name",
            Match::Fit => "",
        })
    }
}

/// Weight of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For those who want to know.
    Info,
    /// For everyone.
    Warning,
}

/// A line for the caller to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Its weight.
    pub level: LogLevel,
    /// The text, of one line.
    pub text: String,
}

impl LogLine {
    fn info(text: impl fmt::Display) -> Self {
        Self {
            level: LogLevel::Info,
            text: format!("vision: {text}"),
        }
    }

    fn warning(text: impl fmt::Display) -> Self {
        Self {
            level: LogLevel::Warning,
            text: format!("vision: {text}"),
        }
    }
}

/// The outcome of [`find`].
#[derive(Debug, Clone)]
pub struct Found {
    /// The tower, if there is one.
    pub mmproj: Option<Mmproj>,
    /// How it was found.
    pub how: How,
    /// What happened on the way, in order.
    pub log: Vec<LogLine>,
    /// Without a tower: why images are refused.
    pub reason: Option<String>,
}

impl Found {
    fn none(how: How, log: Vec<LogLine>, reason: impl Into<String>) -> Self {
        Self {
            mmproj: None,
            how,
            log,
            reason: Some(reason.into()),
        }
    }

    fn some(mmproj: Mmproj, how: How, mut log: Vec<LogLine>) -> Self {
        if mmproj.is_quantized() {
            let place = match how {
                How::Embedded => "the tower inside ",
                _ => "",
            };
            log.push(LogLine::warning(format_args!(
                "{place}{} is quantized ({}): images are seen less exactly; a BF16 file is better",
                mmproj.gguf().file(),
                mmproj.quantized_type(),
            )));
        }
        Self {
            mmproj: Some(mmproj),
            how,
            log,
            reason: None,
        }
    }

    /// The one line about the outcome. `compute` is the type the tower is run in, such as `F32`.
    pub fn load_line(&self, compute: &str) -> LogLine {
        match (&self.mmproj, &self.reason) {
            (Some(mmproj), _) => LogLine::info(format_args!(
                "{} ({}), projector {}, {} -> {compute}, {}",
                mmproj.gguf().file(),
                self.how,
                mmproj.projector(),
                mmproj.file_type(),
                Size(mmproj.byte_len()),
            )),
            (None, Some(reason)) => LogLine::info(format_args!("text only: {reason}")),
            (None, None) => LogLine::info("text only"),
        }
    }
}

/// Bytes, for people.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = self.0 as f64 / 1024.0;
        match kib {
            kib if kib < 1024.0 => write!(out, "{kib:.1} KiB"),
            kib if kib < 1024.0 * 1024.0 => write!(out, "{:.1} MiB", kib / 1024.0),
            kib => write!(out, "{:.2} GiB", kib / (1024.0 * 1024.0)),
        }
    }
}

/// Finds the tower of the text model in `text`, which `facts` describe.
///
/// # Errors
/// An mmproj file in the place of the model, or a given file that is not the model's. What is found without being
/// given never is an error: it is passed over.
pub fn find(
    text: &Gguf,
    facts: &TextFacts<'_>,
    source: &VisionSource,
) -> Result<Found, MmprojError> {
    check_main_model(text)?;
    let architecture = facts.architecture;
    let path = match source {
        VisionSource::Off => {
            return Ok(Found::none(How::Off, Vec::new(), "vision is turned off"));
        }
        VisionSource::Auto => None,
        VisionSource::File(path) => Some(path),
    };
    if towers(architecture).is_empty() {
        return match path {
            Some(path) => Err(MmprojError::TextOnly {
                file: path.as_path().into(),
                architecture: architecture.to_owned(),
            }),
            None => {
                let reason = format!("a model of architecture \"{architecture}\" takes text only");
                Ok(Found::none(How::Off, Vec::new(), reason))
            }
        };
    }
    let mut log = Vec::new();
    if let Some(path) = path {
        let mmproj = Mmproj::open(path)?;
        check(&mmproj, text, facts)?;
        if Mmproj::embedded(text).is_ok_and(|inside| inside.is_some()) {
            let line = "not used: the tower inside the model file (another was given)";
            log.push(LogLine::info(line));
        }
        // Whoever gives a file may know better than its metadata.
        if let Relation::Other(reason) = relation(text, mmproj.gguf()) {
            log.push(LogLine::warning(format_args!(
                "{} is used as given, though {reason}",
                path.display()
            )));
        }
        return Ok(Found::some(mmproj, How::Given, log));
    }
    let inside = Mmproj::embedded(text).and_then(|inside| {
        let fits = inside.as_ref().map_or(Ok(()), |m| check(m, text, facts));
        fits.map(|()| inside)
    });
    match inside {
        Ok(Some(mmproj)) => return Ok(Found::some(mmproj, How::Embedded, log)),
        Ok(None) => {}
        Err(error) => log.push(LogLine::warning(format_args!(
            "the tower inside the model file is not used: {error}"
        ))),
    }
    Ok(folder::search(text, facts, log))
}

/// Whether a tower is one for this model.
fn check(mmproj: &Mmproj, text: &Gguf, facts: &TextFacts<'_>) -> Result<(), MmprojError> {
    mmproj.fits(facts)?;
    mmproj.has_positions(text)
}
