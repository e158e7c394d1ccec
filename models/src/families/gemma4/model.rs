//! The text model as a burn module.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear};

use super::layer::Pass;
use super::{Gemma4Config, Gemma4Layer, PerLayerEmbeddings};
use crate::layers::{KvCache, RmsNorm, Rope, RopeTable};
use crate::model::{LogitsOf, ModelInput, TextModel};

/// Token embedding, layers, a final norm and the output head.
#[derive(Module, Debug)]
pub struct Gemma4Decoder {
    /// The token embedding.
    pub embedding: GgmlEmbedding,
    /// Embeddings of the layers' own.
    pub per_layer: Option<PerLayerEmbeddings>,
    /// The layers.
    pub layers: Vec<Gemma4Layer>,
    /// The norm before the head.
    pub output_norm: RmsNorm,
    /// The head; `None` where it shares the embedding's blocks.
    pub output: Option<GgmlLinear>,
    #[module(skip)]
    config: Gemma4Config,
    #[module(skip)]
    ropes: [Rope; 2],
    #[module(skip)]
    arithmetic: Arithmetic,
}

impl Gemma4Decoder {
    /// A model to be loaded from a file.
    pub fn uninitialized(config: &Gemma4Config, arithmetic: Arithmetic, device: &Device) -> Self {
        let layers = config.layers.iter();
        Self {
            embedding: GgmlEmbedding::uninitialized(config.vocab_size, config.hidden, device),
            per_layer: config
                .per_layer
                .map(|width| PerLayerEmbeddings::uninitialized(config, width, arithmetic, device)),
            layers: layers
                .map(|layer| Gemma4Layer::uninitialized(layer, arithmetic, device))
                .collect(),
            output_norm: RmsNorm::new(config.hidden, config.eps, device),
            output: (!config.tied_output).then(|| {
                GgmlLinear::uninitialized(config.hidden, config.vocab_size, false, device)
                    .with_arithmetic(arithmetic)
            }),
            ropes: [Rope::new(&config.rope), Rope::new(&config.rope_sliding)],
            config: config.clone(),
            arithmetic,
        }
    }

    /// The configuration.
    pub fn decoder_config(&self) -> &Gemma4Config {
        &self.config
    }

    fn head(&self, x: Tensor<3>) -> Tensor<3> {
        let logits = match &self.output {
            Some(output) => output.forward(x),
            None => self.embedding.as_linear(x, self.arithmetic),
        };
        match self.config.logit_softcap {
            Some(cap) => (logits / cap).tanh() * cap,
            None => logits,
        }
    }

    /// What the layers read of the tokens, `[batch, seq, layers, width]`.
    fn embedded_per_layer(
        &self,
        tokens: Option<Tensor<2, Int>>,
        x: &Tensor<3>,
    ) -> Option<Tensor<4>> {
        let per_layer = self.per_layer.as_ref()?;
        let [batch, seq, _] = x.dims();
        // Rows that are no tokens count as the padding token.
        let tokens = tokens.unwrap_or_else(|| Tensor::zeros([batch, seq], &x.device()));
        Some(per_layer.forward(tokens, x.clone()))
    }
}

impl TextModel for Gemma4Decoder {
    fn architecture(&self) -> &str {
        "gemma4"
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
        self.num_params()
    }

    fn device(&self) -> Device {
        self.output_norm.weight.lazy_device()
    }

    fn hidden_size(&self) -> usize {
        self.config.hidden
    }

    fn reads_images_whole(&self) -> bool {
        self.config.bidirectional_images
    }

    fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.embedding.forward(tokens) * (self.config.hidden as f32).sqrt()
    }

    fn forward_input(&self, input: ModelInput, cache: &mut KvCache, logits: LogitsOf) -> Tensor<3> {
        let ModelInput {
            embeddings: mut x,
            positions,
            tokens,
            whole_image,
            ..
        } = input;
        let [batch, seq, hidden] = x.dims();
        let device = x.device();
        let [full, sliding]: [RopeTable; 2] = self
            .ropes
            .each_ref()
            .map(|rope| rope.table(&positions, &device));
        let embedded = self.embedded_per_layer(tokens, &x);
        let (position, limits) = (cache.len(), cache.limits());
        let caches = cache.layers_mut();
        for (i, (layer, config)) in self.layers.iter().zip(&self.config.layers).enumerate() {
            let slides = config.attention.window.is_some();
            let pass = Pass {
                position,
                limits,
                causal: !(slides && whole_image && self.config.bidirectional_images),
            };
            let embedded = embedded.clone().map(|all| {
                let width = all.dims()[3];
                all.slice([0..batch, 0..seq, i..i + 1, 0..width])
                    .reshape([batch, seq, width])
            });
            let rope = if slides { &sliding } else { &full };
            x = layer.forward(x, rope, &mut caches[config.cache], pass, embedded);
        }
        cache.advance(&positions);
        let x = match logits {
            LogitsOf::All => x,
            LogitsOf::Last => x.slice([0..batch, seq - 1..seq, 0..hidden]),
        };
        self.head(self.output_norm.forward(x))
    }
}
