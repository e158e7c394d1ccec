//! Mixture of experts.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_gguf::Arithmetic;
use burn_gguf::device::on_device;
use burn_gguf::nn::{GgmlExperts, GgmlLinear, functional};
use burn_gguf::ops::GluActivation;

use super::GatedMlp;

/// How router logits become the shares of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// A sigmoid for each expert.
    Sigmoid,
}

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

/// Chosen experts and their shares, `[tokens, used]` each.
struct Routes {
    ids: Tensor<2, Int>,
    shares: Tensor<2>,
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
        let shared = self.shared.as_ref().map(|shared| {
            let y = shared.forward(x.clone());
            match &self.shared_gate {
                Some(gate) => y * burn::tensor::activation::sigmoid(gate.forward(x.clone())),
                None => y,
            }
        });
        // The experts may be elsewhere.
        let (home, there) = (x.device(), self.router.weight.device());
        let y = self.experts(on_device(x, &there), on_device(routed_by, &there));
        let y = on_device(y, &home);
        match shared {
            Some(shared) => y + shared,
            None => y,
        }
    }

    fn experts(&self, x: Tensor<3>, routed_by: Tensor<3>) -> Tensor<3> {
        let [batch, seq, hidden] = x.dims();
        let tokens = batch * seq;
        let (used, width) = (self.config.used, self.config.intermediate);
        let x = x.reshape([tokens, hidden]);
        let Routes { ids, shares } = self.route(routed_by.reshape([tokens, hidden]));
        let x = x.reshape([tokens, 1, hidden]);
        let (gate, up) = match (&self.gate_up, &self.gate, &self.up) {
            (Some(gate_up), ..) => {
                let both = gate_up.forward(x, ids.clone());
                let half =
                    |from: usize| both.clone().slice([0..tokens, 0..used, from..from + width]);
                (half(0), half(width))
            }
            (None, Some(gate), Some(up)) => {
                let [gate, up] = GgmlExperts::forward_pair([gate, up], x, ids.clone());
                (gate, up)
            }
            _ => unreachable!("a layer has gate and up, together or apart"),
        };
        let h = functional::glu(gate, up, self.config.activation);
        let y = self.down.forward(h, ids) * shares.reshape([tokens, used, 1]);
        // A sum over few slots by slices: devices differ in the reductions they can do.
        let slot = |i: usize| y.clone().slice([0..tokens, i..i + 1, 0..hidden]);
        let sum = (1..used).fold(slot(0), |sum, i| sum + slot(i));
        sum.reshape([batch, seq, hidden])
    }

    /// Chooses on the host: a router's logits are few, and ties then fall the same way on every device.
    fn route(&self, x: Tensor<2>) -> Routes {
        let [tokens, _] = x.dims();
        let device = x.device();
        let (experts, used) = (self.config.experts, self.config.used);
        let host = |data: TensorData| {
            data.convert::<f32>()
                .try_into_vec::<f32>()
                .expect("converted to f32 just now")
        };
        let logits = host(self.router.forward(x).into_data());
        let bias = self
            .choice_bias
            .as_ref()
            .map(|bias| host(bias.val().into_data()));
        let mut ids = Vec::with_capacity(tokens * used);
        let mut shares = Vec::with_capacity(tokens * used);
        for row in logits.chunks_exact(experts) {
            let (chosen, share) = self.choose(row, bias.as_deref());
            ids.extend(chosen.iter().map(|&e| e as i32));
            shares.extend(share);
        }
        let ids = TensorData::new(ids, [tokens, used]);
        Routes {
            ids: Tensor::from_data(ids, (&device, DType::I32)),
            shares: Tensor::from_data(TensorData::new(shares, [tokens, used]), &device),
        }
    }

    /// The experts of one token, best first, and their shares.
    fn choose(&self, logits: &[f32], bias: Option<&[f32]>) -> (Vec<usize>, Vec<f32>) {
        let shares: Vec<f32> = match self.config.gating {
            Gating::Sigmoid => logits.iter().map(|&v| 1.0 / (1.0 + (-v).exp())).collect(),
            Gating::Softmax => {
                let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let exp: Vec<f32> = logits.iter().map(|&v| (v - max).exp()).collect();
                let sum: f32 = exp.iter().sum();
                exp.iter().map(|v| v / sum).collect()
            }
        };
        let score = |e: usize| shares[e] + bias.map_or(0.0, |bias| bias[e]);
        let mut order: Vec<usize> = (0..shares.len()).collect();
        let better = |&a: &usize, &b: &usize| score(b).total_cmp(&score(a)).then(a.cmp(&b));
        let used = self.config.used.min(order.len());
        if used < order.len() {
            order.select_nth_unstable_by(used - 1, better);
            order.truncate(used);
        }
        order.sort_unstable_by(better);
        let mut chosen: Vec<f32> = order.iter().map(|&e| shares[e]).collect();
        if self.config.normalize {
            // The bound of llama.cpp; the original models add 1e-20.
            let sum = chosen.iter().sum::<f32>().max(6.103_515_6e-5);
            chosen.iter_mut().for_each(|share| *share /= sum);
        }
        chosen
            .iter_mut()
            .for_each(|share| *share *= self.config.scale);
        (order, chosen)
    }
}
