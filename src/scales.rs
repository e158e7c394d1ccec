//! Factors that stand outside a tensor's blocks.

use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::error::TensorError;
use crate::layout::GgmlLayout;

/// Factors of a [`GgmlTensor`](crate::GgmlTensor)'s values: one, or one per matrix of a stack; not all of them 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scales(Arc<[f32]>);

impl Scales {
    /// `None` where all factors are 1.
    pub(crate) fn new(factors: &[f32], matrices: usize) -> Result<Option<Self>, TensorError> {
        if factors.len() != 1 && factors.len() != matrices {
            return Err(TensorError::ScaleCount {
                matrices,
                found: factors.len(),
            });
        }
        if let Some(&value) = factors.iter().find(|f| !f.is_finite()) {
            return Err(TensorError::ScaleValue {
                value: value.to_string(),
            });
        }
        let ones = factors.iter().all(|&f| f == 1.0);
        Ok((!ones).then(|| Self(factors.into())))
    }

    /// One, or one per matrix.
    pub(crate) fn factors(&self) -> &[f32] {
        &self.0
    }

    /// Scales all values of a tensor, `[matrices * rows, cols]`.
    pub(crate) fn apply_to_rows(&self, values: Tensor<2>, layout: &GgmlLayout) -> Tensor<2> {
        match *self.0 {
            [factor] => values.mul_scalar(factor),
            _ => {
                let dims = [layout.matrices(), layout.rows(), layout.cols()];
                let factors = self.tensor(&values).reshape([self.0.len(), 1, 1]);
                let (dtype, shape) = (values.dtype(), values.dims());
                (values.reshape(dims) * factors.cast(dtype)).reshape(shape)
            }
        }
    }

    /// Scales rows `[n, cols]` gathered by ids that count through the matrices.
    pub(crate) fn apply_to_gathered(
        &self,
        rows: Tensor<2>,
        ids: Tensor<1, Int>,
        layout: &GgmlLayout,
    ) -> Tensor<2> {
        match *self.0 {
            [factor] => rows.mul_scalar(factor),
            _ => {
                let n = ids.dims()[0];
                let matrices = ids.div_scalar(layout.rows() as i64);
                let factors = self.tensor(&rows).select(0, matrices);
                rows * factors.reshape([n, 1])
            }
        }
    }

    /// Scales the products `[tokens, chosen, rows]` of the matrices `ids`.
    pub(crate) fn apply_to_chosen(&self, y: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        match *self.0 {
            [factor] => y.mul_scalar(factor),
            _ => {
                let [tokens, chosen] = ids.dims();
                let factors = self.tensor(&y).select(0, ids.flatten(0, 1));
                let dtype = y.dtype();
                y * factors.reshape([tokens, chosen, 1]).cast(dtype)
            }
        }
    }

    fn tensor<const D: usize>(&self, like: &Tensor<D>) -> Tensor<1> {
        let data = TensorData::new(self.0.to_vec(), [self.0.len()]);
        Tensor::from_data(data, (&like.device(), DType::F32))
    }
}
