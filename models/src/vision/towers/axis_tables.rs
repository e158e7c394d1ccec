//! Learned positions by axis: what a patch's column and what its row adds.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::TowerError;
use crate::error::ModelError;
use crate::vision::VisionError;
use crate::vision::mmproj::Mmproj;

const TENSOR: &str = "v.position_embd.weight";

/// A table for columns and one for rows, `[2, entries, hidden]`.
#[derive(Module, Debug)]
pub struct AxisTables {
    /// The tables.
    pub weight: Param<Tensor<3>>,
    #[module(skip)]
    entries: usize,
}

impl AxisTables {
    /// Tables to be loaded from a file.
    pub fn new(entries: usize, hidden: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([2, entries, hidden], device)),
            entries,
        }
    }

    /// Entries of each table in a file.
    pub(super) fn entries_of(mmproj: &Mmproj) -> Result<usize, VisionError> {
        let shape = mmproj.tensor(TENSOR).map_or(&[][..], |t| t.shape());
        match shape {
            [_, entries, 2] if *entries > 0 => Ok(*entries as usize),
            _ => {
                let error = ModelError::InvalidValue {
                    key: TENSOR.to_owned(),
                    value: format!("of the shape {shape:?}"),
                    reason: "two tables of positions are expected, {width, entries, 2}".to_owned(),
                };
                Err(VisionError::load(mmproj, error))
            }
        }
    }

    /// That the tables have an entry for every patch of a grid.
    ///
    /// # Errors
    /// [`TowerError::GridTooLarge`].
    pub fn check(&self, rows: usize, columns: usize) -> Result<(), TowerError> {
        match rows.max(columns) <= self.entries {
            true => Ok(()),
            false => Err(TowerError::GridTooLarge {
                rows,
                columns,
                entries: self.entries,
            }),
        }
    }

    /// What patches at `positions` (row, column) add, `[patches, hidden]`.
    ///
    /// # Panics
    /// On CPU devices if a position has no entry, see [`check`](Self::check).
    pub fn forward(&self, positions: &[[u32; 2]]) -> Tensor<2> {
        let [_, entries, hidden] = self.weight.lazy_shape().dims();
        let table = self.weight.val().reshape([2 * entries, hidden]);
        let device = table.device();
        let add = |axis: usize, first: usize| {
            let ids: Vec<i32> = positions
                .iter()
                .map(|position| (first + position[axis] as usize) as i32)
                .collect();
            let ids = TensorData::new(ids, [positions.len()]);
            let ids = Tensor::<1, Int>::from_data(ids, (&device, DType::I32));
            table.clone().select(0, ids)
        };
        add(1, 0) + add(0, entries)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn columns_come_first() {
        let device = Device::flex();
        let mut tables = AxisTables::new(3, 1, &device);
        let values = TensorData::new(vec![0.0f32, 1.0, 2.0, 0.0, 10.0, 20.0], [2, 3, 1]);
        tables.weight = Param::from_tensor(Tensor::from_data(values, &device));
        let out = tables.forward(&[[0, 2], [2, 0], [1, 1]]).into_data();
        assert_eq!(out.try_into_vec::<f32>().unwrap(), [2.0, 20.0, 11.0]);
        assert!(tables.check(3, 3).is_ok());
        let error = tables.check(2, 4).unwrap_err().to_string();
        assert!(error.contains('4') && error.contains('3'), "{error}");
    }
}
