//! Whether the metadata of two files speak of one model.

use burn_gguf::gguf::{Gguf, GgufString, Value};

use super::names::Words;

/// How two files' metadata go together, the closest last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    /// Another model's, and why.
    Other(String),
    /// Nothing is known.
    Unknown,
    /// One name is a version of the other.
    Related,
    /// The name is that of the model this one was made from.
    Base,
    /// The same name.
    Same,
}

/// What a file says it is.
#[derive(Debug, Default)]
struct Identity {
    name: String,
    words: Words,
    basename: String,
    base_words: Words,
    /// What it was tuned to.
    tune: Words,
    /// Names of the models this one was made from.
    bases: Vec<Words>,
    /// Number of parameters by `general.size_label`, where the label is not merely counted from the file.
    size: Option<f64>,
    label: String,
}

/// More models than that are not merged into one.
const MAX_BASES: usize = 16;

impl Identity {
    fn of(gguf: &Gguf) -> Self {
        let text = |key: &str| match gguf.metadata().value(key) {
            Some(Value::String(text)) => GgufString::to_string_lossy(text).into_owned(),
            _ => String::new(),
        };
        let bases =
            (0..MAX_BASES).map(|n| Words::of(&text(&format!("general.base_model.{n}.name"))));
        let (name, basename) = (text("general.name"), text("general.basename"));
        let label = text("general.size_label");
        Self {
            words: Words::of(&name),
            base_words: Words::of(&basename),
            tune: Words::of(&text("general.finetune")),
            name,
            basename,
            bases: bases.filter(|words| !words.is_empty()).collect(),
            size: parameters(&label).filter(|size| !counted(gguf, *size)),
            label,
        }
    }

    fn sizes(&self) -> Vec<&str> {
        self.words.sizes().chain(self.base_words.sizes()).collect()
    }
}

/// The relation of a vision file to a text file.
pub(super) fn relation(text: &Gguf, vision: &Gguf) -> Relation {
    let (text_size, text, vision) = (text_size(text), Identity::of(text), Identity::of(vision));
    let other = |key: &str, theirs: &str, ours: &str| {
        Relation::Other(format!(
            "it belongs to another model: `{key}` is \"{theirs}\", the model's is \"{ours}\""
        ))
    };
    let (ours, theirs) = (text.sizes(), vision.sizes());
    if !ours.is_empty() && !theirs.is_empty() && !theirs.iter().any(|size| ours.contains(size)) {
        return match vision.words.sizes().next().is_some() {
            true => other("general.name", &vision.name, &text.name),
            false => other("general.basename", &vision.basename, &text.basename),
        };
    }
    if text.words.same(&vision.words) {
        return Relation::Same;
    }
    if text.bases.iter().any(|base| base.same(&vision.words)) {
        return Relation::Base;
    }
    let from_base = text.bases.iter().any(|base| base.related(&vision.words));
    if from_base || text.words.related(&vision.words) {
        return Relation::Related;
    }
    let named = !text.words.is_empty() && !vision.words.is_empty();
    let apart =
        !text.tune.is_empty() && !vision.tune.is_empty() && !text.tune.related(&vision.tune);
    if text.base_words.same(&vision.base_words) && !apart {
        return match named {
            true => Relation::Related,
            false => Relation::Same,
        };
    }
    if named {
        return other("general.name", &vision.name, &text.name);
    }
    if !text.base_words.is_empty() && !vision.base_words.is_empty() {
        return match text.base_words.related(&vision.base_words) && !apart {
            true => Relation::Related,
            false => other("general.basename", &vision.basename, &text.basename),
        };
    }
    // Labels are rounded, and counted a little differently by different converters.
    match (text_size, vision.size) {
        (Some(ours), Some(theirs)) if ours.max(theirs) > 1.5 * ours.min(theirs) => {
            other("general.size_label", &vision.label, &text.label)
        }
        _ => Relation::Unknown,
    }
}

fn text_size(text: &Gguf) -> Option<f64> {
    match text.metadata().value("general.size_label") {
        Some(Value::String(label)) => parameters(&label.to_string_lossy()),
        _ => None,
    }
}

/// `4B`, `517K`, `35B-A3B`; nothing for `8x7B`, which counts experts.
fn parameters(label: &str) -> Option<f64> {
    let label = label.split('-').next().unwrap_or_default().trim();
    let unit = match label.chars().last()?.to_ascii_uppercase() {
        'K' => 1e3,
        'M' => 1e6,
        'B' => 1e9,
        'T' => 1e12,
        _ => return None,
    };
    let number: f64 = label[..label.len() - 1].parse().ok()?;
    (number > 0.0 && number.is_finite()).then_some(number * unit)
}

/// Converters count a file's own values where they know no size of the model, which for a tower is the tower's.
fn counted(gguf: &Gguf, size: f64) -> bool {
    let values: u64 = gguf.tensors().map(|t| t.n_elements()).sum();
    (values as f64 / size - 1.0).abs() < 0.1
}
