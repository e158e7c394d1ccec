//! Looking for vision files in folders.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use burn_gguf::gguf::Gguf;

use super::super::mmproj::{Mmproj, TextFacts};
use super::choose::{Candidate, Choice, choose};
use super::identity::{Relation, relation};
use super::names::{Words, names_quantization, shard, stem};
use super::{Found, How, LogLine, check};

/// Looks beside the model, then above a folder of one quantization.
pub(super) fn search(text: &Gguf, facts: &TextFacts<'_>, mut log: Vec<LogLine>) -> Found {
    let Some(path) = text.path() else {
        let reason = "the model is in memory, where no mmproj file lies beside it; give one";
        return Found::none(How::Nowhere, log, reason);
    };
    let own = folder_of(path);
    let mut reasons = Vec::new();
    match search_one(text, path, facts, &own, &mut log) {
        Ok((mmproj, matched)) => return Found::some(mmproj, How::Beside(matched), log),
        Err(reason) => reasons.push(reason),
    }
    if let Some(above) = above(&own) {
        log.push(LogLine::info(format_args!(
            "looking in {} too: {} is the folder of one quantization",
            above.display(),
            own.display()
        )));
        match search_one(text, path, facts, &above, &mut log) {
            Ok((mmproj, matched)) => return Found::some(mmproj, How::Above(matched), log),
            Err(reason) => reasons.push(reason),
        }
    }
    Found::none(How::Nowhere, log, reasons.join("; "))
}

/// The folder that the model's path names: a link to a model elsewhere counts as lying where the link is.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_path_buf(),
        None => PathBuf::from("."),
    }
}

/// The parent of a folder that is named after a quantization.
fn above(own: &Path) -> Option<PathBuf> {
    // `.` and `..` have a name only once they are followed.
    let full = match own.file_name() {
        Some(_) => own.to_path_buf(),
        None => fs::canonicalize(own).ok()?,
    };
    let named = names_quantization(&full.file_name()?.to_string_lossy());
    named.then(|| folder_of(&full))
}

/// What one folder has for the model, or why it has nothing.
fn search_one(
    text: &Gguf,
    path: &Path,
    facts: &TextFacts<'_>,
    folder: &Path,
    log: &mut Vec<LogLine>,
) -> Result<(Mmproj, super::Match), String> {
    let files = match list(folder) {
        Ok(files) => files,
        Err(error) => {
            let line = format!("cannot look in {}: {error}", folder.display());
            log.push(LogLine::warning(&line));
            return Err(line);
        }
    };
    let own: Vec<PathBuf> = text
        .shards()
        .filter_map(|p| fs::canonicalize(p).ok())
        .collect();
    let is_own = |file: &Path| fs::canonicalize(file).is_ok_and(|file| own.contains(&file));
    let (vision, models): (Vec<_>, Vec<_>) = files
        .into_iter()
        .filter(|file| !is_own(file))
        .partition(|file| is_candidate(file));
    let found = vision.len();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut candidates = Vec::new();
    for file in vision {
        match candidate(text, facts, &file, &mut seen) {
            Ok(Some(candidate)) => candidates.push(candidate),
            Ok(None) => {}
            Err(reason) => log.push(LogLine::info(format_args!("skipped {reason}"))),
        }
    }
    let none = || match found {
        0 => format!(
            "no mmproj file lies in {}; put the model's there or give it with --mmproj",
            folder.display()
        ),
        n => format!(
            "none of the {n} mmproj file{} in {} is this model's; give one with --mmproj",
            if n == 1 { "" } else { "s" },
            folder.display()
        ),
    };
    if candidates.is_empty() {
        return Err(none());
    }
    // Other models matter only where there is something to be mistaken about.
    let ours = Words::of_file(path);
    let others = other_models(text, &ours, models);
    match choose(&ours, &others, candidates) {
        Choice::One {
            candidate,
            matched,
            skipped,
            rest,
        } => {
            log.extend(skipped);
            log.extend(rest);
            Ok((candidate.mmproj, matched))
        }
        Choice::None { skipped } => {
            log.extend(skipped);
            Err(none())
        }
        Choice::Unclear { skipped, names } => {
            log.extend(skipped);
            let line = format!(
                "{} in {} and nothing tells which is this model's: {}; give one with --mmproj",
                match names.len() {
                    1 => "one mmproj file for several models is".to_owned(),
                    n => format!("{n} mmproj files are"),
                },
                folder.display(),
                names.join(", ")
            );
            log.push(LogLine::warning(&line));
            Err(line)
        }
    }
}

/// The `.gguf` entries of a folder by name; of shards the first.
fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = folder.join(entry?.file_name());
        let gguf = |extension: &OsStr| extension.eq_ignore_ascii_case("gguf");
        let first = path.file_stem().is_none_or(|stem| {
            shard(&stem.to_string_lossy()).is_none_or(|(_, number)| number == 1)
        });
        if path.extension().is_some_and(gguf) && first {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn is_candidate(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.to_lowercase().contains("mmproj")
}

/// A file that fits the model; nothing for one that was seen under another name. The error is why it is passed over.
fn candidate(
    text: &Gguf,
    facts: &TextFacts<'_>,
    file: &Path,
    seen: &mut Vec<PathBuf>,
) -> Result<Option<Candidate>, String> {
    let because = |reason: &str| format!("{}: {reason}", file.display());
    // Opening follows links, and so does this.
    let real = match fs::canonicalize(file) {
        Ok(real) => real,
        Err(_) if file.is_symlink() => return Err(because("a link to a file that is not there")),
        Err(error) => return Err(because(&format!("cannot be read: {error}"))),
    };
    if real.is_dir() {
        return Err(because("a folder, not a file"));
    }
    if seen.contains(&real) {
        return Ok(None);
    }
    seen.push(real);
    let mmproj = Mmproj::open(file).map_err(|error| error.to_string())?;
    check(&mmproj, text, facts).map_err(|error| error.to_string())?;
    let relation = match relation(text, mmproj.gguf()) {
        Relation::Other(reason) => return Err(because(&reason)),
        relation => relation,
    };
    Ok(Some(Candidate {
        name: file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        path: file.to_path_buf(),
        words: Words::of_file(file),
        mmproj,
        relation,
    }))
}

/// The other text models of a folder, by the words of their names. Files of one name but another quantization are one
/// model, and so are those whose metadata have the same name.
fn other_models(text: &Gguf, ours: &Words, files: Vec<PathBuf>) -> Vec<(String, Words)> {
    let mut others: Vec<(String, Words)> = Vec::new();
    for file in files {
        let words = Words::of_file(&file);
        let known = words == *ours || others.iter().any(|(_, other)| *other == words);
        if known || file.is_dir() || !is_model(text, &file) {
            continue;
        }
        others.push((stem(&file), words));
    }
    others
}

/// Whether a file is a text model other than `text`. One that cannot be read may be a model on its way.
fn is_model(text: &Gguf, file: &Path) -> bool {
    let Ok(gguf) = Gguf::open(file) else {
        return true;
    };
    let metadata = gguf.metadata();
    let kind: Option<&str> = metadata.get_optional("general.type").ok().flatten();
    let architecture = metadata.architecture().unwrap_or_default();
    kind.is_none_or(|kind| kind == "model")
        && !matches!(architecture, "" | "clip" | "imatrix")
        && gguf.tensors().len() > 0
        && relation(text, &gguf) != Relation::Same
}
