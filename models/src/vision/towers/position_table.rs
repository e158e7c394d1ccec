//! Learned absolute positions, resampled to the picture's grid.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// A square table of position embeddings in raster order, `[side * side, hidden]`.
#[derive(Module, Debug)]
pub struct PositionTable {
    /// The table.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    side: usize,
}

impl PositionTable {
    /// A table to be loaded from a file.
    pub fn new(side: usize, hidden: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([side * side, hidden], device)),
            side,
        }
    }

    /// The embeddings of patches at `positions` (row, column) of a grid of `rows` by `columns`: bilinear between the four
    /// nearest entries, corners on corners. `[patches, hidden]`.
    pub fn resample(&self, rows: usize, columns: usize, positions: &[[u32; 2]]) -> Tensor<2> {
        let table = self.weight.val();
        let device = table.device();
        // Entry below and weight of the one above, per coordinate.
        let axis = |n: usize| -> Vec<(usize, f32)> {
            let step = match n {
                0 | 1 => 0.0,
                _ => (self.side - 1) as f64 / (n - 1) as f64,
            };
            (0..n)
                .map(|i| {
                    let at = i as f64 * step;
                    let low = (at.floor() as usize).min(self.side - 1);
                    (low, (at - low as f64) as f32)
                })
                .collect()
        };
        let (ys, xs) = (axis(rows), axis(columns));
        let n = positions.len();
        let corner = |dy: usize, dx: usize| {
            let mut ids = Vec::with_capacity(n);
            let mut weights = Vec::with_capacity(n);
            for &[y, x] in positions {
                let ((y, fy), (x, fx)) = (ys[y as usize], xs[x as usize]);
                let at = |low: usize, d: usize| (low + d).min(self.side - 1);
                ids.push((at(y, dy) * self.side + at(x, dx)) as i32);
                let part = |f: f32, d: usize| if d == 0 { 1.0 - f } else { f };
                weights.push(part(fy, dy) * part(fx, dx));
            }
            let ids = TensorData::new(ids, [n]);
            let ids = Tensor::<1, Int>::from_data(ids, (&device, DType::I32));
            let weights = Tensor::<2>::from_data(TensorData::new(weights, [n, 1]), &device);
            table.clone().select(0, ids) * weights
        };
        corner(0, 0) + corner(0, 1) + corner(1, 0) + corner(1, 1)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    fn table() -> PositionTable {
        let device = Device::flex();
        let mut table = PositionTable::new(3, 1, &device);
        let values: Vec<f32> = (0..9).map(|i| i as f32).collect();
        table.weight =
            Param::from_tensor(Tensor::from_data(TensorData::new(values, [9, 1]), &device));
        table
    }

    fn values(rows: usize, columns: usize) -> Vec<f32> {
        let positions: Vec<_> = (0..rows as u32)
            .flat_map(|y| (0..columns as u32).map(move |x| [y, x]))
            .collect();
        let out = table().resample(rows, columns, &positions);
        out.into_data().try_into_vec().unwrap()
    }

    #[test]
    fn the_tables_own_grid_is_the_table() {
        assert_eq!(values(3, 3), (0..9).map(|i| i as f32).collect::<Vec<_>>());
    }

    #[test]
    fn corners_stay_on_corners() {
        assert_eq!(
            values(2, 5),
            [0.0, 0.5, 1.0, 1.5, 2.0, 6.0, 6.5, 7.0, 7.5, 8.0]
        );
        assert_eq!(values(1, 1), [0.0]);
    }
}
