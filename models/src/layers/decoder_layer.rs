//! One transformer layer: attention and a gated MLP, or experts, around a residual stream.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_gguf::ops::GluActivation;

use super::{
    Attention, AttentionConfig, CacheLimits, DeltaNetConfig, GatedDeltaNet, GatedMlp, LayerCache,
    Moe, MoeConfig, RmsNorm, RopeTable,
};

/// Shape and options of a [`DecoderLayer`].
#[derive(Clone, Debug)]
pub struct DecoderLayerConfig {
    /// The attention.
    pub attention: AttentionConfig,
    /// A delta net in its place, and whether the file joins its strength and decay.
    pub delta_net: Option<(DeltaNetConfig, bool)>,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Experts in place of the MLP.
    pub moe: Option<MoeConfig>,
    /// The MLP's activation.
    pub activation: GluActivation,
    /// Epsilon of the norms of attention's and the MLP's outputs, where there are such (Gemma).
    pub post_norms: Option<f32>,
    /// Epsilon of the norms.
    pub eps: f32,
}

/// `x += post(attention(norm(x)))`, then `x += post(mlp(norm(x)))`.
#[derive(Module, Debug)]
pub struct DecoderLayer {
    /// Norm before attention.
    pub attention_norm: RmsNorm,
    /// Attention.
    pub attention: Option<Attention>,
    /// A delta net in its place.
    pub delta_net: Option<GatedDeltaNet>,
    /// Norm after attention, before the residual add.
    pub post_attention_norm: Option<RmsNorm>,
    /// Norm before the MLP.
    pub mlp_norm: RmsNorm,
    /// The MLP.
    pub mlp: Option<GatedMlp>,
    /// Experts in its place.
    pub moe: Option<Moe>,
    /// Norm after the MLP, before the residual add.
    pub post_mlp_norm: Option<RmsNorm>,
}

impl DecoderLayer {
    /// A layer to be loaded from a file; its experts may have a device of their own.
    pub fn uninitialized(
        config: &DecoderLayerConfig,
        device: &Device,
        experts_device: &Device,
    ) -> Self {
        let hidden = config.attention.hidden;
        let norm = || RmsNorm::new(hidden, config.eps, device);
        let post = || (config.post_norms).map(|eps| RmsNorm::new(hidden, eps, device));
        Self {
            attention_norm: norm(),
            attention: config
                .delta_net
                .is_none()
                .then(|| Attention::uninitialized(&config.attention, device)),
            delta_net: config
                .delta_net
                .as_ref()
                .map(|(net, joined)| GatedDeltaNet::uninitialized(net, *joined, device)),
            post_attention_norm: post(),
            mlp_norm: norm(),
            mlp: config.moe.is_none().then(|| {
                GatedMlp::uninitialized(
                    hidden,
                    config.intermediate,
                    config.activation,
                    config.attention.arithmetic,
                    device,
                )
            }),
            moe: (config.moe.as_ref()).map(|moe| Moe::uninitialized(moe, device, experts_device)),
            post_mlp_norm: post(),
        }
    }

    /// Where the layer is, its experts aside.
    pub fn device(&self) -> Device {
        self.attention_norm.weight.lazy_device()
    }

    /// `[batch, seq, hidden] -> [batch, seq, hidden]`.
    pub fn forward(
        &self,
        x: Tensor<3>,
        rope: Option<&RopeTable>,
        cache: &mut LayerCache,
        position: usize,
        limits: CacheLimits,
    ) -> Tensor<3> {
        let post = |norm: &Option<RmsNorm>, t: Tensor<3>| match norm {
            Some(norm) => norm.forward(t),
            None => t,
        };
        let h = self.attention_norm.forward(x.clone());
        let h = match (&self.attention, &self.delta_net) {
            (Some(attention), _) => attention.forward(h, rope, cache, position, limits),
            (None, Some(net)) => net.forward(h, cache),
            (None, None) => unreachable!("a layer has attention or a delta net"),
        };
        let x = x + post(&self.post_attention_norm, h);
        let h = self.mlp_norm.forward(x.clone());
        let h = match (&self.mlp, &self.moe) {
            (Some(mlp), _) => mlp.forward(h),
            (None, Some(moe)) => moe.forward(h),
            (None, None) => unreachable!("a layer has an MLP or experts"),
        };
        x + post(&self.post_mlp_norm, h)
    }
}
