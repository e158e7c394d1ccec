//! The text model as a burn module.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_gguf::Arithmetic;
use burn_gguf::device::on_device;
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear, count_weights};

use super::layer::Pass;
use super::{Gemma4Config, Gemma4Layer, PerLayerEmbeddings};
use crate::layers::{KvCache, RmsNorm, Rope, RopeTables};
use crate::model::{LogitsOf, ModelInput, TextModel};
use crate::placement::Placement;

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
    /// A model over one or several devices, to be loaded from a file.
    pub fn placed(config: &Gemma4Config, arithmetic: Arithmetic, placement: &Placement) -> Self {
        let layers = config.layers.iter().enumerate();
        let device = placement.first();
        Self {
            embedding: GgmlEmbedding::uninitialized(config.vocab_size, config.hidden, device),
            per_layer: config
                .per_layer
                .map(|width| PerLayerEmbeddings::uninitialized(config, width, arithmetic, device)),
            layers: layers
                .map(|(i, layer)| {
                    let (device, experts) = (placement.layer(i), placement.experts(i));
                    Gemma4Layer::uninitialized(layer, arithmetic, device, experts)
                })
                .collect(),
            output_norm: RmsNorm::new(config.hidden, config.eps, placement.last()),
            output: (!config.tied_output).then(|| {
                let (hidden, vocab) = (config.hidden, config.vocab_size);
                GgmlLinear::uninitialized(hidden, vocab, false, placement.last())
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
            None => {
                let x = on_device(x, &self.embedding.device());
                self.embedding.as_linear(x, self.arithmetic)
            }
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
        count_weights(self)
    }

    fn device(&self) -> Device {
        self.embedding.device()
    }

    fn hidden_size(&self) -> usize {
        self.config.hidden
    }

    fn forgets(&self) -> bool {
        let mut layers = self.config.layers.iter();
        layers.any(|layer| layer.attention.window.is_some())
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
        let mut ropes = RopeTables::new(self.ropes.each_ref(), &positions);
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
            x = on_device(x, &layer.device());
            let embedded = embedded.clone().map(|all| {
                let width = all.dims()[3];
                let own = all.slice([0..batch, 0..seq, i..i + 1, 0..width]);
                on_device(own.reshape([batch, seq, width]), &x.device())
            });
            let [full, sliding] = ropes.on(&x.device());
            let rope = if slides { sliding } else { full };
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
