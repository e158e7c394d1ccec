//! What a mapper can tell a [`GgmlParam`](super::GgmlParam) to become: mappers change tensors only, so the instruction
//! travels in the `layout` tensor and is gone once obeyed.

use burn::module::Param;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::lora::LoraWeights;

/// Added to the type id: become floats.
const THAW: i64 = 1 << 16;
/// Added to the type id: take an adapter. Its rank, its scale's bits and the length of the layout follow the type id's
/// new value, then come the layout and the bits of both matrices.
const ADAPT: i64 = 1 << 17;

/// An instruction to a packed parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Instruction {
    /// Become one float parameter.
    Thaw,
    /// Add an adapter.
    Adapt(LoraWeights),
}

impl Instruction {
    /// The `layout` parameter with this instruction in it. A weight that was never loaded has none to give it to.
    pub fn give<const D: usize>(&self, layout: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let (id, device) = (layout.id, layout.lazy_device());
        let mut values: Vec<i32> = layout.val().to_data().iter::<i32>().collect();
        if values[0] < 0 {
            return layout;
        }
        let values = match self {
            Self::Thaw => {
                values[0] += THAW as i32;
                values
            }
            Self::Adapt(weights) => {
                let bits = |v: &f32| v.to_bits() as i32;
                let mut all = vec![
                    values[0] + ADAPT as i32,
                    weights.rank as i32,
                    bits(&weights.scale),
                    values.len() as i32,
                ];
                all.append(&mut values);
                all.extend(weights.a.iter().chain(&weights.b).map(bits));
                all
            }
        };
        let n = values.len();
        let values = TensorData::new(values, [n]);
        let marked = Tensor::<1, Int>::from_data(values, (&device, DType::I32));
        Param::initialized(id, marked.reshape([n; D]))
    }

    /// The instruction in a layout's values, and the values without it.
    pub fn take(mut values: Vec<i64>, cols: usize) -> (Option<Self>, Vec<i64>) {
        match values[..] {
            [id, rank, scale, n, ..] if id >= ADAPT => {
                let (rank, n) = (rank as usize, n as usize);
                let float = |v: &i64| f32::from_bits(*v as u32);
                let matrices = &values[4 + n..];
                let a = matrices[..rank * cols].iter().map(float).collect();
                let b = matrices[rank * cols..].iter().map(float).collect();
                let weights = LoraWeights {
                    rank,
                    a,
                    b,
                    scale: float(&scale),
                };
                (Some(Self::Adapt(weights)), values[4..4 + n].to_vec())
            }
            [id, ..] if id >= THAW => {
                values[0] -= THAW;
                (Some(Self::Thaw), values)
            }
            _ => (None, values),
        }
    }
}
