//! How many weights a module has.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Int, Tensor};

use super::param::{GGML_PARAM, LAYOUT_FIELD};

/// Number of weights, packed ones included. [`Module::num_params`] sees those only where no list or option of modules is
/// in between: Burn counts float tensors there.
pub fn count_weights<M: Module>(module: &M) -> usize {
    let mut count = Count::default();
    module.visit(&mut count);
    count.weights
}

#[derive(Default)]
struct Count {
    // Whether each segment of the path is the layout of packed weights.
    path: Vec<bool>,
    weights: usize,
}

impl ModuleVisitor for Count {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path
            .push(name == LAYOUT_FIELD && container_type == GGML_PARAM);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.weights += param.lazy_shape().num_elements();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        if self.path.last() == Some(&true) {
            let values: Vec<i64> = param.val().to_data().iter::<i64>().collect();
            if let [_, matrices, rows, cols, ..] = values[..] {
                self.weights += (matrices * rows * cols) as usize;
            }
        }
    }
}
