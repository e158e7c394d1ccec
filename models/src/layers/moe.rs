//! Mixture of experts.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::device::on_device;
use burn_gguf::nn::{GgmlExperts, GgmlLinear, functional};
pub use burn_gguf::ops::Gating;
use burn_gguf::ops::{ChoiceParams, GluActivation};

use super::GatedMlp;

/// Below this the sum of the chosen shares is not divided by. The bound of llama.cpp; the original models add 1e-20.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// Shape and options of a [`Moe`].
#[derive(Clone, Debug, PartialEq)]
pub struct MoeConfig {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Experts.
    pub experts: usize,
    /// Experts a token uses.
    pub used: usize,
    /// Width of an expert.
    pub intermediate: usize,
    /// How router logits become shares.
    pub gating: Gating,
    /// Whether the shares of the chosen experts are made to add up to 1.
    pub normalize: bool,
    /// Factor on the shares.
    pub scale: f32,
    /// Whether the choice has a bias, which does not enter the shares.
    pub choice_bias: bool,
    /// Width of an MLP that every token goes through beside its experts.
    pub shared: Option<usize>,
    /// Whether that has a gate, a sigmoid of a projection of the input.
    pub shared_gate: bool,
    /// Whether the file has gate and up in one stack.
    pub fused_gate_up: bool,
    /// The experts' activation.
    pub activation: GluActivation,
    /// How products are computed.
    pub arithmetic: Arithmetic,
}

/// Each token goes through the few experts its router chooses, `sum_e share_e * down_e(activation(gate_e x) * up_e x)`, and
/// in some models through an MLP that all share.
#[derive(Module, Debug)]
pub struct Moe {
    /// `[hidden] -> [experts]`.
    pub router: GgmlLinear,
    /// Added to the shares for the choice alone, `[experts]`.
    pub choice_bias: Option<Param<Tensor<1>>>,
    /// `[hidden] -> [intermediate]`.
    pub gate: Option<GgmlExperts>,
    /// `[hidden] -> [intermediate]`.
    pub up: Option<GgmlExperts>,
    /// Gate and up in one, `[hidden] -> [2 * intermediate]`.
    pub gate_up: Option<GgmlExperts>,
    /// `[intermediate] -> [hidden]`.
    pub down: GgmlExperts,
    /// The MLP of every token.
    pub shared: Option<GatedMlp>,
    /// Its gate, `[hidden] -> [1]`.
    pub shared_gate: Option<GgmlLinear>,
    #[module(skip)]
    config: MoeConfig,
}

impl Moe {
    /// A layer to be loaded from a file; router and experts are on `experts_device`, what all tokens share is on `device`.
    pub fn uninitialized(config: &MoeConfig, device: &Device, experts_device: &Device) -> Self {
        let experts = |input, output| {
            GgmlExperts::uninitialized(config.experts, input, output, experts_device)
                .with_arithmetic(config.arithmetic)
        };
        let apart = || (!config.fused_gate_up).then(|| experts(config.hidden, config.intermediate));
        Self {
            router: GgmlLinear::uninitialized(config.hidden, config.experts, false, experts_device)
                // The choice is a comparison: rounding would make it another one.
                .with_arithmetic(Arithmetic::Exact),
            choice_bias: config
                .choice_bias
                .then(|| Param::from_tensor(Tensor::zeros([config.experts], experts_device))),
            gate: apart(),
            up: apart(),
            gate_up: config
                .fused_gate_up
                .then(|| experts(config.hidden, 2 * config.intermediate)),
            down: experts(config.intermediate, config.hidden),
            shared: config.shared.map(|width| {
                let (hidden, activation) = (config.hidden, config.activation);
                GatedMlp::uninitialized(hidden, width, activation, config.arithmetic, device)
            }),
            shared_gate: (config.shared.is_some() && config.shared_gate).then(|| {
                GgmlLinear::uninitialized(config.hidden, 1, false, device)
                    .with_arithmetic(Arithmetic::Exact)
            }),
            config: config.clone(),
        }
    }

    /// `[batch, seq, hidden] -> [batch, seq, hidden]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.forward_routed(x.clone(), x)
    }

    /// As [`forward`](Self::forward), where the router reads something else than the experts.
    pub fn forward_routed(&self, x: Tensor<3>, routed_by: Tensor<3>) -> Tensor<3> {
        let [batch, seq, hidden] = x.dims();
        let tokens = batch * seq;
        // The experts may be elsewhere.
        let (home, there) = (x.device(), self.router.weight.device());
        let flat = x.clone().reshape([tokens, hidden]);
        let (y, shares) = self.experts(
            on_device(flat.clone(), &there),
            on_device(routed_by.reshape([tokens, hidden]), &there),
        );
        let shared = self.shared.as_ref().map(|shared| {
            let y = shared.forward(x).reshape([tokens, hidden]);
            let gate = self.shared_gate.as_ref().map(|gate| gate.forward(flat));
            (y, gate)
        });
        let sum = match shared {
            Some((y_shared, Some(gate))) => {
                let shared = (on_device(y_shared, &there), on_device(gate, &there));
                on_device(functional::expert_sum(y, shares, Some(shared)), &home)
            }
            Some((y_shared, None)) => {
                on_device(functional::expert_sum(y, shares, None), &home) + y_shared
            }
            None => on_device(functional::expert_sum(y, shares, None), &home),
        };
        sum.reshape([batch, seq, hidden])
    }

    /// What the chosen experts say of `x` `[tokens, hidden]`, `[tokens, used, hidden]`, and their shares `[tokens, used]`.
    fn experts(&self, x: Tensor<2>, routed_by: Tensor<2>) -> (Tensor<3>, Tensor<2>) {
        let [tokens, hidden] = x.dims();
        let choice = ChoiceParams {
            used: self.config.used,
            gating: self.config.gating,
            normalize: self.config.normalize,
            least_sum: LEAST_SUM,
            scale: self.config.scale,
        };
        let bias = self.choice_bias.as_ref().map(|bias| bias.val());
        let logits = self.router.forward(routed_by);
        let (ids, shares) = functional::choose_experts(logits, bias, choice);
        let (used, width) = (self.config.used, self.config.intermediate);
        let rows = x.reshape([tokens, 1, hidden]);
        let (gate, up) = match (&self.gate_up, &self.gate, &self.up) {
            (Some(gate_up), ..) => {
                let both = gate_up.forward(rows, ids.clone());
                let half =
                    |from: usize| both.clone().slice([0..tokens, 0..used, from..from + width]);
                (half(0), half(width))
            }
            (None, Some(gate), Some(up)) => {
                let [gate, up] = GgmlExperts::forward_pair([gate, up], rows, ids.clone());
                (gate, up)
            }
            _ => unreachable!("a layer has gate and up, together or apart"),
        };
        let h = functional::glu(gate, up, self.config.activation);
        (self.down.forward(h, ids), shares)
    }
}
