//! Quantizing a file into another: one slab of rows in memory at a time.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::cpu::dequantize;
use burn_gguf_kernels::quantize::{Importance, QuantizeError, importance, quantize};

use super::error::QuantizeFileError;
use super::plan::{QuantizeOptions, QuantizePlan, TensorPlan};
use crate::gguf::{Gguf, GgufWriter, TensorInfo, shard_paths, write_shards};

/// Values of a slab of rows: 64 MiB as `f32`, twice that with the check of the result.
const SLAB_VALUES: usize = 1 << 24;
/// The version of ggml's quantized formats (`GGML_QNT_VERSION`).
const QUANTIZATION_VERSION: u32 = 2;

/// Where the work stands, told before each tensor and after the last.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The tensor that is next; empty at the end.
    pub tensor: &'a str,
    /// Tensors done.
    pub done: usize,
    /// Tensors in all.
    pub tensors: usize,
    /// Bytes of the source that are done.
    pub bytes_done: u64,
}

/// What was done to a file.
#[derive(Clone, Debug)]
pub struct QuantizeReport {
    /// What became of each tensor.
    pub plan: QuantizePlan,
    /// The root of the mean squared difference to the source, for each tensor of the plan; `None` for a tensor copied or
    /// without values.
    pub rmse: Vec<Option<f64>>,
    /// The files written.
    pub files: Vec<PathBuf>,
    /// Their bytes.
    pub file_bytes: u64,
}

impl QuantizeReport {
    /// The tensor with the largest error, and the error.
    pub fn worst(&self) -> Option<(&TensorPlan, f64)> {
        let tensors = self.plan.tensors.iter().zip(&self.rmse);
        tensors
            .filter_map(|(tensor, rmse)| Some((tensor, (*rmse)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Quantizes `gguf` into the file `out`, or with [`keep_split`](QuantizeOptions::keep_split) into as many shards
/// `OUT-00001-of-00003.gguf` as it has. Metadata and the tensors that nothing applies to are carried over.
///
/// Files appear complete or not at all: what stood there before is left alone on any error.
///
/// # Errors
/// See [`QuantizeFileError`]; `out` must not be a file that is read.
pub fn quantize_file(
    gguf: &Gguf,
    out: impl AsRef<Path>,
    options: &QuantizeOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<QuantizeReport, QuantizeFileError> {
    let plan = QuantizePlan::new(gguf, options)?;
    if let Some(matrix) = &options.importance
        && gguf.tensors().all(|info| matrix.get(info.name()).is_none())
    {
        return Err(QuantizeFileError::ImportanceUnrelated {
            file: matrix.file().clone(),
            entries: matrix.len(),
        });
    }
    let shards = gguf.shards().count().max(1);
    let shards = if options.keep_split { shards } else { 1 };
    let files = shard_paths(out.as_ref(), shards);
    for path in &files {
        check_not_read(gguf, options, path)?;
    }
    let state = RefCell::new(State {
        rmse: vec![None; plan.tensors.len()],
        error: None,
        done: 0,
        bytes_done: 0,
        progress,
    });
    let mut writers: Vec<GgufWriter<'_>> = (0..shards).map(|_| GgufWriter::new()).collect();
    set_metadata(&mut writers[0], gguf, options);
    for (index, (info, tensor)) in gguf.tensors().zip(&plan.tensors).enumerate() {
        let writer = &mut writers[if shards > 1 { info.shard() } else { 0 }];
        let job = Job {
            index,
            info,
            tensor,
            options,
            tensors: plan.tensors.len(),
            state: &state,
        };
        match tensor.to {
            Some(to) => {
                writer.tensor_with(info.name(), info.shape(), to, move |out| job.run(to, out))
            }
            None => writer.copy_tensor_with(info, move |out| job.copy(out)),
        };
    }
    let written = write_shards(out.as_ref(), &mut writers);
    drop(writers);
    let state = state.into_inner();
    let file_bytes = match (written, state.error) {
        (Ok(bytes), _) => bytes,
        (Err(_), Some(error)) => return Err(error),
        (Err(error), None) => return Err(error.into()),
    };
    (state.progress)(Progress {
        tensor: "",
        done: plan.tensors.len(),
        tensors: plan.tensors.len(),
        bytes_done: plan.bytes_from(),
    });
    Ok(QuantizeReport {
        plan,
        rmse: state.rmse,
        files,
        file_bytes,
    })
}

/// Refuses an output that is one of the files read.
fn check_not_read(
    gguf: &Gguf,
    options: &QuantizeOptions,
    path: &Path,
) -> Result<(), QuantizeFileError> {
    let Ok(target) = fs::canonicalize(path) else {
        return Ok(());
    };
    let matrix = options.importance.as_ref().and_then(|m| m.file().path());
    let mut read = gguf.shards().chain(matrix);
    match read.any(|input| fs::canonicalize(input).is_ok_and(|input| input == target)) {
        true => Err(QuantizeFileError::OutputIsInput {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}

fn set_metadata(writer: &mut GgufWriter<'_>, gguf: &Gguf, options: &QuantizeOptions) {
    writer.copy_metadata(gguf.metadata());
    if options.recipe.base().is_some() {
        writer.set_metadata("general.quantization_version", QUANTIZATION_VERSION);
        match options.recipe.file_type() {
            Some(number) => writer.set_metadata("general.file_type", number),
            None => writer.remove_metadata("general.file_type"),
        };
    }
    if let Some(matrix) = &options.importance {
        writer.set_metadata("quantize.imatrix.file", matrix.file().to_string());
        if let Some(first) = matrix.datasets().first() {
            writer.set_metadata("quantize.imatrix.dataset", first.as_str());
        }
        writer.set_metadata("quantize.imatrix.entries_count", matrix.len() as u32);
        if matrix.chunks() > 0 {
            writer.set_metadata("quantize.imatrix.chunks_count", matrix.chunks());
        }
    }
}

/// What the tensors' jobs share; they run one after the other.
struct State<'p> {
    rmse: Vec<Option<f64>>,
    /// What went wrong, as an [`io::Error`] cannot say.
    error: Option<QuantizeFileError>,
    done: usize,
    bytes_done: u64,
    progress: &'p mut dyn FnMut(Progress<'_>),
}

/// One tensor to write.
#[derive(Clone, Copy)]
struct Job<'a, 'p> {
    index: usize,
    info: &'a TensorInfo,
    tensor: &'a TensorPlan,
    options: &'a QuantizeOptions,
    tensors: usize,
    state: &'a RefCell<State<'p>>,
}

impl Job<'_, '_> {
    fn start(&self) {
        let state = &mut *self.state.borrow_mut();
        (state.progress)(Progress {
            tensor: self.info.name(),
            done: state.done,
            tensors: self.tensors,
            bytes_done: state.bytes_done,
        });
    }

    fn finish(&self) {
        let mut state = self.state.borrow_mut();
        state.done += 1;
        state.bytes_done += self.info.byte_len() as u64;
    }

    fn copy(&self, out: &mut dyn Write) -> io::Result<()> {
        self.start();
        out.write_all(self.info.data())?;
        self.finish();
        Ok(())
    }

    fn run(&self, to: GgmlType, out: &mut dyn Write) -> io::Result<()> {
        self.start();
        let squares = self.write(to, out)?;
        let values = self.info.n_elements();
        if values > 0 {
            let rmse = (squares / values as f64).sqrt();
            self.state.borrow_mut().rmse[self.index] = Some(rmse);
        }
        self.finish();
        Ok(())
    }

    /// Writes the quantized rows, and returns the sum of squared errors.
    fn write(&self, to: GgmlType, out: &mut dyn Write) -> io::Result<f64> {
        let from = self.info.usable_type().map_err(|e| self.fail(e.into()))?;
        if self.info.n_elements() == 0 {
            return Ok(0.0);
        }
        let rows = Rows::of(self.info.shape());
        let given = self.importance(to);
        let mut squares = 0.0;
        let mut buffers = Buffers::default();
        for slab in rows.slabs() {
            let matrix = slab.start / rows.in_matrix;
            let importance = given.as_ref().map(|values| match values {
                Given::Each(values) => &values[matrix * rows.cols..][..rows.cols],
                Given::Same(values) => values,
            });
            let source = &self.info.data()[bytes(from, rows.cols, &slab)];
            squares += buffers
                .convert(from, source, to, rows.cols, importance)
                .map_err(|error| self.fail(self.slab_error(error, slab.start * rows.cols)))?;
            out.write_all(&buffers.blocks)?;
        }
        Ok(squares)
    }

    /// The importances to hand to the quantizer.
    fn importance(&self, to: GgmlType) -> Option<Given<'_>> {
        let class = importance(to).unwrap_or(Importance::Ignored);
        let matrix = self.options.importance.as_ref();
        let values = matrix
            .and_then(|m| m.get(self.info.name()))
            .filter(|values| values.len() as u64 == super::plan::importances(self.info.shape()));
        match (class, values) {
            (Importance::Ignored, _) | (Importance::Optional, None) => None,
            (_, Some(values)) => Some(Given::Each(values)),
            (Importance::Required, None) => {
                Some(Given::Same(vec![1.0; self.info.shape()[0] as usize]))
            }
        }
    }

    fn slab_error(&self, error: SlabError, first: usize) -> QuantizeFileError {
        let (file, tensor) = (self.info.file().clone(), self.tensor.name.clone());
        match error {
            SlabError::NotFinite(index, value) => QuantizeFileError::NotFinite {
                file,
                tensor,
                index: (first + index) as u64,
                value,
            },
            SlabError::Overflow(index, value) => QuantizeFileError::Overflow {
                file,
                ggml_type: self.tensor.to.unwrap_or(GgmlType::F32),
                tensor,
                index: (first + index) as u64,
                value,
            },
            SlabError::Decode(source) => QuantizeFileError::Decode {
                file,
                tensor,
                source,
            },
            SlabError::Quantize(source) => QuantizeFileError::Quantize {
                file,
                tensor,
                source,
            },
        }
    }

    /// Keeps the error for the caller of the writer.
    fn fail(&self, error: QuantizeFileError) -> io::Error {
        let text = error.to_string();
        self.state.borrow_mut().error = Some(error);
        io::Error::other(text)
    }
}

/// Importances: a row for each matrix of a stack, or one for all.
enum Given<'a> {
    Each(&'a [f32]),
    Same(Vec<f32>),
}

/// A tensor as rows.
struct Rows {
    cols: usize,
    /// Rows that share importances: those of one matrix of a stack.
    in_matrix: usize,
    count: usize,
}

impl Rows {
    /// Of a shape without zeros whose values fit memory: the tensor is mapped.
    fn of(shape: &[u64]) -> Self {
        let size = |i: usize| shape.get(i).map_or(1, |&d| d as usize);
        Rows {
            cols: size(0),
            in_matrix: size(1),
            count: size(1) * size(2) * size(3),
        }
    }

    /// Ranges of rows of about [`SLAB_VALUES`], none over the border of a matrix.
    fn slabs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let most = (SLAB_VALUES / self.cols).clamp(1, self.in_matrix);
        let mut start = 0;
        std::iter::from_fn(move || {
            let border = (start / self.in_matrix + 1) * self.in_matrix;
            let slab = start..(start + most).min(border).min(self.count);
            start = slab.end;
            (!slab.is_empty()).then_some(slab)
        })
    }
}

fn bytes(ty: GgmlType, cols: usize, rows: &Range<usize>) -> Range<usize> {
    let row = cols / ty.block_len() * ty.block_bytes();
    rows.start * row..rows.end * row
}

enum SlabError {
    NotFinite(usize, f32),
    Overflow(usize, f32),
    Decode(burn_gguf_kernels::cpu::CpuError),
    Quantize(QuantizeError),
}

/// Reused from slab to slab.
#[derive(Default)]
struct Buffers {
    values: Vec<f32>,
    blocks: Vec<u8>,
    decoded: Vec<f32>,
}

impl Buffers {
    /// Fills `blocks`, and returns the sum of squared differences to the source.
    fn convert(
        &mut self,
        from: GgmlType,
        source: &[u8],
        to: GgmlType,
        cols: usize,
        importance: Option<&[f32]>,
    ) -> Result<f64, SlabError> {
        let len = source.len() / from.block_bytes() * from.block_len();
        self.values.resize(len, 0.0);
        self.decoded.resize(len, 0.0);
        self.blocks
            .resize(len / to.block_len() * to.block_bytes(), 0);
        dequantize(from, source, &mut self.values).map_err(SlabError::Decode)?;
        if let Some(index) = self.values.iter().position(|v| !v.is_finite()) {
            return Err(SlabError::NotFinite(index, self.values[index]));
        }
        quantize(to, &self.values, cols, importance, &mut self.blocks)
            .map_err(SlabError::Quantize)?;
        dequantize(to, &self.blocks, &mut self.decoded).map_err(SlabError::Decode)?;
        if let Some(index) = self.decoded.iter().position(|v| !v.is_finite()) {
            return Err(SlabError::Overflow(index, self.values[index]));
        }
        let pairs = self.values.iter().zip(&self.decoded);
        Ok(pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_cover_all_rows_and_stop_at_matrices() {
        let half = SLAB_VALUES as u64 / 2;
        for (shape, ends) in [
            (&[4u64, 3][..], vec![3]),
            (&[4], vec![1]),
            (&[4, 3, 2], vec![3, 6]),
            (&[4, 1, 2, 2], vec![1, 2, 3, 4]),
            (&[half, 3, 2], vec![2, 3, 5, 6]),
            (&[half * 4, 2], vec![1, 2]),
        ] {
            let slabs: Vec<_> = Rows::of(shape).slabs().collect();
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let expected: Vec<_> = starts.zip(&ends).map(|(start, &end)| start..end).collect();
            assert_eq!(slabs, expected, "{shape:?}");
        }
    }
}
