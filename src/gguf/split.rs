//! Models split into several files, `NAME-00001-of-00003.gguf`, as `llama-gguf-split` and gguf-py write them.
//!
//! Each shard is a GGUF of its own with `split.no` (from 0) and `split.count`; the model's metadata is in the first one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::{FileName, GgufError};
use super::metadata::Metadata;
use super::replace::{StagedFile, stage_file};
use super::shard::Shard;
use super::writer::GgufWriter;

const NUMBER_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSORS_KEY: &str = "split.tensors.count";

/// Metadata that says which model a shard belongs to; only the first shard must have it.
const IDENTITY_KEYS: [&str; 6] = [
    "general.architecture",
    "general.name",
    "general.basename",
    "general.finetune",
    "general.size_label",
    "general.type",
];

/// Whether a key describes the split and not the model.
pub(super) fn is_split_key(key: &str) -> bool {
    [NUMBER_KEY, COUNT_KEY, TENSORS_KEY].contains(&key)
}

/// How many shards the model of this metadata has.
pub(super) fn shard_count(metadata: &Metadata) -> Result<u64, GgufError> {
    Ok(metadata.get_or(COUNT_KEY, 1u64)?.max(1))
}

/// The shards of the model that the shard at `path` belongs to, in order.
pub(super) fn open_all(path: &Path) -> Result<Vec<Shard>, GgufError> {
    let opened = Shard::open(path)?;
    let count = shard_count(&opened.metadata)?;
    if count == 1 {
        return Ok(vec![opened]);
    }
    let name = ShardName::parse(path).ok_or_else(|| GgufError::SplitName {
        file: opened.file.clone(),
        count,
    })?;
    check_place(&opened, name.number, name.count)?;

    let opened_file = opened.file.clone();
    let opened_number = name.number;
    let mut opened = Some(opened);
    // Not sized by `count`: the first shard that is missing ends the loop.
    let mut shards: Vec<Shard> = Vec::new();
    for number in 1..=count {
        let shard = match opened.take_if(|_| number == opened_number) {
            Some(shard) => shard,
            None => {
                let path = name.sibling(number);
                let shard = Shard::open(&path).map_err(|e| match e {
                    GgufError::NotFound { .. } => GgufError::MissingShard {
                        opened: opened_file.clone(),
                        missing: path.clone(),
                        number,
                        count,
                    },
                    other => other,
                })?;
                check_place(&shard, number, count)?;
                shard
            }
        };
        if let Some(first) = shards.first() {
            check_identity(first, &shard)?;
        }
        shards.push(shard);
    }
    check_tensors(&shards)?;
    Ok(shards)
}

/// `split.no` and `split.count` are those of shard `number` (from 1) of `count`.
fn check_place(shard: &Shard, number: u64, count: u64) -> Result<(), GgufError> {
    let stored: u64 = shard.metadata.get(COUNT_KEY)?;
    if stored != count {
        return Err(GgufError::ShardCount {
            file: shard.file.clone(),
            stored,
            expected: count,
        });
    }
    let stored = shard.metadata.get::<u64>(NUMBER_KEY)?.saturating_add(1);
    if stored != number {
        return Err(GgufError::ShardNumber {
            file: shard.file.clone(),
            named: number,
            stored,
        });
    }
    Ok(())
}

fn check_identity(first: &Shard, shard: &Shard) -> Result<(), GgufError> {
    for key in IDENTITY_KEYS {
        if let (Some(expected), Some(found)) =
            (first.metadata.value(key), shard.metadata.value(key))
            && expected != found
        {
            return Err(GgufError::ForeignShard {
                file: shard.file.clone(),
                other: first.file.clone(),
                key,
                found: found.to_string().into(),
                expected: expected.to_string().into(),
            });
        }
    }
    Ok(())
}

/// No tensor twice, and as many as announced.
fn check_tensors(shards: &[Shard]) -> Result<(), GgufError> {
    let mut owner: HashMap<&str, &FileName> = HashMap::new();
    for shard in shards {
        for tensor in &shard.tensors {
            if let Some(other) = owner.insert(tensor.name(), &shard.file) {
                return Err(GgufError::DuplicateTensorInShards {
                    file: shard.file.clone(),
                    other: other.clone(),
                    tensor: tensor.name().to_owned(),
                });
            }
        }
    }
    let found = owner.len() as u64;
    for shard in shards {
        let stored = shard.metadata.get_or(TENSORS_KEY, found)?;
        if stored != found {
            return Err(GgufError::SplitTensorCount {
                file: shard.file.clone(),
                stored,
                found,
                shards: shards.len(),
            });
        }
    }
    Ok(())
}

/// The paths of `count` shards of a model called `path`: `NAME-00001-of-00003.gguf` and so on for `NAME.gguf`, and for
/// any shard of such a name. One shard is called `path` itself.
pub fn shard_paths(path: &Path, count: usize) -> Vec<PathBuf> {
    if count == 1 {
        return vec![path.to_owned()];
    }
    let is_gguf = |extension: &std::ffi::OsStr| extension.eq_ignore_ascii_case("gguf");
    let stem = match ShardName::parse(path) {
        Some(name) => name.stem(),
        None if path.extension().is_some_and(is_gguf) => path.with_extension(""),
        None => path.to_owned(),
    };
    let path = |number: usize| {
        let mut name = stem.clone().into_os_string();
        name.push(format!("-{number:05}-of-{count:05}.gguf"));
        name.into()
    };
    (1..=count).map(path).collect()
}

/// Writes one model as one shard a writer, to [`shard_paths`], and returns the bytes of all. Several writers get the
/// keys that describe the split; the model's metadata belongs into the first.
///
/// No shard appears under its name before all are complete.
///
/// # Errors
/// As [`GgufWriter::write_to`].
pub fn write_shards(path: &Path, writers: &mut [GgufWriter<'_>]) -> Result<u64, GgufError> {
    let paths = shard_paths(path, writers.len());
    let tensors: usize = writers.iter().map(GgufWriter::n_tensors).sum();
    let count = writers.len() as u16;
    if count > 1 {
        for (number, writer) in (0u16..).zip(&mut *writers) {
            writer
                .set_metadata(NUMBER_KEY, number)
                .set_metadata(COUNT_KEY, count)
                .set_metadata(TENSORS_KEY, tensors as i32);
        }
    }
    let mut staged = Vec::with_capacity(paths.len());
    let mut bytes = 0;
    for (path, writer) in paths.iter().zip(&*writers) {
        let (file, written) = stage_file(path, |out, name| writer.write_named(out, name))?;
        staged.push(file);
        bytes += written;
    }
    staged.into_iter().try_for_each(StagedFile::commit)?;
    Ok(bytes)
}

/// A path of the form `PREFIX-00002-of-00003.gguf`, the numbers of any width.
#[derive(Debug, PartialEq, Eq)]
struct ShardName {
    directory: PathBuf,
    prefix: String,
    /// Characters of the first number, leading zeros included.
    width: usize,
    number: u64,
    count: u64,
    /// From `-of-` on.
    suffix: String,
}

impl ShardName {
    fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (stem, extension) = name.rsplit_once('.')?;
        if !extension.eq_ignore_ascii_case("gguf") {
            return None;
        }
        let (head, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = head.rsplit_once('-')?;
        Some(ShardName {
            directory: path.parent()?.to_owned(),
            prefix: prefix.to_owned(),
            width: number.len(),
            number: digits(number)?,
            count: digits(count)?,
            suffix: name[head.len()..].to_owned(),
        })
    }

    /// `PREFIX` with its directory.
    fn stem(&self) -> PathBuf {
        self.directory.join(&self.prefix)
    }

    fn sibling(&self, number: u64) -> PathBuf {
        let name = format!(
            "{}-{number:0width$}{}",
            self.prefix,
            self.suffix,
            width = self.width
        );
        self.directory.join(name)
    }
}

/// Unlike `str::parse`, no sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_of_any_width() {
        let name = ShardName::parse(Path::new("dir/a-b-00002-of-00003.gguf")).unwrap();
        assert_eq!((name.number, name.count), (2, 3));
        assert_eq!(name.sibling(1), Path::new("dir/a-b-00001-of-00003.gguf"));

        let name = ShardName::parse(Path::new("m-001-of-014.GGUF")).unwrap();
        assert_eq!((name.number, name.count), (1, 14));
        assert_eq!(name.sibling(14), Path::new("m-014-of-014.GGUF"));

        let name = ShardName::parse(Path::new("m-1-of-12.gguf")).unwrap();
        assert_eq!(name.sibling(10), Path::new("m-10-of-12.gguf"));
    }

    #[test]
    fn paths_of_shards_to_write() {
        let names = |path: &str, count| -> Vec<String> {
            let paths = shard_paths(Path::new(path), count);
            paths.iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(names("d/m.gguf", 1), ["d/m.gguf"]);
        let two = ["d/m-00001-of-00002.gguf", "d/m-00002-of-00002.gguf"];
        assert_eq!(names("d/m.gguf", 2), two);
        assert_eq!(names("d/m", 2), two);
        assert_eq!(names("d/m-00001-of-00003.gguf", 2), two);
        assert_eq!(names("m.v1", 2)[0], "m.v1-00001-of-00002.gguf");
    }

    #[test]
    fn other_names_are_not_shards() {
        for name in [
            "m.gguf",
            "m-00001.gguf",
            "m-00001-of-00002.bin",
            "m-a-of-00002.gguf",
            "m-00001-of-.gguf",
            "m-+1-of-2.gguf",
            "00001-of-00002.gguf",
        ] {
            assert_eq!(ShardName::parse(Path::new(name)), None, "{name}");
        }
    }
}
