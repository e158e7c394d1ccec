//! Which devices have GGML operations, and how people name them.

use burn::backend::DispatchDevice;
use burn::tensor::{Device, Tensor};

use crate::error::TensorError;

/// The backend family of a burn device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// burn-flex, the CPU backend.
    Flex,
    /// burn-ndarray, the older CPU backend.
    NdArray,
    /// A CubeCL runtime: Vulkan, WebGPU, Metal, CUDA or ROCm.
    Cube,
}

impl Backend {
    /// The backend of `device`, looking through autodiff.
    ///
    /// # Errors
    /// If the device's backend has no GGML operations compiled in.
    pub fn of(device: &Device) -> Result<Self, TensorError> {
        match device.as_dispatch() {
            #[cfg(feature = "flex")]
            DispatchDevice::Flex(_) => Ok(Self::Flex),
            #[cfg(feature = "ndarray")]
            DispatchDevice::NdArray(_) => Ok(Self::NdArray),
            #[cfg(feature = "cube")]
            DispatchDevice::Cube(_) => Ok(Self::Cube),
            #[cfg(feature = "autodiff")]
            DispatchDevice::Autodiff(_) => Self::of(&device.clone().inner()),
            #[allow(unreachable_patterns)]
            _ => Err(TensorError::UnsupportedDevice {
                device: format!("{device:?}"),
            }),
        }
    }

    /// The family's name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::NdArray => "ndarray",
            Self::Cube => "CubeCL",
        }
    }

    /// Whether tensors live in host memory, so that a file's map can be their storage.
    pub const fn is_cpu(self) -> bool {
        matches!(self, Self::Flex | Self::NdArray)
    }
}

/// `tensor` on `device`, moved only if it is elsewhere. Whether gradients are tracked does not make it another device.
pub fn on_device<const D: usize>(tensor: Tensor<D>, device: &Device) -> Tensor<D> {
    match bare(&tensor.device()) == bare(device) {
        true => tensor,
        false => tensor.to_device(device),
    }
}

/// The device below autodiff.
fn bare(device: &Device) -> Device {
    match device.as_dispatch() {
        #[cfg(feature = "autodiff")]
        DispatchDevice::Autodiff(_) => bare(&device.clone().inner()),
        _ => device.clone(),
    }
}

/// A device name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No backend has this name.
    #[error("unknown device \"{name}\"; compiled in: {available}")]
    Unknown {
        /// The name given.
        name: String,
        /// Names that work in this build, comma separated.
        available: String,
    },
    /// The backend exists but its feature is off in this build.
    #[error("device \"{name}\" needs the `{feature}` feature; compiled in: {available}")]
    NotCompiled {
        /// The name given.
        name: String,
        /// The cargo feature.
        feature: String,
        /// Names that work in this build, comma separated.
        available: String,
    },
    /// The part after the colon is not a device index.
    #[error("\"{index}\" in device \"{name}\" is not an index such as 0")]
    Index {
        /// The name given.
        name: String,
        /// The part after the colon.
        index: String,
    },
    /// The runtime found no such device on this machine.
    #[error("device \"{name}\" is not available: {reason}")]
    NotFound {
        /// The name given.
        name: String,
        /// What the runtime said.
        reason: String,
    },
}

/// Device names of all backends, in the order of preference of [`default_device_name`].
const NAMES: &[&str] = &[
    "cuda", "rocm", "metal", "vulkan", "webgpu", "wgpu", "flex", "ndarray",
];

/// Names of the devices compiled into this build.
pub fn compiled_devices() -> Vec<&'static str> {
    NAMES
        .iter()
        .copied()
        .filter(|name| is_compiled(name))
        .collect()
}

fn is_compiled(name: &str) -> bool {
    match name {
        "cuda" => cfg!(feature = "cuda"),
        "rocm" => cfg!(feature = "rocm"),
        "metal" => cfg!(feature = "metal"),
        "vulkan" => cfg!(feature = "vulkan"),
        "webgpu" => cfg!(feature = "webgpu"),
        "wgpu" => cfg!(feature = "wgpu"),
        "flex" => cfg!(feature = "flex"),
        "ndarray" => cfg!(feature = "ndarray"),
        _ => false,
    }
}

/// The device used when none is named: the CPU (`flex`) if compiled in, else the first one that is.
pub fn default_device_name() -> Option<&'static str> {
    let compiled = compiled_devices();
    compiled
        .iter()
        .copied()
        .find(|&name| name == "flex")
        .or(compiled.first().copied())
}

/// Opens a device by name: `flex`, `ndarray`, `vulkan`, `webgpu`, `wgpu`, `metal`, `cuda`, `rocm`, the GPU ones
/// with an optional index as in `cuda:1`. For the wgpu family an index counts discrete GPUs; without one the
/// default adapter is taken, whatever its kind.
///
/// # Errors
/// An unknown name, a backend that is not compiled in, a bad index, or no such device on this machine.
pub fn open_device(name: &str) -> Result<Device, DeviceError> {
    let available = || compiled_devices().join(", ");
    let (kind, index) = match name.split_once(':') {
        Some((kind, index)) => {
            let index: usize = index.parse().map_err(|_| DeviceError::Index {
                name: name.into(),
                index: index.into(),
            })?;
            (kind, Some(index))
        }
        None => (name, None),
    };
    let kind = kind.to_ascii_lowercase();
    if !NAMES.contains(&kind.as_str()) {
        return Err(DeviceError::Unknown {
            name: name.into(),
            available: available(),
        });
    }
    if !is_compiled(&kind) {
        return Err(DeviceError::NotCompiled {
            name: name.into(),
            feature: kind,
            available: available(),
        });
    }
    if matches!(kind.as_str(), "flex" | "ndarray") && index.unwrap_or(0) != 0 {
        return Err(DeviceError::NotFound {
            name: name.into(),
            reason: "the CPU is one device".into(),
        });
    }
    // Runtimes report a missing driver or adapter by panicking on first use; turn that into an error here.
    let opened = std::panic::catch_unwind(|| {
        let device = construct(&kind, index).ok_or("it is not compiled in".to_string())?;
        device.sync().map_err(|e| e.to_string())?;
        Ok::<_, String>(device)
    });
    match opened {
        Ok(Ok(device)) => Ok(device),
        Ok(Err(reason)) => Err(DeviceError::NotFound {
            name: name.into(),
            reason,
        }),
        Err(panic) => Err(DeviceError::NotFound {
            name: name.into(),
            reason: panic_message(&panic),
        }),
    }
}

fn panic_message(panic: &Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the runtime failed to start".into())
}

#[allow(unused_variables)]
fn construct(kind: &str, index: Option<usize>) -> Option<Device> {
    #[cfg(feature = "wgpu-devices")]
    let wgpu_kind = match index {
        Some(index) => burn::tensor::DeviceKind::DiscreteGpu(index),
        None => burn::tensor::DeviceKind::DefaultDevice,
    };
    match kind {
        #[cfg(feature = "flex")]
        "flex" => Some(Device::flex()),
        #[cfg(feature = "ndarray")]
        "ndarray" => Some(Device::ndarray()),
        #[cfg(feature = "vulkan")]
        "vulkan" => Some(Device::vulkan(wgpu_kind)),
        #[cfg(feature = "webgpu")]
        "webgpu" => Some(Device::webgpu(wgpu_kind)),
        #[cfg(feature = "metal")]
        "metal" => Some(Device::metal(wgpu_kind)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Some(Device::wgpu(wgpu_kind)),
        #[cfg(feature = "cuda")]
        "cuda" => Some(Device::cuda(index.unwrap_or(0))),
        #[cfg(feature = "rocm")]
        "rocm" => Some(Device::rocm(index.unwrap_or(0))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(matches!(
            open_device("tpu"),
            Err(DeviceError::Unknown { .. })
        ));
        assert!(matches!(
            open_device("cuda:x"),
            Err(DeviceError::Index { .. })
        ));
        #[cfg(not(feature = "rocm"))]
        assert!(matches!(
            open_device("rocm"),
            Err(DeviceError::NotCompiled { .. })
        ));
        #[cfg(feature = "flex")]
        {
            assert!(open_device("flex").is_ok());
            assert!(matches!(
                open_device("flex:1"),
                Err(DeviceError::NotFound { .. })
            ));
        }
    }
}
