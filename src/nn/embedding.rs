//! An embedding table kept in blocks.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_gguf_kernels::cpu::Arithmetic;

use super::observe;
use super::param::GgmlParam;
use crate::tensor::GgmlTensor;

/// A block-quantized embedding table `[n_embedding, d_model]`; only the rows looked up are widened.
#[derive(Module, Debug)]
pub struct GgmlEmbedding {
    /// The table, `[n_embedding, d_model]`.
    pub weight: GgmlParam,
}

impl GgmlEmbedding {
    /// A table to be loaded from a file.
    pub fn uninitialized(n_embedding: usize, d_model: usize, device: &Device) -> Self {
        Self {
            weight: GgmlParam::uninitialized(n_embedding, d_model, device),
        }
    }

    /// A table over a loaded tensor.
    pub fn from_tensor(weight: GgmlTensor) -> Self {
        Self {
            weight: GgmlParam::from_tensor(weight),
        }
    }

    /// A table over a loaded tensor whose rows were filled up with zeros to whole blocks; vectors have `d_model` values.
    ///
    /// # Panics
    /// If `d_model` filled up to whole blocks is not the table's row length.
    pub fn from_padded(weight: GgmlTensor, d_model: usize) -> Self {
        Self {
            weight: GgmlParam::from_padded(weight, d_model),
        }
    }

    /// Where the weight is.
    pub fn device(&self) -> Device {
        self.weight.device()
    }

    /// Ids `[batch, seq]` to f32 vectors `[batch, seq, d_model]`.
    ///
    /// # Panics
    /// On CPU devices if an id is out of range, or if no table has been loaded.
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let [batch, seq] = ids.dims();
        if let Some(table) = self.weight.dense() {
            let [_, d_model] = self.weight.shape();
            return table
                .select(0, ids.flatten(0, 1))
                .reshape([batch, seq, d_model]);
        }
        let rows = self.weight.tensor().gather_rows(ids.flatten(0, 1));
        let [_, d_model] = self.weight.shape();
        let [n, filled] = rows.dims();
        let rows = match filled == d_model {
            true => rows,
            // The table's rows are filled up to whole blocks.
            false => rows.slice([0..n, 0..d_model]),
        };
        rows.reshape([batch, seq, d_model])
    }

    /// The tied output head: `[.., d_model] -> [.., n_embedding]`, over the same blocks.
    ///
    /// # Panics
    /// If the input's last dimension is not `d_model`, or no table has been loaded.
    pub fn as_linear<const D: usize>(&self, x: Tensor<D>, arithmetic: Arithmetic) -> Tensor<D> {
        observe::linear(&self.weight, &x);
        self.weight.linear(x, arithmetic)
    }
}
