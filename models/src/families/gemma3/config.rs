//! Configuration from metadata.

use burn_gguf::gguf::Gguf;
use burn_gguf::ops::GluActivation;

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::layers::{QkNorm, RopeConfig};

/// Layers of the 27B model, the one that scales attention by `hidden / heads` rather than the head width.
const LAYERS_27B: usize = 62;

/// `gemma3`: sandwich norms, GeGLU, sliding-window layers with their own rotary base, scaled embeddings.
///
/// # Errors
/// A missing or contradictory key.
pub fn config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), "gemma3");
    let read = DecoderConfig::read(gguf, "gemma3")?;
    let layers = read.layers();
    let window: usize = keys.get_or("attention.sliding_window", 0)?;
    let sliding = keys.sliding_layers(layers, 6)?;
    let scale_width = if layers == LAYERS_27B {
        read.hidden / read.heads[0]
    } else {
        read.head_dim
    };
    let cap: f32 = keys.get_or("final_logit_softcapping", 0.0)?;
    Ok(DecoderConfig {
        // Scaling of positions applies to full-attention layers only.
        rope_sliding: RopeConfig::new(
            read.rope.n_rot,
            keys.positive("rope.freq_base_swa", Some(10_000.0))?,
            read.rope.style,
        ),
        windows: sliding
            .into_iter()
            .map(|sliding| (sliding && window > 0).then_some(window))
            .collect(),
        attention_scale: 1.0 / (scale_width as f32).sqrt(),
        embedding_scale: Some((read.hidden as f32).sqrt()),
        activation: GluActivation::GeluTanh,
        qk_norm: QkNorm::Head,
        post_norms: Some(read.eps),
        logit_softcap: (cap > 0.0).then_some(cap),
        ..read
    })
}
