//! Dense burn modules into modules over packed weights.

use std::collections::HashMap;

use burn::module::Module;
use burn::tensor::{Device, TensorData};
use burn_gguf_kernels::quantize::QuantizeError;
use burn_gguf_kernels::{GgmlType, cpu, quantize};
use burn_store::burn_pack::Tensor as PackTensor;
use burn_store::{BurnToPyTorchAdapter, ModuleSnapshot, bridge};

use super::{QuantConfig, QuantSpec};
use crate::layout::GgmlLayout;
use crate::store::{PackedApplier, PackedSource, ggml_paths};
use crate::tensor::GgmlTensor;

/// What became of one weight of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedWeight {
    /// The parameter's path, for example `layers.0.up.weight`.
    pub path: String,
    /// Its block type.
    pub ggml_type: GgmlType,
    /// `[rows, cols]`: outputs and inputs of a linear layer.
    pub shape: [usize; 2],
    /// Zeros added to every row to fill its last block.
    pub padding: usize,
    /// Whether the type demands an importance matrix and got a uniform one.
    pub uniform_importance: bool,
    /// Root of the mean squared difference between the weight and what its blocks decode to.
    pub rmse: f64,
}

/// What [`quantize_module`] did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleReport {
    /// Packed weights in the order of the module.
    pub weights: Vec<QuantizedWeight>,
}

/// Why a module could not be quantized.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeModuleError {
    /// The packed module has parameters that the dense one lacks.
    #[error("the dense module has no parameters for {}; both must have the same field names", .0.join(", "))]
    Missing(Vec<String>),
    /// The dense module has parameters that the packed one has no place for.
    #[error("the packed module has no place for {}; both must have the same field names", .0.join(", "))]
    Unused(Vec<String>),
    /// Parameters do not fit, or could not be quantized.
    #[error("{}", .0.join("; "))]
    Parameters(Vec<String>),
}

/// Fills `packed` from `dense`, a module of the same fields in which burn's `Linear`s and `Embedding`s stand where
/// `packed` has [`GgmlLinear`](crate::nn::GgmlLinear)s and [`GgmlEmbedding`](crate::nn::GgmlEmbedding)s: those weights
/// are packed as `config` says, all other parameters are copied. No calibration data is used.
///
/// A weight that a rule of `config` excludes stays `F32` inside its layer. Rows that do not fill whole blocks are filled
/// up with zeros; the layer keeps its true width. Types that demand an importance matrix get a uniform one.
///
/// # Errors
/// If the modules do not have the same parameters, or a weight holds values that cannot be quantized.
pub fn quantize_module<D: Module, P: Module>(
    dense: &D,
    mut packed: P,
    config: &QuantConfig,
) -> Result<(P, ModuleReport), QuantizeModuleError> {
    let paths = ggml_paths(&packed);
    let plain = dense.collect(None, None, false);
    // The adapter turns `Linear`s' weights into `[output, input]`; it may rename others, which keep their order.
    let adapted = dense.collect(None, Some(Box::new(BurnToPyTorchAdapter)), false);
    let (mut weights, mut others) = (HashMap::new(), Vec::new());
    for (plain, adapted) in plain.into_iter().zip(adapted) {
        match paths.contains(&plain.name) {
            true => drop(weights.insert(plain.name, adapted)),
            false => others.push(plain),
        }
    }
    let mut report = ModuleReport::default();
    let source = DenseSource {
        weights,
        config,
        report: &mut report,
    };
    let (result, _) = PackedApplier::new(source, others, None, None).apply(&mut packed);
    if !result.errors.is_empty() {
        let errors = result.errors.iter().map(ToString::to_string).collect();
        return Err(QuantizeModuleError::Parameters(errors));
    }
    if !result.missing.is_empty() {
        let missing = result.missing.into_iter().map(|(path, _)| path).collect();
        return Err(QuantizeModuleError::Missing(missing));
    }
    let mut unused = result.unused;
    if !unused.is_empty() {
        unused.sort();
        return Err(QuantizeModuleError::Unused(unused));
    }
    Ok((packed, report))
}

/// The weights of a dense module, quantized when asked for.
struct DenseSource<'a> {
    weights: HashMap<String, PackTensor>,
    config: &'a QuantConfig,
    report: &'a mut ModuleReport,
}

impl PackedSource for DenseSource<'_> {
    fn read(&mut self, path: &str, device: &Device) -> Option<Result<(GgmlTensor, usize), String>> {
        let weight = self.weights.remove(path)?;
        let result = self.quantize(path, &weight, device);
        Some(result.map_err(|e| format!("{path}: {e}")))
    }
}

impl DenseSource<'_> {
    fn quantize(
        &mut self,
        path: &str,
        weight: &PackTensor,
        device: &Device,
    ) -> Result<(GgmlTensor, usize), String> {
        let &[rows, cols] = weight.shape.as_slice() else {
            return Err(format!(
                "a weight of shape {:?} is no matrix",
                weight.shape.as_slice()
            ));
        };
        let data: TensorData = bridge::to_data(weight).map_err(|e| e.to_string())?;
        let values: Vec<f32> = data.iter::<f32>().collect();
        let ggml_type = self
            .config
            .choose(path)
            .map_or(GgmlType::F32, QuantSpec::ggml_type);
        let quantized = quantize_rows(&values, cols, ggml_type, None).map_err(|e| e.to_string())?;
        let padding = quantized.layout.cols() - cols;
        let tensor = GgmlTensor::from_bytes(quantized.layout, quantized.blocks.into(), device)
            .map_err(|e| e.to_string())?;
        self.report.weights.push(QuantizedWeight {
            path: path.to_string(),
            ggml_type,
            shape: [rows, cols],
            padding,
            uniform_importance: quantized.uniform_importance,
            rmse: quantized.rmse,
        });
        Ok((tensor, cols))
    }
}

/// Blocks made of dense rows.
pub(crate) struct QuantizedRows {
    /// Of the blocks: its `cols` are filled up to whole blocks.
    pub layout: GgmlLayout,
    pub blocks: Vec<u8>,
    /// Whether the type demands importance and none was given.
    pub uniform_importance: bool,
    /// Over the true values.
    pub rmse: f64,
}

/// Quantizes rows of `cols` values, filled up with zeros to whole blocks.
pub(crate) fn quantize_rows(
    values: &[f32],
    cols: usize,
    ggml_type: GgmlType,
    importance: Option<&[f32]>,
) -> Result<QuantizedRows, QuantizeError> {
    let rows = values.len() / cols.max(1);
    let filled = cols.next_multiple_of(ggml_type.block_len());
    let fill = |values: &[f32]| -> Vec<f32> {
        let mut padded = vec![0.0; values.len() / cols.max(1) * filled];
        for (from, to) in values
            .chunks_exact(cols.max(1))
            .zip(padded.chunks_exact_mut(filled.max(1)))
        {
            to[..cols].copy_from_slice(from);
        }
        padded
    };
    let padded;
    let source = match filled == cols {
        true => values,
        false => {
            padded = fill(values);
            &padded
        }
    };
    let demanded = quantize::importance(ggml_type) == Some(quantize::Importance::Required);
    let uniform_importance = demanded && importance.is_none();
    let importance = match importance {
        Some(importance) => Some(fill(importance)),
        None => uniform_importance.then(|| vec![1.0; filled]),
    };
    let row_bytes = filled / ggml_type.block_len() * ggml_type.block_bytes();
    let mut blocks = vec![0; rows * row_bytes];
    quantize::quantize(
        ggml_type,
        source,
        filled,
        importance.as_deref(),
        &mut blocks,
    )?;
    let mut decoded = vec![0.0; source.len()];
    cpu::dequantize(ggml_type, &blocks, &mut decoded)
        .map_err(|_| QuantizeError::NotWritable { ty: ggml_type })?;
    let squares = source
        .iter()
        .zip(&decoded)
        .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    let rmse = (squares.sum::<f64>() / values.len().max(1) as f64).sqrt();
    let layout = GgmlLayout::matrix(ggml_type, rows, filled)
        .map_err(|_| QuantizeError::NotWritable { ty: ggml_type })?;
    Ok(QuantizedRows {
        layout,
        blocks,
        uniform_importance,
        rmse,
    })
}
