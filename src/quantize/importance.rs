//! Importance matrices: how much each input of a matrix matters, as `llama-imatrix` and `burn-gguf imatrix` collect it.
//!
//! Two forms of file are read: GGUF (two tensors for each matrix, `NAME.in_sum2` and `NAME.counts`), and the binary form
//! before it.

use std::collections::BTreeMap;
use std::path::Path;

use burn_gguf_kernels::GgmlType;

use super::error::ImportanceError;
use crate::gguf::{FileName, Gguf, GgufError, TensorInfo};

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
/// The first bytes of a GGUF.
const MAGIC: &[u8] = b"GGUF";
/// Longest name in the binary form; ggml's are shorter.
const MAX_NAME: usize = 4096;

/// The mean squared activations that each input of each matrix saw.
#[derive(Clone, Debug)]
pub struct ImportanceMatrix {
    file: FileName,
    datasets: Vec<String>,
    chunks: u32,
    entries: BTreeMap<String, Vec<f32>>,
}

impl ImportanceMatrix {
    /// Reads the file at `path`, of either form.
    ///
    /// # Errors
    /// See [`ImportanceError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ImportanceError> {
        let path = path.as_ref();
        let file = FileName::from(path);
        let mut first = [0; MAGIC.len()];
        let is_gguf = std::fs::File::open(path)
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut first))
            .is_ok_and(|()| first == MAGIC);
        if is_gguf {
            return Self::from_gguf(&Gguf::open(path)?);
        }
        let bytes = std::fs::read(path).map_err(|source| ImportanceError::Io {
            file: file.clone(),
            source,
        })?;
        Binary {
            file: &file,
            rest: &bytes,
            length: bytes.len(),
        }
        .read()
    }

    /// Reads the GGUF form.
    ///
    /// # Errors
    /// See [`ImportanceError`].
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ImportanceError> {
        let metadata = gguf.metadata();
        let file = gguf.file().clone();
        let mut entries = BTreeMap::new();
        for sums in gguf.tensors() {
            if let Some(name) = sums.name().strip_suffix(SUMS) {
                let counts = gguf.tensor(&format!("{name}{COUNTS}")).ok_or_else(|| {
                    ImportanceError::CountsMissing {
                        file: file.clone(),
                        name: name.to_owned(),
                    }
                })?;
                entries.insert(name.to_owned(), means(&file, name, sums, counts)?);
            }
        }
        if entries.is_empty() {
            return Err(ImportanceError::NoEntries { file });
        }
        Self {
            file,
            datasets: metadata.get_or("imatrix.datasets", Vec::new())?,
            chunks: metadata.get_or("imatrix.chunk_count", 0)?,
            entries,
        }
        .checked()
    }

    /// The importance of the inputs of the tensor `name`: one value for a column, and for a stack of matrices one row of
    /// them for each matrix.
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.entries.get(name).map(Vec::as_slice)
    }

    /// How many tensors are covered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none are; a file read has at least one.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The texts it was collected from, as far as the file says.
    pub fn datasets(&self) -> &[String] {
        &self.datasets
    }

    /// How many chunks of text were seen; 0 if the file does not say.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Where it was read.
    pub fn file(&self) -> &FileName {
        &self.file
    }

    fn checked(self) -> Result<Self, ImportanceError> {
        for (name, values) in &self.entries {
            if let Some(index) = values.iter().position(|v| !v.is_finite()) {
                return Err(ImportanceError::NotFinite {
                    file: self.file,
                    name: name.clone(),
                    index,
                    value: values[index],
                });
            }
        }
        Ok(self)
    }
}

/// Sums of squares over how often each matrix of the stack was used; 1 for a matrix that never was.
fn means(
    file: &FileName,
    name: &str,
    sums: &TensorInfo,
    counts: &TensorInfo,
) -> Result<Vec<f32>, ImportanceError> {
    let (mut values, uses) = (floats(file, sums)?, floats(file, counts)?);
    if uses.is_empty() || values.is_empty() || !values.len().is_multiple_of(uses.len()) {
        return Err(ImportanceError::CountsShape {
            file: file.clone(),
            name: name.to_owned(),
            sums: values.len(),
            counts: uses.len(),
        });
    }
    let columns = values.len() / uses.len();
    for (row, count) in values.chunks_exact_mut(columns).zip(uses) {
        // Counts are whole numbers in a tensor of floats.
        let count = count.round();
        if count > 0.0 {
            row.iter_mut().for_each(|v| *v /= count);
        } else {
            row.fill(1.0);
        }
    }
    Ok(values)
}

fn floats(file: &FileName, tensor: &TensorInfo) -> Result<Vec<f32>, ImportanceError> {
    if tensor.ggml_type() != Some(GgmlType::F32) {
        return Err(ImportanceError::NotF32 {
            file: file.clone(),
            tensor: tensor.name().to_owned(),
            type_id: tensor.type_id(),
        });
    }
    let (values, _) = tensor.data().as_chunks();
    Ok(values.iter().map(|&v| f32::from_le_bytes(v)).collect())
}

/// The binary form: a count of entries; for each the length of a name, the name, a number of calls, a number of values,
/// the values; then optionally the number of chunks, and the name of the text. Integers are `i32`.
struct Binary<'a> {
    file: &'a FileName,
    rest: &'a [u8],
    length: usize,
}

impl<'a> Binary<'a> {
    fn read(mut self) -> Result<ImportanceMatrix, ImportanceError> {
        let count = self.int("the number of entries")?;
        if count < 1 {
            return Err(ImportanceError::NoEntries {
                file: self.file.clone(),
            });
        }
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let length = self.size("the length of a name", MAX_NAME)?;
            let name = self.text(length)?;
            let calls = self.int("the number of calls")?;
            let length = self.size("the number of values", i32::MAX as usize)?;
            let bytes = self.take(length.saturating_mul(4), "the values")?;
            let (values, _) = bytes.as_chunks();
            // The sums are scaled by the number of calls.
            let divisor = if calls > 0 { calls as f32 } else { 1.0 };
            let values = values.iter().map(|&v| f32::from_le_bytes(v) / divisor);
            entries.insert(name, values.collect());
        }
        let (mut chunks, mut datasets) = (0, Vec::new());
        if !self.rest.is_empty() {
            chunks = self.int("the number of chunks")?.max(0).cast_unsigned();
        }
        if !self.rest.is_empty() {
            let length = self.size("the length of the text's name", MAX_NAME)?;
            datasets.extend(Some(self.text(length)?).filter(|name| !name.is_empty()));
        }
        ImportanceMatrix {
            file: self.file.clone(),
            datasets,
            chunks,
            entries,
        }
        .checked()
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], ImportanceError> {
        let (taken, rest) =
            self.rest
                .split_at_checked(length)
                .ok_or_else(|| ImportanceError::Truncated {
                    file: self.file.clone(),
                    what,
                    offset: self.length - self.rest.len(),
                    need: length,
                    have: self.rest.len(),
                })?;
        self.rest = rest;
        Ok(taken)
    }

    fn int(&mut self, what: &'static str) -> Result<i32, ImportanceError> {
        let bytes = self.take(4, what)?;
        Ok(i32::from_le_bytes(
            bytes.try_into().expect("four bytes were taken"),
        ))
    }

    /// A length of at most `limit`; more cannot be an importance matrix.
    fn size(&mut self, what: &'static str, limit: usize) -> Result<usize, ImportanceError> {
        let offset = self.length - self.rest.len();
        let value = self.int(what)?;
        usize::try_from(value)
            .ok()
            .filter(|&value| value <= limit)
            .ok_or_else(|| ImportanceError::BadLength {
                file: self.file.clone(),
                what,
                offset,
                value,
                limit,
            })
    }

    fn text(&mut self, length: usize) -> Result<String, ImportanceError> {
        let bytes = self.take(length, "a name")?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl From<GgufError> for ImportanceError {
    fn from(source: GgufError) -> Self {
        ImportanceError::Gguf(source)
    }
}
