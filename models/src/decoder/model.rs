//! The dense decoder as a burn module.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::device::on_device;
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear, count_weights, functional};

use super::DecoderConfig;
use crate::layers::{
    AttentionConfig, DecoderLayer, DecoderLayerConfig, DeltaNetConfig, KvCache, KvSource,
    MoeConfig, RmsNorm, Rope, RopeTables,
};
use crate::model::{ImagePositions, LogitsOf, ModelInput, TextModel};
use crate::placement::Placement;

/// Token embedding, layers, a final norm and the output head.
#[derive(Module, Debug)]
pub struct DenseDecoder {
    /// The token embedding.
    pub embedding: GgmlEmbedding,
    /// The layers.
    pub layers: Vec<DecoderLayer>,
    /// The norm before the head.
    pub output_norm: RmsNorm,
    /// The head; `None` where it shares the embedding's blocks.
    pub output: Option<GgmlLinear>,
    #[module(skip)]
    config: DecoderConfig,
    #[module(skip)]
    ropes: [Rope; 2],
    #[module(skip)]
    arithmetic: Arithmetic,
}

impl DenseDecoder {
    /// A model to be loaded from a file.
    pub fn uninitialized(config: &DecoderConfig, arithmetic: Arithmetic, device: &Device) -> Self {
        Self::placed(config, arithmetic, &Placement::one(config.layers(), device))
    }

    /// A model over several devices, to be loaded from a file.
    pub fn placed(config: &DecoderConfig, arithmetic: Arithmetic, placement: &Placement) -> Self {
        let layer = |i: usize| {
            let behind_lead = i >= config.dense_lead;
            let attention = AttentionConfig {
                hidden: config.hidden,
                heads: config.heads[i],
                kv_heads: config.kv_heads[i],
                head_dim: config.head_dim,
                scale: config.attention_scale,
                window: config.windows[i],
                qkv_bias: config.qkv_bias,
                kv: KvSource::Apart,
                qk_norm: config.qk_norm,
                v_norm: false,
                gate: config.attention_gate,
                indexer: config.indexer.clone().filter(|_| behind_lead),
                eps: config.eps,
                arithmetic,
            };
            let layer = DecoderLayerConfig {
                attention,
                delta_net: (config.delta_net.clone())
                    .filter(|_| config.recurrent.get(i) == Some(&true))
                    .map(|(net, joined)| (DeltaNetConfig { arithmetic, ..net }, joined)),
                intermediate: config.intermediate[i],
                moe: config
                    .moe
                    .clone()
                    .filter(|_| behind_lead)
                    .map(|moe| MoeConfig { arithmetic, ..moe }),
                activation: config.activation,
                post_norms: config.post_norms,
                eps: config.eps,
            };
            DecoderLayer::uninitialized(&layer, placement.layer(i), placement.experts(i))
        };
        let device = placement.last();
        let output = (!config.tied_output).then(|| {
            GgmlLinear::uninitialized(config.hidden, config.vocab_size, false, device)
                .with_arithmetic(arithmetic)
        });
        Self {
            embedding: GgmlEmbedding::uninitialized(
                config.vocab_size,
                config.hidden,
                placement.first(),
            ),
            layers: (0..config.layers()).map(layer).collect(),
            output_norm: RmsNorm::new(config.hidden, config.eps, device),
            output,
            ropes: [Rope::new(&config.rope), Rope::new(&config.rope_sliding)],
            config: config.clone(),
            arithmetic,
        }
    }

    /// The configuration.
    pub fn decoder_config(&self) -> &DecoderConfig {
        &self.config
    }

    fn head(&self, x: Tensor<3>) -> Tensor<3> {
        let logits = match &self.output {
            Some(output) => output.forward(x),
            None => {
                let x = on_device(x, &self.embedding.device());
                self.embedding.as_linear(x, self.arithmetic)
            }
        };
        let logits = match self.config.logit_scale {
            Some(scale) => logits * scale,
            None => logits,
        };
        match self.config.logit_softcap {
            Some(cap) => (logits / cap).tanh() * cap,
            None => logits,
        }
    }
}

impl TextModel for DenseDecoder {
    fn architecture(&self) -> &str {
        &self.config.architecture
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context_length(&self) -> usize {
        self.config.context_length
    }

    fn cache_layers(&self) -> usize {
        self.layers.len()
    }

    fn parameters(&self) -> usize {
        count_weights(self)
    }

    fn device(&self) -> Device {
        self.embedding.device()
    }

    fn hidden_size(&self) -> usize {
        self.config.hidden
    }

    fn forgets(&self) -> bool {
        let windows = self.config.windows.iter().any(Option::is_some);
        windows || self.config.recurrent.contains(&true)
    }

    fn image_width(&self) -> usize {
        self.config.hidden * (1 + self.config.deepstack)
    }

    fn image_positions(&self) -> ImagePositions {
        match self.config.rope.sections {
            Some(_) => ImagePositions::Grid,
            None => ImagePositions::Sequential,
        }
    }

    fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let x = self.embedding.forward(tokens);
        match self.config.embedding_scale {
            Some(scale) => x * scale,
            None => x,
        }
    }

    fn forward_input(&self, input: ModelInput, cache: &mut KvCache, logits: LogitsOf) -> Tensor<3> {
        let ModelInput {
            embeddings: mut x,
            deepstack,
            positions,
            ..
        } = input;
        let [batch, seq, hidden] = x.dims();
        let start = cache.len();
        let limits = cache.limits();
        let mut ropes = RopeTables::new(self.ropes.each_ref(), &positions);
        if let Some(eps) = self.config.input_norm {
            let ones = Tensor::ones([hidden], &x.device());
            x = functional::rms_norm(x, ones, eps);
        }
        let mut deepstack = deepstack.into_iter();
        for ((layer, layer_cache), window) in self
            .layers
            .iter()
            .zip(cache.layers_mut())
            .zip(&self.config.windows)
        {
            x = on_device(x, &layer.device());
            let [full, sliding] = ropes.on(&x.device());
            let rope = match window {
                Some(_) => Some(sliding),
                None => (!self.config.nope_full).then_some(full),
            };
            x = layer.forward(x, rope, layer_cache, start, limits);
            if let Some(image) = deepstack.next() {
                x = x + on_device(image, &layer.device());
            }
        }
        cache.advance(&positions);
        let x = match logits {
            LogitsOf::All => x,
            // The head is the largest product of a small model: only the wanted row goes through it.
            LogitsOf::Last => x.slice([0..batch, seq - 1..seq, 0..hidden]),
        };
        self.head(self.output_norm.forward(x))
    }
}
