//! Packed weights into float parameters, to be trained.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Int, Tensor};

use super::instruction::Instruction;
use super::param::{GGML_PARAM, LAYOUT_FIELD};

/// Turns the packed weights of `module` into `f32` parameters that optimizers train; everything else stays as it is, and
/// so do the stacks of experts. [`GgufStore`](crate::store::GgufStore) saves such a module with plain `F32` tensors.
pub fn thaw<M: Module>(module: M) -> M {
    module.map(&mut Thaw::default())
}

/// Marks the layouts; [`GgmlParam`](super::GgmlParam) does the rest when it sees the mark.
#[derive(Default)]
struct Thaw {
    path: Vec<(String, bool)>,
}

impl ModuleMapper for Thaw {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path
            .push((name.to_string(), container_type == GGML_PARAM));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let is_layout = self
            .path
            .last()
            .is_some_and(|(name, packed)| *packed && name == LAYOUT_FIELD);
        if !is_layout {
            return param;
        }
        Instruction::Thaw.give(param)
    }
}
