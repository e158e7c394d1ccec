//! Patches in the order of the weights of a convolution.

use burn::tensor::{Device, Tensor, TensorData};

use crate::vision::processor::PixelValues;

/// Patches `[1, patches, 3 * patch^2]` of a picture whose values lie pixel by pixel: each channel on its own, patches in the
/// given order, every value through `map`.
pub(super) fn planar_patches(
    values: &PixelValues,
    order: &[usize],
    map: impl Fn(f32) -> f32,
    device: &Device,
) -> Tensor<3> {
    let len = values.row_len;
    let mut out = Vec::with_capacity(order.len() * len);
    for &patch in order {
        let pixels = &values.values[patch * len..(patch + 1) * len];
        for channel in 0..3 {
            out.extend(pixels[channel..].iter().step_by(3).map(|&v| map(v)));
        }
    }
    Tensor::from_data(TensorData::new(out, [1, order.len(), len]), device)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn channels_are_apart() {
        let values = PixelValues {
            values: (0..24).map(|v| v as f32).collect(),
            rows: 2,
            row_len: 12,
            grid_thw: [1, 1, 2],
            positions: vec![[0, 0], [0, 1]],
        };
        let out = planar_patches(&values, &[1, 0], |v| v + 0.5, &Device::flex());
        assert_eq!(out.dims(), [1, 2, 12]);
        let out = out.into_data().try_into_vec::<f32>().unwrap();
        assert_eq!(out[..5], [12.5, 15.5, 18.5, 21.5, 13.5]);
        assert_eq!(out[12..16], [0.5, 3.5, 6.5, 9.5]);
    }
}
