//! Files as memory.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use super::error::{FileName, GgufError};

/// Maps a file read-only. Pages are read from the disk as they are touched.
pub(super) fn map(path: &Path) -> Result<Bytes, GgufError> {
    let file_name = FileName::from(path);
    let failed = |action| {
        let file = file_name.clone();
        move |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => GgufError::NotFound { file },
            _ => GgufError::Io {
                file,
                action,
                source,
            },
        }
    };
    // Looked at before opening, because opening a pipe would wait for its writer.
    let kind = fs::metadata(path).map_err(failed("open"))?;
    if !kind.is_file() {
        return Err(GgufError::NotAFile {
            file: file_name,
            kind: if kind.is_dir() {
                "a directory"
            } else {
                "a device or pipe"
            },
        });
    }
    let file = File::open(path).map_err(failed("open"))?;
    let size = file.metadata().map_err(failed("read the size"))?.len();
    if size == 0 {
        return Err(GgufError::EmptyFile { file: file_name });
    }
    check_address_space(&file_name, size, usize::MAX as u64)?;
    // SAFETY: the mapping is read-only and lives as long as the `Bytes` that owns it. That nobody changes or shortens
    // the file meanwhile cannot be ensured from here, as for every reader of mapped files: a change shows up as other
    // weights (all header fields were copied or checked, offsets are never read again from the map), a truncation ends
    // the process with SIGBUS when a page that is gone is touched. `GgufWriter` replaces files by renaming, which
    // leaves existing mappings intact.
    let map = unsafe { Mmap::map(&file) }.map_err(failed("map"))?;
    Ok(Bytes::from_owner(map))
}

/// On 32-bit targets a file can be larger than memory can address.
fn check_address_space(file: &FileName, size: u64, limit: u64) -> Result<(), GgufError> {
    if size > limit {
        return Err(GgufError::TooLargeForAddressSpace {
            file: file.clone(),
            size,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_large_for_address_space() {
        let limit = u64::from(u32::MAX);
        assert!(check_address_space(&FileName::Memory, limit, limit).is_ok());
        let error = check_address_space(&FileName::Memory, limit + 1, limit).unwrap_err();
        assert!(
            matches!(error, GgufError::TooLargeForAddressSpace { size, .. } if size == limit + 1)
        );
        assert!(error.to_string().contains("4294967296 bytes"), "{error}");
    }
}
