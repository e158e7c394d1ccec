//! The operations of the suite, by name.

use burn::tensor::FloatDType;
use burn_gguf::ops::{Gating, GeluKind, GluActivation, RopeStyle};
use burn_gguf::{Arithmetic, GgmlType};
use burn_gguf_kernels::blocks::IMPLEMENTED;

use crate::error::MatrixError;
use crate::layers::{AttentionKind, Layer};

/// An operation.
#[derive(Debug)]
pub struct Op {
    /// Its own name.
    pub name: &'static str,
    /// The name of the group that it belongs to.
    pub family: &'static str,
    pub(crate) kind: Kind,
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Dequantize(FloatDType),
    GatherRows,
    Linear(Arithmetic),
    LinearPair(Arithmetic),
    LinearTriple(Arithmetic),
    LinearF16Input,
    LinearExperts(Arithmetic),
    SwitchOver(Arithmetic),
    Layer(Layer),
}

impl Op {
    /// Whether the operation computes with `ty`: those on weights take every block type, those of a transformer layer
    /// the plain type of the tensor they are named for.
    pub fn takes(&self, ty: GgmlType) -> bool {
        match self.kind {
            Kind::Layer(layer) => layer.ggml_type() == ty,
            _ => IMPLEMENTED.contains(&ty),
        }
    }

    /// Whether it is an operation on weights, not one of a transformer layer.
    pub fn is_on_weights(&self) -> bool {
        !matches!(self.kind, Kind::Layer(_))
    }
}

const fn op(family: &'static str, name: &'static str, kind: Kind) -> Op {
    Op { name, family, kind }
}

const fn layer(family: &'static str, name: &'static str, layer: Layer) -> Op {
    op(family, name, Kind::Layer(layer))
}

use Arithmetic::{Exact, Fast};

/// Every operation, in the order in which they run.
pub static OPS: &[Op] = &[
    op(
        "dequantize",
        "dequantize_f32",
        Kind::Dequantize(FloatDType::F32),
    ),
    op(
        "dequantize",
        "dequantize_f16",
        Kind::Dequantize(FloatDType::F16),
    ),
    op(
        "dequantize",
        "dequantize_bf16",
        Kind::Dequantize(FloatDType::BF16),
    ),
    op("gather_rows", "gather_rows", Kind::GatherRows),
    op("linear", "linear_exact", Kind::Linear(Exact)),
    op("linear", "linear_fast", Kind::Linear(Fast)),
    op("linear", "linear_f16_input", Kind::LinearF16Input),
    op("linear_pair", "linear_pair_exact", Kind::LinearPair(Exact)),
    op("linear_pair", "linear_pair_fast", Kind::LinearPair(Fast)),
    op(
        "linear_triple",
        "linear_triple_exact",
        Kind::LinearTriple(Exact),
    ),
    op(
        "linear_triple",
        "linear_triple_fast",
        Kind::LinearTriple(Fast),
    ),
    op(
        "linear_experts",
        "linear_experts_exact",
        Kind::LinearExperts(Exact),
    ),
    op(
        "linear_experts",
        "linear_experts_fast",
        Kind::LinearExperts(Fast),
    ),
    op("switch_over", "switch_over_exact", Kind::SwitchOver(Exact)),
    op("switch_over", "switch_over_fast", Kind::SwitchOver(Fast)),
    layer("rms_norm", "rms_norm", Layer::RmsNorm),
    layer("layer_norm", "layer_norm", Layer::CenteredNorm),
    layer("gelu", "gelu_erf", Layer::Gelu(GeluKind::Erf)),
    layer("gelu", "gelu_tanh", Layer::Gelu(GeluKind::Tanh)),
    layer("gelu", "gelu_quick", Layer::Gelu(GeluKind::Quick)),
    layer("rope", "rope_neox", Layer::Rope(RopeStyle::Neox)),
    layer("rope", "rope_norm", Layer::Rope(RopeStyle::Norm)),
    layer("glu", "glu_silu", Layer::Glu(GluActivation::Silu)),
    layer("glu", "glu_gelu", Layer::Glu(GluActivation::GeluTanh)),
    layer(
        "glu",
        "glu_swiglu_oai",
        Layer::Glu(GluActivation::SwigluOai),
    ),
    layer(
        "cache_append",
        "cache_append",
        Layer::CacheAppend(GgmlType::F32),
    ),
    layer(
        "cache_append",
        "cache_append_f16",
        Layer::CacheAppend(GgmlType::F16),
    ),
    layer(
        "attention",
        "attention",
        Layer::Attention(AttentionKind::Causal),
    ),
    layer(
        "attention",
        "attention_window",
        Layer::Attention(AttentionKind::Window),
    ),
    layer(
        "attention",
        "attention_softcap",
        Layer::Attention(AttentionKind::Softcap),
    ),
    layer(
        "attention",
        "attention_not_causal",
        Layer::Attention(AttentionKind::NotCausal),
    ),
    layer(
        "attention",
        "attention_window_softcap",
        Layer::Attention(AttentionKind::WindowSoftcap),
    ),
    layer("attention", "attention_f16_cache", Layer::AttentionF16Cache),
    layer("attention", "attention_blocks", Layer::AttentionBlocks),
    layer("choose_blocks", "choose_blocks", Layer::ChooseBlocks),
    layer("short_conv", "short_conv", Layer::ShortConv),
    layer(
        "gated_delta",
        "gated_delta",
        Layer::GatedDelta { grouped: false },
    ),
    layer(
        "gated_delta",
        "gated_delta_grouped",
        Layer::GatedDelta { grouped: true },
    ),
    layer(
        "choose_experts",
        "choose_experts_softmax",
        Layer::ChooseExperts(Gating::Softmax),
    ),
    layer(
        "choose_experts",
        "choose_experts_sigmoid",
        Layer::ChooseExperts(Gating::Sigmoid),
    ),
    layer("expert_sum", "expert_sum", Layer::ExpertSum),
];

/// A name as people may write it: any case, `-` and spaces for `_`.
fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' '], "_")
}

/// The operations of these names, each an operation or a group of them; without names, all.
///
/// # Errors
/// A name of neither kind.
pub fn ops<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static Op>, MatrixError> {
    if names.is_empty() {
        return Ok(OPS.iter().collect());
    }
    let names: Vec<_> = names.iter().map(|name| plain(name.as_ref())).collect();
    let is = |op: &Op, name: &str| op.name == name || op.family == name;
    for name in &names {
        if !OPS.iter().any(|op| is(op, name)) {
            return Err(MatrixError::UnknownOp {
                name: name.clone(),
                valid: valid_ops(),
            });
        }
    }
    let named = OPS
        .iter()
        .filter(|op| names.iter().any(|name| is(op, name)));
    Ok(named.collect())
}

/// Groups and operations, each group before its members.
fn valid_ops() -> String {
    let mut valid: Vec<&str> = Vec::new();
    for op in OPS {
        for name in [op.family, op.name] {
            if !valid.contains(&name) {
                valid.push(name);
            }
        }
    }
    valid.join(", ")
}

/// The types of these names as ggml spells them (any case, `-` for `_`); without names, every type with operations.
///
/// # Errors
/// A name that is no ggml type's, or a type without operations.
pub fn types<S: AsRef<str>>(names: &[S]) -> Result<Vec<GgmlType>, MatrixError> {
    let mut valid = IMPLEMENTED.to_vec();
    valid.sort();
    if names.is_empty() {
        return Ok(valid);
    }
    let list = || {
        valid
            .iter()
            .map(|ty| ty.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut types = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        let wanted = plain(name);
        let mut all = GgmlType::ALL.iter().copied();
        let Some(ggml_type) = all.find(|ty| ty.name().to_lowercase() == wanted) else {
            return Err(MatrixError::UnknownType {
                name: name.trim().into(),
                valid: list(),
            });
        };
        if !valid.contains(&ggml_type) {
            return Err(MatrixError::TypeWithoutOperations {
                ggml_type,
                valid: list(),
            });
        }
        if !types.contains(&ggml_type) {
            types.push(ggml_type);
        }
    }
    Ok(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_operations_or_groups() {
        let names = |ops: &[&str]| {
            let ops = super::ops(ops).unwrap();
            ops.iter().map(|op| op.name).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&["linear"]),
            ["linear_exact", "linear_fast", "linear_f16_input"]
        );
        assert_eq!(
            names(&["Rope Norm", "gather-rows"]),
            ["gather_rows", "rope_norm"]
        );
        assert_eq!(names(&[]).len(), OPS.len());
        let error = super::ops(&["matmul"]).unwrap_err().to_string();
        assert!(
            error.contains("\"matmul\"") && error.contains("linear_fast"),
            "{error}"
        );
    }

    #[test]
    fn types_are_ggml_names() {
        assert_eq!(
            types(&["q4_k", "Q4-K", " q8_0"]).unwrap(),
            [GgmlType::Q4K, GgmlType::Q8_0]
        );
        assert!(matches!(
            types(&["q4"]),
            Err(MatrixError::UnknownType { name, valid }) if name == "q4" && valid.contains("Q4_K")
        ));
        assert!(matches!(
            types(&["q4_2"]),
            Err(MatrixError::TypeWithoutOperations {
                ggml_type: GgmlType::Q4_2,
                ..
            })
        ));
    }

    #[test]
    fn operations_have_names_of_their_own_and_types() {
        for (i, op) in OPS.iter().enumerate() {
            assert!(
                OPS[..i].iter().all(|other| other.name != op.name),
                "{}",
                op.name
            );
            assert!(IMPLEMENTED.iter().any(|&ty| op.takes(ty)), "{}", op.name);
        }
    }
}
