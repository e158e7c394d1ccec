//! What a packed parameter's `layout` tensor says.

use burn_gguf_kernels::GgmlType;

use crate::layout::GgmlLayout;
use crate::scales::Scales;
use crate::tensor::GgmlTensor;

/// What the blocks of a parameter are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    /// Of the blocks, whose rows are filled up.
    pub layout: GgmlLayout,
    /// Values in a row, without what fills up its last block.
    pub cols: usize,
    /// Factors outside the blocks.
    pub scales: Option<Scales>,
}

impl Description {
    /// Of a tensor whose rows hold `cols` values that count.
    pub(crate) fn of(tensor: &GgmlTensor, cols: usize) -> Self {
        Self {
            layout: *tensor.layout(),
            cols,
            scales: tensor.shared_scales(),
        }
    }

    /// The numbers of the `layout` parameter.
    pub(crate) fn values(&self) -> Vec<i32> {
        let layout = &self.layout;
        let number = |n: usize| i32::try_from(n).unwrap_or(-1);
        let mut values = vec![
            layout.ggml_type().id() as i32,
            number(layout.matrices()),
            number(layout.rows()),
            number(self.cols),
        ];
        let scales = self.scales.iter().flat_map(Scales::factors);
        values.extend(scales.map(|f| f.to_bits() as i32));
        values
    }

    /// Reads the numbers of a `layout` parameter; `None` if they describe no tensor.
    pub(crate) fn parse(values: &[i64]) -> Option<Self> {
        let (&[id, matrices, rows, cols], scales) = values.split_first_chunk::<4>()?;
        let ggml_type = GgmlType::from_id(u32::try_from(id).ok()?)?;
        let cols = usize::try_from(cols).ok()?;
        let matrices = usize::try_from(matrices).ok()?;
        let layout = GgmlLayout::stack(
            ggml_type,
            matrices,
            usize::try_from(rows).ok()?,
            cols.checked_next_multiple_of(ggml_type.block_len())?,
        )
        .ok()?;
        let scales: Vec<f32> = scales.iter().map(|&b| f32::from_bits(b as u32)).collect();
        let scales = match scales.is_empty() {
            true => None,
            false => Scales::new(&scales, matrices).ok()?,
        };
        Some(Self {
            layout,
            cols,
            scales,
        })
    }
}
