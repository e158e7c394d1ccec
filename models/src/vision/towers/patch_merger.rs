//! Neighbouring patches into one token of the text model.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_gguf::nn::{GgmlLinear, functional};
use burn_gguf::ops::GeluKind;

use super::vit::VitConfig;
use crate::layers::LayerNorm;

/// `fc2(gelu(fc1(.)))` over groups of neighbouring patches, normalized patch by patch or group by group.
#[derive(Module, Debug)]
pub struct PatchMerger {
    /// The norm.
    pub norm: LayerNorm,
    /// `[group * hidden] -> [group * hidden]`.
    pub fc1: GgmlLinear,
    /// `[group * hidden] -> [output]`.
    pub fc2: GgmlLinear,
    #[module(skip)]
    group: usize,
    #[module(skip)]
    norm_groups: bool,
}

impl PatchMerger {
    /// A merger of `group` patches to be loaded from a file; `norm_groups` normalizes a whole group at once.
    pub fn uninitialized(
        config: &VitConfig,
        group: usize,
        norm_groups: bool,
        output: usize,
        device: &Device,
    ) -> Self {
        let width = group * config.hidden;
        let norm = if norm_groups { width } else { config.hidden };
        Self {
            norm: LayerNorm::new(norm, config.eps, device),
            fc1: config.linear(width, width, device),
            fc2: config.linear(width, output, device),
            group,
            norm_groups,
        }
    }

    /// `[batch, patches, hidden] -> [batch, patches / group, output]`; the patches of a group follow each other.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, patches, hidden] = x.dims();
        let groups = [batch, patches / self.group, self.group * hidden];
        let x = match self.norm_groups {
            true => self.norm.forward(x.reshape(groups)),
            false => self.norm.forward(x).reshape(groups),
        };
        // The original model uses the exact form here, and the tanh form in its blocks.
        self.fc2
            .forward(functional::gelu(self.fc1.forward(x), GeluKind::Erf))
    }
}
