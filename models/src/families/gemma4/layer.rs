//! One layer of Gemma 4.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::ops::GluActivation;

use super::{Gemma4LayerConfig, PerLayerInput};
use crate::layers::{
    Attention, AttentionConfig, CacheLimits, GatedMlp, LayerCache, Moe, MoeConfig, RmsNorm,
    RopeTable,
};

/// Norms around the experts that stand beside the MLP.
#[derive(Module, Debug)]
pub struct ExpertNorms {
    /// Of the router's input, its output then divided by `sqrt(hidden)`.
    pub router: RmsNorm,
    /// Of the experts' input.
    pub input: RmsNorm,
    /// Of the MLP's output.
    pub mlp: RmsNorm,
    /// Of the experts' output.
    pub output: RmsNorm,
}

/// `x += norm(attention(norm(x)))`, then `x += norm(mlp(norm(x)))` with experts beside the MLP, then what the layer's own
/// token embedding adds, all times a factor.
#[derive(Module, Debug)]
pub struct Gemma4Layer {
    /// Norm before attention.
    pub attention_norm: RmsNorm,
    /// Attention.
    pub attention: Attention,
    /// Norm after attention, before the residual add.
    pub post_attention_norm: RmsNorm,
    /// Norm before the MLP.
    pub mlp_norm: RmsNorm,
    /// The MLP of every token.
    pub mlp: GatedMlp,
    /// Experts beside it.
    pub moe: Option<Moe>,
    /// Their norms.
    pub expert_norms: Option<ExpertNorms>,
    /// Norm after MLP and experts, before the residual add.
    pub post_mlp_norm: RmsNorm,
    /// What the layer's own token embedding adds.
    pub per_layer: Option<PerLayerInput>,
    /// Factor on the output, `[1]`.
    pub output_scale: Option<Param<Tensor<1>>>,
}

/// What all layers of a forward pass share.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    /// Rows of the cache before this pass.
    pub position: usize,
    pub limits: CacheLimits,
    /// Whether sliding-window layers see only earlier rows.
    pub causal: bool,
}

impl Gemma4Layer {
    /// A layer to be loaded from a file; its experts may have a device of their own.
    pub fn uninitialized(
        config: &Gemma4LayerConfig,
        arithmetic: Arithmetic,
        device: &Device,
        experts_device: &Device,
    ) -> Self {
        let (hidden, eps) = (config.attention.hidden, config.attention.eps);
        let norm = || RmsNorm::new(hidden, eps, device);
        let attention = AttentionConfig {
            arithmetic,
            ..config.attention.clone()
        };
        let activation = GluActivation::GeluTanh;
        Self {
            attention_norm: norm(),
            attention: Attention::uninitialized(&attention, device),
            post_attention_norm: norm(),
            mlp_norm: norm(),
            mlp: GatedMlp::uninitialized(
                hidden,
                config.intermediate,
                activation,
                arithmetic,
                device,
            ),
            moe: config.moe.clone().map(|moe| {
                let moe = MoeConfig { arithmetic, ..moe };
                Moe::uninitialized(&moe, device, experts_device)
            }),
            expert_norms: config.moe.is_some().then(|| ExpertNorms {
                router: norm(),
                input: norm(),
                mlp: norm(),
                output: norm(),
            }),
            post_mlp_norm: norm(),
            per_layer: config
                .per_layer
                .map(|width| PerLayerInput::uninitialized(hidden, width, eps, arithmetic, device)),
            output_scale: config
                .output_scale
                .then(|| Param::from_tensor(Tensor::ones([1], device))),
        }
    }

    /// Where the layer is, its experts aside.
    pub fn device(&self) -> Device {
        self.attention_norm.weight.lazy_device()
    }

    /// `[batch, seq, hidden] -> [batch, seq, hidden]`; `cache` is that of the layer whose keys are read, `embedded` the
    /// layer's own token embedding, `[batch, seq, width]`.
    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        rope: &RopeTable,
        cache: &mut LayerCache,
        pass: Pass,
        embedded: Option<Tensor<3>>,
    ) -> Tensor<3> {
        let h = self.attention_norm.forward(x.clone());
        let Pass {
            position,
            limits,
            causal,
        } = pass;
        let h = self
            .attention
            .forward_seeing(h, Some(rope), cache, position, limits, causal);
        let x = x + self.post_attention_norm.forward(h);
        let x = x.clone() + self.post_mlp_norm.forward(self.feed_forward(x));
        let x = match (&self.per_layer, embedded) {
            (Some(per_layer), Some(embedded)) => per_layer.forward(x, embedded),
            _ => x,
        };
        match &self.output_scale {
            Some(scale) => x * scale.val().reshape([1, 1, 1]),
            None => x,
        }
    }

    /// The MLP, and the experts beside it.
    fn feed_forward(&self, x: Tensor<3>) -> Tensor<3> {
        let h = self.mlp.forward(self.mlp_norm.forward(x.clone()));
        let (Some(moe), Some(norms)) = (&self.moe, &self.expert_norms) else {
            return h;
        };
        let [_, _, hidden] = x.dims();
        let routed_by = norms.router.forward(x.clone()) * (hidden as f32).sqrt().recip();
        let experts = moe.forward_routed(norms.input.forward(x), routed_by);
        norms.mlp.forward(h) + norms.output.forward(experts)
    }
}
