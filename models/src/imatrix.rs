//! Importance matrices: how much each input of each weight matters, measured on text.
//!
//! For every packed weight the squares of its inputs are summed per column over all tokens of a text, for the experts of
//! a mixture per expert. Quantizers weight their errors with the means. The file form is llama.cpp's.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

use burn::module::ParamId;
use burn::tensor::{Int, Tensor};
use burn_gguf::GgmlType;
use burn_gguf::gguf::{GgufError, GgufWriter};
use burn_gguf::nn::{InputObserver, observe};

use crate::auto::AutoModel;
use crate::error::ModelError;
use crate::session::SessionOptions;

/// How an importance matrix is collected.
#[derive(Clone, Debug)]
pub struct ImatrixOptions {
    /// Tokens read together, from an empty cache each time.
    pub chunk: usize,
    /// Most chunks; `None` takes the whole text.
    pub chunks: Option<usize>,
    /// Whether the output head is measured too.
    pub output: bool,
}

impl Default for ImatrixOptions {
    fn default() -> Self {
        Self {
            chunk: 512,
            chunks: None,
            output: false,
        }
    }
}

/// What was measured for one weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImatrixEntry {
    /// Sums of squared inputs, `[matrices, cols]`.
    pub sums: Vec<f64>,
    /// Rows that were summed, per matrix.
    pub counts: Vec<u64>,
}

/// An importance matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// By the weight's name in the file.
    pub entries: BTreeMap<String, ImatrixEntry>,
    /// Chunks read.
    pub chunks: usize,
    /// Tokens of a chunk.
    pub chunk: usize,
}

impl AutoModel {
    /// Reads `tokens` chunk by chunk and sums up the squares of every layer's inputs. Tokens after the last whole chunk
    /// are left out; where the model wants a BOS token it takes the place of each chunk's first. `progress` is told the
    /// chunks done and due.
    ///
    /// # Errors
    /// Fewer tokens than a chunk, a token outside the vocabulary, a chunk over the model's context, or inputs that are
    /// not finite.
    pub fn collect_imatrix(
        &self,
        tokens: &[u32],
        options: &ImatrixOptions,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Imatrix, ModelError> {
        let chunk = options.chunk.max(1);
        let due = (tokens.len() / chunk).min(options.chunks.unwrap_or(usize::MAX));
        if due == 0 {
            return Err(ModelError::TooFewTokens {
                tokens: tokens.len(),
                chunk,
            });
        }
        let bos = self
            .tokenizer()
            .ok()
            .filter(|t| t.adds_bos())
            .and_then(|t| t.bos());
        let collector = Rc::new(RefCell::new(Collector {
            names: self
                .report()
                .weights
                .iter()
                .filter(|(_, name)| {
                    name.starts_with("blk.") || options.output && *name == "output.weight"
                })
                .map(|(id, name)| (*id, name.clone()))
                .collect(),
            entries: BTreeMap::new(),
            broken: None,
        }));
        let session_options = SessionOptions {
            context: Some(chunk),
            chunk,
            ..SessionOptions::default()
        };
        for (i, chunk) in tokens.chunks_exact(chunk).take(due).enumerate() {
            let mut chunk = chunk.to_vec();
            if let Some(bos) = bos {
                chunk[0] = bos;
            }
            let mut session = self.session(&session_options);
            observe(collector.clone(), || match options.output {
                true => session.feed_all(&chunk).map(drop),
                false => session.feed(&chunk).map(drop),
            })?;
            if let Some(tensor) = collector.borrow_mut().broken.take() {
                return Err(ModelError::NotFinite { tensor });
            }
            progress(i + 1, due);
        }
        let entries = std::mem::take(&mut collector.borrow_mut().entries);
        Ok(Imatrix {
            entries,
            chunks: due,
            chunk,
        })
    }
}

impl Imatrix {
    /// Writes the matrix as a GGUF file of llama.cpp's form: for each weight `X` the tensors `X.in_sum2`
    /// `[matrices, cols]` and `X.counts` `[matrices, 1]`. `dataset` names the text.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, dataset: &str) -> Result<(), GgufError> {
        let mut writer = GgufWriter::new();
        writer.metadata("general.type", "imatrix");
        writer.metadata("imatrix.datasets", vec![dataset.to_string()]);
        writer.metadata("imatrix.chunk_count", self.chunks as u32);
        writer.metadata("imatrix.chunk_size", self.chunk as u32);
        let bytes = |values: &mut dyn Iterator<Item = f32>| -> Vec<u8> {
            values.flat_map(f32::to_le_bytes).collect()
        };
        for (name, entry) in &self.entries {
            let matrices = entry.counts.len() as u64;
            let cols = entry.sums.len() as u64 / matrices.max(1);
            writer.tensor(
                format!("{name}.in_sum2"),
                &[cols, matrices],
                GgmlType::F32,
                bytes(&mut entry.sums.iter().map(|&v| v as f32)),
            );
            writer.tensor(
                format!("{name}.counts"),
                &[1, matrices],
                GgmlType::F32,
                bytes(&mut entry.counts.iter().map(|&v| v as f32)),
            );
        }
        writer.write_file(path)?;
        Ok(())
    }
}

/// Sums up what the layers see.
struct Collector {
    names: HashMap<ParamId, String>,
    entries: BTreeMap<String, ImatrixEntry>,
    // The first weight with an input that is not finite.
    broken: Option<String>,
}

impl Collector {
    /// Adds rows of `cols` values, each to the matrix `matrix_of` says.
    fn add(
        &mut self,
        id: ParamId,
        values: Vec<f32>,
        cols: usize,
        rows: impl Iterator<Item = (usize, usize)>,
        matrices: usize,
    ) {
        let Some(name) = self.names.get(&id) else {
            return;
        };
        if self.broken.is_none() && values.iter().any(|v| !v.is_finite()) {
            self.broken = Some(name.clone());
        }
        let entry = self.entries.entry(name.clone()).or_default();
        if entry.counts.len() < matrices {
            entry.counts.resize(matrices, 0);
            entry.sums.resize(matrices * cols, 0.0);
        }
        for (row, matrix) in rows {
            entry.counts[matrix] += 1;
            let sums = &mut entry.sums[matrix * cols..][..cols];
            for (sum, &v) in sums.iter_mut().zip(&values[row * cols..][..cols]) {
                *sum += f64::from(v) * f64::from(v);
            }
        }
    }
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.try_into_vec().expect("converted to f32 just now")
}

impl InputObserver for Collector {
    fn linear(&mut self, id: ParamId, input: Tensor<2>) {
        if !self.names.contains_key(&id) {
            return;
        }
        let [n, cols] = input.dims();
        self.add(id, floats(input), cols, (0..n).map(|row| (row, 0)), 1);
    }

    fn experts(&mut self, id: ParamId, matrices: usize, input: Tensor<3>, ids: Tensor<2, Int>) {
        if !self.names.contains_key(&id) {
            return;
        }
        let [_, slots, cols] = input.dims();
        let [_, chosen] = ids.dims();
        let ids: Vec<i64> = ids.into_data().iter::<i64>().collect();
        // The layer itself refuses ids out of range.
        let rows = ids.iter().enumerate().filter_map(|(slot, &id)| {
            let row = match slots {
                1 => slot / chosen,
                _ => slot,
            };
            let matrix = usize::try_from(id).ok().filter(|&m| m < matrices)?;
            Some((row, matrix))
        });
        self.add(id, floats(input), cols, rows, matrices);
    }
}
