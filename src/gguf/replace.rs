//! Files that appear complete or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{FileName, GgufError};

/// Lets `write` fill a new file beside `path`, then renames it to `path`. On failure the new file is removed.
pub(super) fn replace_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write, &FileName) -> Result<T, GgufError>,
) -> Result<T, GgufError> {
    let (staged, result) = stage_file(path, write)?;
    staged.commit()?;
    Ok(result)
}

/// Lets `write` fill a new file beside `path`, complete on disk but not yet called `path`.
pub(super) fn stage_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write, &FileName) -> Result<T, GgufError>,
) -> Result<(StagedFile, T), GgufError> {
    let name = FileName::from(path);
    let failed = |action| {
        let file = name.clone();
        move |source: io::Error| GgufError::Io {
            file,
            action,
            source,
        }
    };
    // A link keeps its name, what it points to is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(path).ok();
    let special = before.as_ref().and_then(|m| match m.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        _ => Some("a device or pipe"),
    });
    let not_a_file = |kind| GgufError::NotAFile {
        file: name.clone(),
        kind,
    };
    if let Some(kind) = special {
        return Err(not_a_file(kind));
    }
    let temporary = temporary_name(path).ok_or_else(|| not_a_file("a directory"))?;
    let file = File::create_new(&temporary).map_err(failed("create a temporary file beside it"))?;
    let staged = StagedFile {
        temporary: Some(temporary),
        path: path.to_owned(),
    };
    if let Some(before) = before {
        file.set_permissions(before.permissions())
            .map_err(failed("set the permissions of"))?;
    }
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let result = write(&mut out, &name)?;
    let file = out
        .into_inner()
        .map_err(|e| failed("write")(e.into_error()))?;
    // Without this a crash soon after could leave the name on an incomplete file.
    file.sync_all().map_err(failed("write"))?;
    Ok((staged, result))
}

/// A complete file that still has a temporary name; removed if it never gets its own.
pub(super) struct StagedFile {
    temporary: Option<PathBuf>,
    path: PathBuf,
}

impl StagedFile {
    /// Gives the file its name, in place of what had it.
    pub(super) fn commit(mut self) -> Result<(), GgufError> {
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.path).map_err(|source| GgufError::Io {
                file: FileName::from(self.path.as_path()),
                action: "replace",
                source,
            })?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The error that led here is the one to report.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A hidden name in the same directory, unique in this process and among processes.
fn temporary_name(path: &Path) -> Option<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{number}.tmp", process::id()));
    Some(path.with_file_name(name))
}
