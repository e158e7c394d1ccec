//! Where the parts of a model go when it has several devices.

use burn::tensor::Device;
use burn_gguf::gguf::Gguf;

use crate::error::ModelError;

/// Which devices a model is spread over, beside the one it is loaded on.
#[derive(Clone, Debug, Default)]
pub struct PlacementOptions {
    /// Devices for later layers, in order; the embedding is on the first device, the head on the last.
    pub more: Vec<Device>,
    /// The share of the layers' bytes of each device, the first one's included; equal shares where it is empty.
    pub shares: Vec<f32>,
    /// A device for the stacks of experts and their router. With the CPU they stay in the file's map, so that a model
    /// larger than the other device's memory runs.
    pub experts: Option<Device>,
}

/// The device of each layer.
#[derive(Clone, Debug)]
pub struct Placement {
    first: Device,
    layers: Vec<Device>,
    experts: Option<Device>,
}

impl Placement {
    /// Everything on one device.
    pub fn one(layers: usize, device: &Device) -> Self {
        Self {
            first: device.clone(),
            layers: vec![device.clone(); layers],
            experts: None,
        }
    }

    /// Spreads layers over the devices in runs, by the bytes of their tensors in the file.
    ///
    /// # Errors
    /// Shares that are not one positive number for each device, or fewer layers than devices.
    pub fn plan(
        gguf: &Gguf,
        layers: usize,
        first: &Device,
        options: &PlacementOptions,
    ) -> Result<Self, ModelError> {
        let devices: Vec<&Device> = [first].into_iter().chain(&options.more).collect();
        let shares = match options.shares.is_empty() {
            true => vec![1.0; devices.len()],
            false => options.shares.clone(),
        };
        let bad = |reason: String| Err(ModelError::Placement { reason });
        if shares.len() != devices.len() {
            let (shares, devices) = (shares.len(), devices.len());
            return bad(format!(
                "{shares} shares for {devices} devices; give one for each"
            ));
        }
        if let Some(share) = shares.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
            return bad(format!("a share of {share}; shares are numbers above 0"));
        }
        if devices.len() > layers {
            let devices = devices.len();
            return bad(format!("{devices} devices for {layers} layers; name fewer"));
        }
        if options.experts.is_some() && !gguf.tensors().any(|t| t.name().contains("_exps")) {
            return bad("the model has no experts to put elsewhere".to_owned());
        }
        let bytes = layer_bytes(gguf, layers, options.experts.is_some());
        let counts = split(&bytes, &shares);
        let runs = devices.iter().zip(counts);
        Ok(Self {
            first: first.clone(),
            layers: runs
                .flat_map(|(&device, n)| vec![device.clone(); n])
                .collect(),
            experts: options.experts.clone(),
        })
    }

    /// The device of the embedding.
    pub fn first(&self) -> &Device {
        &self.first
    }

    /// The device of the last layer and the head.
    pub fn last(&self) -> &Device {
        self.layers.last().unwrap_or(&self.first)
    }

    /// The device of a layer.
    pub fn layer(&self, layer: usize) -> &Device {
        self.layers.get(layer).unwrap_or(&self.first)
    }

    /// The device of a layer's experts.
    pub fn experts(&self, layer: usize) -> &Device {
        self.experts.as_ref().unwrap_or_else(|| self.layer(layer))
    }
}

/// Bytes of each layer's tensors, without its experts where those are elsewhere.
fn layer_bytes(gguf: &Gguf, layers: usize, experts_elsewhere: bool) -> Vec<u64> {
    let mut bytes = vec![0u64; layers];
    for tensor in gguf.tensors() {
        let block = tensor.name().strip_prefix("blk.");
        let Some((number, part)) = block.and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        let slot = number.parse().ok().and_then(|i: usize| bytes.get_mut(i));
        if let Some(slot) = slot
            && !(experts_elsewhere && part.contains("_exps"))
        {
            *slot += tensor.byte_len() as u64;
        }
    }
    bytes
}

/// How many layers in a row each device takes, at least one.
fn split(bytes: &[u64], shares: &[f32]) -> Vec<usize> {
    let total: f64 = bytes.iter().map(|&b| b as f64).sum();
    let all: f64 = shares.iter().map(|&s| f64::from(s)).sum();
    let (mut taken, mut next, mut goal) = (0.0, 0, 0.0);
    let mut counts = Vec::with_capacity(shares.len());
    for (i, &share) in shares.iter().enumerate() {
        goal += total * f64::from(share) / all;
        // Each device behind needs a layer too.
        let end = bytes.len() - (shares.len() - i - 1);
        let start = next;
        while next < end && (next == start || i + 1 == shares.len()) {
            taken += bytes[next] as f64;
            next += 1;
        }
        // A layer goes where its middle is.
        while next < end && taken + bytes[next] as f64 / 2.0 <= goal {
            taken += bytes[next] as f64;
            next += 1;
        }
        counts.push(next - start);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_shared_by_their_bytes() {
        assert_eq!(split(&[1; 8], &[1.0, 1.0]), [4, 4]);
        assert_eq!(split(&[1; 8], &[3.0, 1.0]), [6, 2]);
        assert_eq!(split(&[1; 7], &[1.0, 1.0, 1.0]), [2, 3, 2]);
        assert_eq!(split(&[5, 1, 1, 1, 1, 1], &[1.0, 1.0]), [1, 5]);
        assert_eq!(split(&[1, 1, 100], &[1.0, 1.0]), [2, 1]);
        // Everyone gets a layer.
        assert_eq!(split(&[1; 3], &[1000.0, 1.0, 1.0]), [1, 1, 1]);
        assert_eq!(split(&[0; 4], &[1.0, 1.0]).iter().sum::<usize>(), 4);
    }

    #[test]
    fn shares_that_make_no_sense_are_refused() {
        let mut writer = burn_gguf::gguf::GgufWriter::new();
        writer.metadata("general.architecture", "x");
        let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
        let device = Device::default();
        let plan = |layers, shares: &[f32]| {
            let options = PlacementOptions {
                more: vec![device.clone()],
                shares: shares.to_vec(),
                experts: None,
            };
            Placement::plan(&gguf, layers, &device, &options)
        };
        assert!(plan(4, &[]).is_ok());
        assert!(plan(4, &[1.0, 2.0]).is_ok());
        for shares in [&[1.0][..], &[1.0, 0.0], &[1.0, f32::NAN], &[1.0, -1.0]] {
            let error = plan(4, shares).unwrap_err();
            assert!(matches!(error, ModelError::Placement { .. }), "{error}");
        }
        assert!(plan(1, &[]).is_err());
    }
}
