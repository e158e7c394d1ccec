//! Configuration from metadata.

use burn_gguf::gguf::Gguf;
use burn_gguf::ops::RopeStyle;

use crate::decoder::{DecoderConfig, MetadataReader};
use crate::error::ModelError;
use crate::layers::{AttentionGate, QkNorm, RopeConfig};

/// Epsilon of the norms behind attention and MLP, which no key holds.
const POST_NORM_EPS: f32 = 1e-8;
/// llama.cpp's value where the key is absent.
const DEFAULT_SOFTCAP: f64 = 30.0;

/// `muse-glimmer`: gated attention, sliding layers that rotate and full ones that know no positions, norms around each part,
/// scaled and capped logits.
///
/// # Errors
/// A missing or contradictory key.
pub fn config(gguf: &Gguf) -> Result<DecoderConfig, ModelError> {
    let keys = MetadataReader::new(gguf.metadata(), "muse-glimmer");
    let read = DecoderConfig::read(gguf, "muse-glimmer")?;
    gguf.require("output.weight")?;
    let layers = read.layers();
    let window: usize = keys.get("attention.sliding_window")?;
    if window == 0 {
        let reason = "the window must be at least 1";
        return Err(keys.invalid("attention.sliding_window", window, reason));
    }
    let sliding = keys.sliding_layers(layers, 4)?;
    let base = keys.positive("rope.freq_base", Some(10_000.0))?;
    let base = keys.positive("rope.freq_base_swa", Some(base))?;
    Ok(DecoderConfig {
        rope_sliding: RopeConfig::new(read.rope.n_rot, base, RopeStyle::Norm),
        windows: sliding
            .into_iter()
            .map(|sliding| sliding.then_some(window))
            .collect(),
        qk_norm: QkNorm::Head,
        attention_gate: AttentionGate::Apart,
        post_norms: Some(POST_NORM_EPS),
        nope_full: true,
        input_norm: Some(read.eps),
        logit_scale: Some(keys.positive("logit_scale", None)? as f32),
        logit_softcap: Some(
            keys.positive("final_logit_softcapping", Some(DEFAULT_SOFTCAP))? as f32,
        ),
        ..read
    })
}
