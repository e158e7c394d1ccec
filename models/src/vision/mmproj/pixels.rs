//! What a file says about preparing images.

use super::super::processor::{ConfigError, ProcessorConfig, ProcessorKind, ProcessorStyle};
use super::keys::Keys;
use super::{ClipConfig, MmprojError};

impl ClipConfig {
    /// The image processor's settings: the family's, with what the file says in their place.
    pub(super) fn processor(
        &self,
        kind: ProcessorKind,
        style: ProcessorStyle,
    ) -> Result<ProcessorConfig, ConfigError> {
        let mut config = ProcessorConfig::new(kind, style);
        let token = config.token_pixels();
        config.patch_size = self.patch_size as u32;
        config.merge_size = self.merge_size as u32;
        config.image_mean = self.image_mean;
        config.image_std = self.image_std;
        // The bounds are numbers of tokens, but for those two, whose processors count pixels.
        if style == ProcessorStyle::LlamaCpp
            || !matches!(kind, ProcessorKind::Qwen3Vl | ProcessorKind::Glm4V)
        {
            config.min_pixels = config.min_pixels / token * config.token_pixels();
            config.max_pixels = config.max_pixels / token * config.token_pixels();
        }
        config.min_pixels = self.min_pixels.unwrap_or(config.min_pixels);
        config.max_pixels = self.max_pixels.unwrap_or(config.max_pixels);
        config.validate()?;
        Ok(config)
    }
}

pub(super) fn normalization(
    keys: &Keys<'_>,
    defaults: &ProcessorConfig,
) -> Result<([f32; 3], [f32; 3]), MmprojError> {
    let three = |key: &str, default: [f32; 3], ok: fn(f32) -> bool, what: &str| {
        let values: Vec<f32> = keys.required(key, Some(default.to_vec()))?;
        match <[f32; 3]>::try_from(values.as_slice()) {
            Ok(values) if values.into_iter().all(ok) => Ok(values),
            _ => Err(keys.invalid(key, format!("{values:?}"), what)),
        }
    };
    let mean = "it must be three finite numbers";
    let std = "it must be three finite numbers above 0";
    Ok((
        three("image_mean", defaults.image_mean, f32::is_finite, mean)?,
        three(
            "image_std",
            defaults.image_std,
            |v| v.is_finite() && v > 0.0,
            std,
        )?,
    ))
}

/// Bounds in pixels, which only `glm5v` must give. Ollama has them under the names of Qwen's processor.
pub(super) fn pixels(
    keys: &Keys<'_>,
    kind: ProcessorKind,
) -> Result<(Option<u64>, Option<u64>), MmprojError> {
    let bound = |key: &'static str, edge: &'static str| {
        let value: Option<u64> = match keys.get(key)? {
            None if keys.is_embedded() => return Ok((edge, keys.get(edge)?.filter(|&n| n > 0))),
            None if kind == ProcessorKind::Glm5V => Some(keys.required(key, None)?),
            value => value,
        };
        Ok::<_, MmprojError>((key, value))
    };
    let (min_key, min) = bound("image_min_pixels", "shortest_edge")?;
    let (max_key, max) = bound("image_max_pixels", "longest_edge")?;
    for (key, value) in [(min_key, min), (max_key, max)] {
        if let Some(value) = value.filter(|n| !(1..=1 << 30).contains(n)) {
            return Err(keys.invalid(key, value, "it must be 1 to 2^30"));
        }
    }
    match (min, max) {
        (Some(min), Some(max)) if min > max => {
            let reason = format!("it is above `{}`, {max}", keys.full(max_key));
            Err(keys.invalid(min_key, min, reason))
        }
        bounds => Ok(bounds),
    }
}
