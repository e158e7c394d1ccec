//! What becomes of each tensor of a file, decided before anything is written.

use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::quantize::{Importance, importance, is_writable};

use super::config::{QuantConfig, QuantRule, RuleAction, first_match};
use super::eligible::{Kind, PER_LAYER_EMBEDDING, is_eligible, kind};
use super::error::QuantizeFileError;
use super::importance::ImportanceMatrix;
use super::mix::{self, Counters, Model};
use super::recipe::Recipe;
use crate::gguf::{FileName, Gguf, TensorInfo};

/// How to quantize a file.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// What tensors become that nothing below speaks of.
    pub recipe: Recipe,
    /// Tensors by name, before the recipe; see [`QuantConfig`] for which rule decides.
    pub rules: Vec<QuantRule>,
    /// The recipe's base type for every tensor, without its mix.
    pub pure: bool,
    /// The type of `output.weight`, and of a token embedding that is the output matrix, too.
    pub output_type: Option<GgmlType>,
    /// The type of the token embeddings.
    pub token_embedding_type: Option<GgmlType>,
    /// How much inputs matter, for the types that ask.
    pub importance: Option<ImportanceMatrix>,
    /// Write as many shards as are read, and not one file.
    pub keep_split: bool,
}

impl QuantizeOptions {
    /// A recipe and nothing else.
    pub fn new(recipe: Recipe) -> Self {
        QuantizeOptions {
            recipe,
            rules: Vec::new(),
            pure: false,
            output_type: None,
            token_embedding_type: None,
            importance: None,
            keep_split: false,
        }
    }
}

/// The recipe of the configuration's spec, with its rules.
impl From<&QuantConfig> for QuantizeOptions {
    fn from(config: &QuantConfig) -> Self {
        QuantizeOptions {
            rules: config.rules().to_vec(),
            ..QuantizeOptions::new(config.spec().into())
        }
    }
}

/// Something about a tensor that the reader of a report should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Rows do not fill blocks of the type that was chosen; this one took its place.
    Fallback {
        /// The type that does not fit.
        wanted: GgmlType,
    },
    /// The type needs importances and none were given: all inputs count the same.
    UniformImportance,
    /// Importances were not given, where they matter much for a type this small.
    ImportanceAdvised,
    /// The importance matrix has another number of inputs for this tensor and is not used for it.
    ImportanceIgnored {
        /// Importances the tensor needs.
        need: u64,
        /// Importances given.
        have: u64,
    },
    /// The source was quantized, too: its error stays in.
    Requantized,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Fallback { wanted } => write!(f, "rows do not fill {wanted} blocks"),
            Note::UniformImportance => f.write_str("uniform importance"),
            Note::ImportanceAdvised => f.write_str("no importance matrix (advised)"),
            Note::ImportanceIgnored { need, have } => {
                write!(f, "importance of {have} inputs ignored, {need} needed")
            }
            Note::Requantized => f.write_str("requantized"),
        }
    }
}

/// What becomes of one tensor.
#[derive(Clone, Debug)]
pub struct TensorPlan {
    /// The tensor's name.
    pub name: String,
    /// The dimensions in ggml's `ne` order.
    pub shape: Vec<u64>,
    /// The type in the source; `None` if ggml does not know it (it is copied).
    pub from: Option<GgmlType>,
    /// The type it gets; `None` to copy it as it is.
    pub to: Option<GgmlType>,
    /// Bytes in the source.
    pub bytes_from: u64,
    /// Bytes in the result.
    pub bytes_to: u64,
    /// What to know about it.
    pub notes: Vec<Note>,
}

/// What becomes of a file.
#[derive(Clone, Debug, Default)]
pub struct QuantizePlan {
    /// The tensors in file order.
    pub tensors: Vec<TensorPlan>,
    /// The regular expressions of rules that speak of no tensor that can be quantized.
    pub unused_rules: Vec<String>,
}

impl QuantizePlan {
    /// Decides on every tensor of `gguf`.
    ///
    /// # Errors
    /// [`QuantizeFileError`]: metadata that cannot be read, a tensor of a type that cannot be decoded or written, or an
    /// importance matrix of another model.
    pub fn new(gguf: &Gguf, options: &QuantizeOptions) -> Result<Self, QuantizeFileError> {
        let planner = Planner {
            file: gguf.file(),
            options,
            model: Model::of(gguf)?,
        };
        let infos: Vec<&TensorInfo> = gguf.tensors().collect();
        // Places among tensors of a kind are counted by layer, whatever their order in the file.
        let mut order: Vec<usize> = (0..infos.len()).collect();
        order.sort_by_key(|&i| (mix::layer(infos[i].name()), infos[i].name()));
        let mut counters = Counters::default();
        let mut tensors = vec![None; infos.len()];
        for i in order {
            tensors[i] = Some(planner.tensor(infos[i], &mut counters)?);
        }
        let tensors: Vec<TensorPlan> = tensors.into_iter().flatten().collect();
        let is_used = |rule: &&QuantRule| infos.iter().any(|t| planner.speaks_of(rule, t));
        let unused = options.rules.iter().filter(|rule| !is_used(rule));
        Ok(QuantizePlan {
            unused_rules: unused.map(|rule| rule.regex().to_owned()).collect(),
            tensors,
        })
    }

    /// Bytes of the tensors before.
    pub fn bytes_from(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes_from).sum()
    }

    /// Bytes of the tensors after.
    pub fn bytes_to(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes_to).sum()
    }

    /// Values of all tensors.
    pub fn values(&self) -> u64 {
        let count = |t: &TensorPlan| t.shape.iter().product::<u64>();
        self.tensors.iter().map(count).sum()
    }

    /// Bits of a value after, on average.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes_to() as f64 * 8.0 / self.values().max(1) as f64
    }
}

struct Planner<'a> {
    file: &'a FileName,
    options: &'a QuantizeOptions,
    model: Model,
}

impl Planner<'_> {
    fn is_eligible(&self, info: &TensorInfo) -> bool {
        let is_number = !matches!(
            info.ggml_type(),
            Some(GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64)
        );
        is_number && is_eligible(&self.model.architecture, info.name(), info.shape())
    }

    fn speaks_of(&self, rule: &QuantRule, info: &TensorInfo) -> bool {
        self.is_eligible(info) && rule.matches(info.name())
    }

    fn tensor(
        &self,
        info: &TensorInfo,
        counters: &mut Counters,
    ) -> Result<TensorPlan, QuantizeFileError> {
        let mut plan = TensorPlan {
            name: info.name().to_owned(),
            shape: info.shape().to_vec(),
            from: info.ggml_type(),
            to: None,
            bytes_from: info.byte_len() as u64,
            bytes_to: info.byte_len() as u64,
            notes: Vec::new(),
        };
        if !self.is_eligible(info) {
            return Ok(plan);
        }
        let Some(wanted) = self.wanted(info, counters) else {
            return Ok(plan);
        };
        let to = fitting(wanted, info.shape()[0]);
        if to != wanted {
            plan.notes.push(Note::Fallback { wanted });
        }
        if plan.from == Some(to) {
            return Ok(plan);
        }
        let from = info.usable_type()?;
        if !is_writable(to) {
            return Err(QuantizeFileError::NotWritable {
                file: self.file.clone(),
                tensor: plan.name,
                ggml_type: to,
            });
        }
        plan.bytes_to = byte_size(to, info.shape());
        plan.to = Some(to);
        self.note_importance(&mut plan, to)?;
        if from.block_len() > 1 {
            plan.notes.push(Note::Requantized);
        }
        Ok(plan)
    }

    /// The type to give the tensor if its rows fill the blocks; `None` to leave it.
    fn wanted(&self, info: &TensorInfo, counters: &mut Counters) -> Option<GgmlType> {
        let (options, name) = (self.options, info.name());
        let rule = first_match(&options.rules, name);
        let kind = kind(name);
        if rule == Some(RuleAction::Skip) {
            return None;
        }
        if kind == Kind::TokenEmbedding
            && let Some(ty) = options.token_embedding_type
            // A table of its own: a rule that names it wins.
            && (name != PER_LAYER_EMBEDDING || rule.is_none())
        {
            return Some(ty);
        }
        if kind == Kind::Output && options.output_type.is_some() {
            return options.output_type;
        }
        if let Some(RuleAction::Quantize(spec)) = rule {
            return Some(spec.ggml_type());
        }
        let mix = options.recipe.mix()?;
        if options.pure {
            return Some(mix.base);
        }
        if self.model.is_output(kind) && options.output_type.is_some() {
            return options.output_type;
        }
        let has_importance = options.importance.is_some();
        Some(mix::choose(
            mix,
            &self.model,
            has_importance,
            counters,
            name,
            info.shape(),
        ))
    }

    fn note_importance(
        &self,
        plan: &mut TensorPlan,
        to: GgmlType,
    ) -> Result<(), QuantizeFileError> {
        let class = importance(to).unwrap_or(Importance::Ignored);
        let mut given = false;
        if let Some(matrix) = &self.options.importance
            && class != Importance::Ignored
            && let Some(values) = matrix.get(&plan.name)
        {
            let need = importances(&plan.shape);
            let have = values.len() as u64;
            given = need == have;
            if !given && kind(&plan.name) != Kind::TokenEmbedding {
                return Err(QuantizeFileError::ImportanceSize {
                    file: matrix.file().clone(),
                    tensor: plan.name.clone(),
                    need,
                    have,
                });
            }
            if !given {
                plan.notes.push(Note::ImportanceIgnored { need, have });
            }
        }
        if !given && class == Importance::Required {
            plan.notes.push(Note::UniformImportance);
        } else if !given && self.advises_importance(plan, to) {
            plan.notes.push(Note::ImportanceAdvised);
        }
        Ok(())
    }

    /// Whether llama.cpp would refuse to go on without importances.
    fn advises_importance(&self, plan: &TensorPlan, to: GgmlType) -> bool {
        let is_small = match to {
            GgmlType::IQ2S | GgmlType::IQ3XXS => true,
            GgmlType::Q2K => self.options.recipe.name() == "Q2_K_S",
            _ => false,
        };
        is_small && !matches!(kind(&plan.name), Kind::Output | Kind::TokenEmbedding)
    }
}

/// Importances of a tensor: one for a column of each matrix of a stack.
pub(super) fn importances(shape: &[u64]) -> u64 {
    shape[0] * shape.get(2).copied().unwrap_or(1)
}

fn byte_size(ty: GgmlType, shape: &[u64]) -> u64 {
    shape.iter().product::<u64>() / ty.block_len() as u64 * ty.block_bytes() as u64
}

/// `wanted`, or what takes its place where rows of `columns` values do not fill its blocks.
fn fitting(wanted: GgmlType, columns: u64) -> GgmlType {
    use GgmlType::*;

    let fills = |ty: GgmlType| columns.is_multiple_of(ty.block_len() as u64);
    if fills(wanted) {
        return wanted;
    }
    // Blocks of 32 of at least as many bits.
    let shorter = match wanted {
        IQ1S | IQ1M | IQ2XXS | IQ2XS | IQ2S | IQ3XXS | IQ3S | IQ4XS => IQ4NL,
        Q1_0 | Q2_0 | Q2K | Q3K | TQ1_0 | TQ2_0 | NVFP4 => Q4_0,
        Q4K => Q5_0,
        Q5K => Q5_1,
        Q6K | Q8K => Q8_0,
        other => other,
    };
    if fills(shorter) { shorter } else { F16 }
}
