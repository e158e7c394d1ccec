//! Low-rank adapters (LoRA, Hu et al. 2021) on packed weights.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};

use super::functional;
use super::instruction::Instruction;
use super::param::{GGML_PARAM, LAYOUT_FIELD, WORDS_FIELD};

/// The container type of a layer that takes adapters.
const LINEAR: &str = "Struct:GgmlLinear";
/// Path segment of a weight's adapters.
pub(crate) const LORA_FIELD: &str = "lora";

/// An adapter: `scale * (x . A^T) . B^T` is added to what its layer computes of `x`. Both matrices are float parameters
/// that optimizers train; the weight itself stays packed and as it is.
#[derive(Module, Debug)]
pub struct LoraAdapter {
    /// `[rank, d_input]`.
    pub a: Param<Tensor<2>>,
    /// `[d_output, rank]`.
    pub b: Param<Tensor<2>>,
    /// The factor, `[1]`, which is not trained.
    pub scale: Param<Tensor<1>>,
}

impl LoraAdapter {
    pub(super) fn new(weights: LoraWeights, shape: [usize; 2], device: &Device) -> Self {
        let LoraWeights { rank, a, b, scale } = weights;
        let [rows, cols] = shape;
        let float = |values: Vec<f32>, shape: [usize; 2]| {
            Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), device))
        };
        Self {
            a: float(a, [rank, cols]),
            b: float(b, [rows, rank]),
            scale: Param::from_tensor(Tensor::from_data([scale], device)).set_require_grad(false),
        }
    }

    /// What the adapter adds to the output for `input` `[.., d_input]`: `[.., d_output]`.
    pub(super) fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let low = functional::linear(input, self.a.val());
        functional::linear(low, self.b.val()) * self.scale.val().unsqueeze()
    }
}

/// A layer an adapter may go to.
#[derive(Clone, Debug)]
pub struct LoraTarget {
    /// The layer's path in the module.
    pub path: String,
    /// What [`GgufStore::loaded_weights`](crate::store::GgufStore::loaded_weights) knows its weight by.
    pub weight: ParamId,
    /// Width of its input.
    pub d_input: usize,
    /// Width of its output.
    pub d_output: usize,
}

/// The numbers of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraWeights {
    /// Width between the two matrices.
    pub rank: usize,
    /// `[rank, d_input]`, row by row.
    pub a: Vec<f32>,
    /// `[d_output, rank]`, row by row.
    pub b: Vec<f32>,
    /// Factor on what is added: `alpha / rank` of the files, times what the user asks for.
    pub scale: f32,
}

impl LoraWeights {
    /// An adapter that does nothing yet, to be trained: `A` is uniform within `sqrt(3 / d_input)`, `B` is zero. The device's
    /// seed decides on `A`.
    pub fn initial(target: &LoraTarget, rank: usize, alpha: f32, device: &Device) -> Self {
        let bound = (3.0 / target.d_input as f64).sqrt();
        let a = Tensor::<2>::random(
            [rank, target.d_input],
            Distribution::Uniform(-bound, bound),
            device,
        );
        Self {
            rank,
            a: a.into_data().iter::<f32>().collect(),
            b: vec![0.0; target.d_output * rank],
            scale: alpha / rank as f32,
        }
    }

    fn fits(&self, shape: [usize; 2]) -> bool {
        let [rows, cols] = shape;
        self.rank > 0
            && Some(self.a.len()) == self.rank.checked_mul(cols)
            && Some(self.b.len()) == self.rank.checked_mul(rows)
    }
}

/// Adds an adapter to each [`GgmlLinear`](super::GgmlLinear) of `module` for which `choose` gives one; adapters that are
/// there already stay, and all of a layer add up.
///
/// # Errors
/// Those of `choose`.
///
/// # Panics
/// If the numbers of an adapter are not as many as its target's shape and its rank ask for.
pub fn attach_lora<M: Module, E>(
    module: M,
    mut choose: impl FnMut(&LoraTarget) -> Result<Option<LoraWeights>, E>,
) -> Result<M, E> {
    let mut chosen = HashMap::new();
    for target in lora_targets(&module) {
        if let Some(weights) = choose(&target)? {
            let shape = [target.d_output, target.d_input];
            assert!(
                weights.fits(shape),
                "an adapter of rank {} for {target:?} has {} and {} values",
                weights.rank,
                weights.a.len(),
                weights.b.len()
            );
            chosen.insert(target.path, weights);
        }
    }
    Ok(module.map(&mut Attach {
        path: Vec::new(),
        chosen,
    }))
}

/// The layers of `module` that take adapters.
pub fn lora_targets<M: Module>(module: &M) -> Vec<LoraTarget> {
    let mut targets = Targets::default();
    module.visit(&mut targets);
    targets.found
}

/// An adapter found in a module.
#[derive(Clone, Debug)]
pub struct FoundLora {
    /// Where it is.
    pub target: LoraTarget,
    /// Its numbers.
    pub weights: LoraWeights,
}

/// The adapters of `module`, layer by layer.
pub fn lora_adapters<M: Module>(module: &M) -> Vec<FoundLora> {
    let targets = lora_targets(module);
    let mut adapters = Adapters::default();
    module.visit(&mut adapters);
    let found = adapters.found.into_iter().filter_map(|(path, parts)| {
        let target = targets.iter().find(|t| t.path == path)?.clone();
        let (rank, a) = parts.a?;
        Some(FoundLora {
            target,
            weights: LoraWeights {
                rank,
                a,
                b: parts.b?,
                scale: parts.scale?,
            },
        })
    });
    found.collect()
}

/// Where a visitor is: names, and the containers they are in.
#[derive(Default)]
struct Path(Vec<(String, String)>);

impl Path {
    fn enter(&mut self, name: &str, container: &str) {
        self.0.push((name.to_owned(), container.to_owned()));
    }

    /// The path of the linear layer, if this is the field `name` of its weight.
    fn linear(&self, name: &str) -> Option<String> {
        match self.0.as_slice() {
            [layer @ .., (_, linear), (field, packed)]
                if field == name && packed == GGML_PARAM && linear == LINEAR =>
            {
                Some(join(layer))
            }
            _ => None,
        }
    }

    /// The path of the linear layer, and the number and field of the adapter.
    fn adapter(&self) -> Option<(String, &str, &str)> {
        match self.0.as_slice() {
            [
                layer @ ..,
                (_, linear),
                (lora, packed),
                (number, _),
                (field, _),
            ] if lora == LORA_FIELD && packed == GGML_PARAM && linear == LINEAR => {
                Some((join(layer), number, field))
            }
            _ => None,
        }
    }
}

fn join(path: &[(String, String)]) -> String {
    let names: Vec<&str> = path.iter().map(|(name, _)| name.as_str()).collect();
    names.join(".")
}

#[derive(Default)]
struct Targets {
    path: Path,
    shape: Option<[usize; 2]>,
    found: Vec<LoraTarget>,
}

impl ModuleVisitor for Targets {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.0.pop();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        if self.path.linear(LAYOUT_FIELD).is_some() {
            let values: Vec<i32> = param.val().to_data().iter::<i32>().collect();
            self.shape = match values[..] {
                [_, 1, rows, cols, ..] => Some([rows as usize, cols as usize]),
                _ => None,
            };
        }
        if let (Some(path), Some([rows, cols])) = (self.path.linear(WORDS_FIELD), self.shape) {
            self.found.push(LoraTarget {
                path,
                weight: param.id,
                d_input: cols,
                d_output: rows,
            });
        }
    }
}

#[derive(Default)]
struct Parts {
    a: Option<(usize, Vec<f32>)>,
    b: Option<Vec<f32>>,
    scale: Option<f32>,
}

#[derive(Default)]
struct Adapters {
    path: Path,
    last: String,
    found: Vec<(String, Parts)>,
}

impl Adapters {
    /// What is known of the adapter the visitor is in, and the field.
    fn parts(&mut self) -> Option<(&mut Parts, String)> {
        let (layer, number, field) = self.path.adapter()?;
        let (key, field) = (format!("{layer}.{number}"), field.to_owned());
        if self.last != key {
            self.last = key;
            self.found.push((layer, Parts::default()));
        }
        let (_, parts) = self.found.last_mut()?;
        Some((parts, field))
    }
}

impl ModuleVisitor for Adapters {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.0.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some((parts, field)) = self.parts() {
            let value = param.val();
            let first = value.dims()[0];
            let values: Vec<f32> = value.into_data().iter::<f32>().collect();
            match field.as_str() {
                "a" => parts.a = Some((first, values)),
                "b" => parts.b = Some(values),
                _ => parts.scale = values.first().copied(),
            }
        }
    }
}

/// Gives layouts the instruction; the parameters do the rest.
struct Attach {
    path: Vec<(String, String)>,
    chosen: HashMap<String, LoraWeights>,
}

impl ModuleMapper for Attach {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.to_owned(), container_type.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let path = Path(std::mem::take(&mut self.path));
        let weights = path
            .linear(LAYOUT_FIELD)
            .and_then(|layer| self.chosen.remove(&layer));
        self.path = path.0;
        match weights {
            Some(weights) => Instruction::Adapt(weights).give(param),
            None => param,
        }
    }
}
