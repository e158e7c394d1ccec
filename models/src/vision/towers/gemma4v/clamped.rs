//! Linear layers whose inputs and outputs are held within bounds.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_gguf::nn::GgmlLinear;
use burn_gguf::{Arithmetic, GgmlType};

use crate::error::ModelError;
use crate::vision::VisionError;
use crate::vision::mmproj::Mmproj;

/// The least and the largest value, `None` where all are let through.
type Range = Option<(f32, f32)>;

/// Bounds of a [`ClampedLinear`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Of what goes in.
    pub input: Range,
    /// Of what comes out.
    pub output: Range,
}

impl Bounds {
    /// Reads `STEM.input_min` and so on, each one number, and adds their names to `read`.
    pub(super) fn of(
        mmproj: &Mmproj,
        stem: &str,
        read: &mut Vec<String>,
    ) -> Result<Self, VisionError> {
        let mut range = |side: &str| -> Result<Range, VisionError> {
            let least = number(mmproj, &format!("{stem}.{side}_min"), read)?;
            let largest = number(mmproj, &format!("{stem}.{side}_max"), read)?;
            let range = (
                least.unwrap_or(f32::NEG_INFINITY),
                largest.unwrap_or(f32::INFINITY),
            );
            // Not a number is not in order either.
            let in_order = range.0 <= range.1;
            if !in_order {
                let error = ModelError::InvalidValue {
                    key: format!("{stem}.{side}_min"),
                    value: range.0.to_string(),
                    reason: format!("it must be a number, {} at most", range.1),
                };
                return Err(VisionError::load(mmproj, error));
            }
            let open = range.0 <= f32::MIN && range.1 >= f32::MAX;
            Ok((!open).then_some(range))
        };
        Ok(Self {
            input: range("input")?,
            output: range("output")?,
        })
    }
}

fn number(mmproj: &Mmproj, name: &str, read: &mut Vec<String>) -> Result<Option<f32>, VisionError> {
    let Some(info) = mmproj.tensor(name) else {
        return Ok(None);
    };
    let bytes: Option<[u8; 4]> = info.data().try_into().ok();
    match bytes.filter(|_| info.ggml_type() == Some(GgmlType::F32)) {
        Some(bytes) => {
            read.push(info.name().to_owned());
            Ok(Some(f32::from_le_bytes(bytes)))
        }
        None => {
            let error = ModelError::InvalidValue {
                key: name.to_owned(),
                value: format!("{:?} of the shape {:?}", info.ggml_type(), info.shape()),
                reason: "one value of F32 is expected".to_owned(),
            };
            Err(VisionError::load(mmproj, error))
        }
    }
}

/// `clamp(linear(clamp(x)))`. The bounds come with the configuration and are no parameters.
#[derive(Module, Debug)]
pub struct ClampedLinear {
    /// The layer.
    pub linear: GgmlLinear,
    #[module(skip)]
    bounds: Bounds,
}

impl ClampedLinear {
    /// A layer to be loaded from a file.
    pub fn uninitialized(
        input: usize,
        output: usize,
        bounds: Bounds,
        arithmetic: Arithmetic,
        device: &Device,
    ) -> Self {
        Self {
            linear: GgmlLinear::uninitialized(input, output, false, device)
                .with_arithmetic(arithmetic),
            bounds,
        }
    }

    /// `[.., input] -> [.., output]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let within = |x: Tensor<D>, range: Range| match range {
            Some((least, largest)) => x.clamp(least, largest),
            None => x,
        };
        let y = self.linear.forward(within(x, self.bounds.input));
        within(y, self.bounds.output)
    }
}
