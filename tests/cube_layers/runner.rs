//! The ways to run an operation on a device.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use burn_gguf::device::open_device;
use burn_gguf::nn::functional;
use burn_gguf::ops::{AttentionParams, BlockChoice, GluActivation, RopeStyle};
use burn_gguf_kernels::cpu::RopePairing;
use burn_gguf_kernels::cube::{self, FloatKind, GluKind, Reduction, RopeShape};
// Only the hidden path leads to the trait that opens a client with a compiler of choice.
use cubecl::__private::Runtime;
use cubecl::client::Client;
use cubecl::ir::features::Plane;
use cubecl::server::Handle;
use cubecl::wgpu::{AutoCompiler, WgpuDevice, WgpuRuntime, WgslCompiler};

use crate::oracle::AttentionCase;

/// Element type of key/value caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    F32,
    F16,
}

pub enum Runner {
    /// Burn's operations on a burn device.
    Burn(Device),
    /// The kernels alone, with the shader language they are compiled to.
    Kernels(Client, Reduction, &'static str),
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Runner::Burn(_) => write!(f, "burn"),
            Runner::Kernels(_, reduction, language) => write!(f, "{language} {reduction:?}"),
        }
    }
}

/// Every way that works here; prints why others do not.
pub fn runners() -> Vec<Runner> {
    let device = match open_device("vulkan") {
        Ok(device) => device,
        Err(e) => {
            println!("skipped: {e}");
            return Vec::new();
        }
    };
    let mut runners = vec![Runner::Burn(device)];
    let device = WgpuDevice::default();
    // A client is named after what its device could take, so both have one name.
    let clients = [
        (
            WgpuRuntime::<AutoCompiler>::client(&device),
            "SPIR-V or WGSL",
        ),
        (WgpuRuntime::<WgslCompiler>::client(&device), "WGSL"),
    ];
    for (client, language) in clients {
        let properties = client.properties();
        let planes = properties.features.plane.contains(Plane::Ops);
        let software = properties.identity.physical.is_none();
        for reduction in [Reduction::Alone, Reduction::Shared, Reduction::Plane] {
            let why_not = match reduction {
                Reduction::Plane if !planes => Some("no plane operations"),
                // CubeCL 0.11.3's SPIR-V for shared memory is invalid on old software drivers.
                Reduction::Shared if software && language != "WGSL" => {
                    Some("shared memory on a software Vulkan device")
                }
                _ => None,
            };
            match why_not {
                Some(why) => println!("skipped: {reduction:?} in {language}: {why}"),
                None => runners.push(Runner::Kernels(client.clone(), reduction, language)),
            }
        }
    }
    runners
}

fn upload(client: &Client, values: &[f32]) -> Handle {
    client.create_from_slice(bytemuck::cast_slice(values))
}

fn read(client: &Client, handle: Handle) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(&client.read_one(handle).unwrap())
}

fn tensor<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

impl Runner {
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], rows: usize, eps: f32) -> Vec<f32> {
        let dim = weight.len();
        match self {
            Runner::Burn(device) => {
                let x = tensor(x, [rows, dim], device);
                host(functional::rms_norm(x, tensor(weight, [dim], device), eps))
            }
            Runner::Kernels(client, reduction, _) => {
                let (x, weight) = (upload(client, x), upload(client, weight));
                let reduction = Some(*reduction);
                let out = cube::rms_norm(client, x, weight, rows, dim, eps, reduction);
                read(client, out.unwrap())
            }
        }
    }

    pub fn layer_norm(
        &self,
        x: &[f32],
        weight: &[f32],
        bias: &[f32],
        rows: usize,
        eps: f32,
    ) -> Vec<f32> {
        let dim = weight.len();
        match self {
            Runner::Burn(device) => {
                let x = tensor(x, [rows, dim], device);
                let (weight, bias) = (tensor(weight, [dim], device), tensor(bias, [dim], device));
                host(functional::layer_norm(x, weight, bias, eps))
            }
            Runner::Kernels(client, reduction, _) => {
                let [x, weight, bias] = [x, weight, bias].map(|values| upload(client, values));
                let reduction = Some(*reduction);
                let out = cube::layer_norm(client, x, weight, bias, rows, dim, eps, reduction);
                read(client, out.unwrap())
            }
        }
    }

    pub fn rope(
        &self,
        x: &[f32],
        cos: &[f32],
        sin: &[f32],
        shape: [usize; 4],
        pairs: usize,
        style: RopeStyle,
    ) -> Vec<f32> {
        let [batch, seq, heads, dim] = shape;
        match self {
            Runner::Burn(device) => {
                let table = |values| tensor(values, [seq, pairs], device);
                let x = tensor(x, shape, device);
                host(functional::rope(x, table(cos), table(sin), style))
            }
            Runner::Kernels(client, ..) => {
                let shape = RopeShape {
                    batch,
                    seq,
                    heads,
                    dim,
                    pairs,
                };
                let pairing = match style {
                    RopeStyle::Neox => RopePairing::Neox,
                    RopeStyle::Norm => RopePairing::Norm,
                };
                let [x, cos, sin] = [x, cos, sin].map(|values| upload(client, values));
                let out = cube::rope(client, x, cos, sin, &shape, pairing);
                read(client, out.unwrap())
            }
        }
    }

    pub fn glu(&self, gate: &[f32], up: &[f32], kind: GluActivation) -> Vec<f32> {
        let n = gate.len();
        match self {
            Runner::Burn(device) => {
                let [gate, up] = [gate, up].map(|values| tensor(values, [1, n], device));
                host(functional::glu(gate, up, kind))
            }
            Runner::Kernels(client, ..) => {
                let [gate, up] = [gate, up].map(|values| upload(client, values));
                let kind = match kind {
                    GluActivation::Silu => GluKind::Silu,
                    GluActivation::GeluTanh => GluKind::GeluTanh,
                    GluActivation::SwigluOai => GluKind::SwigluOai,
                };
                read(client, cube::glu(client, gate, up, n, kind).unwrap())
            }
        }
    }

    /// `None` where the device has no such cache.
    pub fn attention(
        &self,
        case: &AttentionCase,
        params: &AttentionParams,
        cache: Cache,
    ) -> Option<Vec<f32>> {
        let &AttentionCase {
            batch,
            seq,
            heads,
            kv_heads,
            dim,
            capacity,
            ..
        } = case;
        match self {
            Runner::Burn(device) => {
                let q = tensor(&case.q, [batch, seq, heads, dim], device);
                let [k, v] = [&case.k, &case.v].map(|values| {
                    let cached = tensor(values, [batch, kv_heads, capacity, dim], device);
                    match cache {
                        Cache::F32 => cached,
                        Cache::F16 => cached.cast(FloatDType::F16),
                    }
                });
                Some(host(match &case.blocks {
                    None => functional::attention(q, k, v, *params),
                    Some((bits, size)) => {
                        let words = BlockChoice::words(params.len, *size);
                        let data = TensorData::new(bits.clone(), [batch, seq, kv_heads, words]);
                        let blocks = Tensor::<4, Int>::from_data(data, (device, DType::U32));
                        functional::attention_blocks(q, k, v, blocks, *size, *params)
                    }
                }))
            }
            Runner::Kernels(client, reduction, _) => {
                let kind = match cache {
                    Cache::F32 => FloatKind::F32,
                    Cache::F16 => FloatKind::F16,
                };
                if !cube::takes_cache(client, kind) {
                    return None;
                }
                let q = upload(client, &case.q);
                let [k, v] = [&case.k, &case.v].map(|values| match cache {
                    Cache::F32 => upload(client, values),
                    Cache::F16 => {
                        let half: Vec<u16> = values
                            .iter()
                            .map(|&v| half::f16::from_f32(v).to_bits())
                            .collect();
                        client.create_from_slice(bytemuck::cast_slice(&half))
                    }
                });
                let shape = cube::AttentionShape {
                    batch,
                    seq,
                    heads,
                    kv_heads,
                    dim,
                    capacity,
                    len: params.len,
                };
                let kernel = cube::AttentionParams {
                    scale: params.scale,
                    causal: params.causal,
                    window: params.window,
                    softcap: params.softcap,
                };
                let blocks = case.blocks.as_ref().map(|(bits, size)| cube::KeyBlocks {
                    bits: client.create_from_slice(bytemuck::cast_slice(bits)),
                    size: *size,
                });
                let reduction = Some(*reduction);
                let out =
                    cube::attention(client, q, k, v, kind, &shape, &kernel, blocks, reduction);
                Some(read(client, out.unwrap()))
            }
        }
    }

    /// `q` is `[batch, seq, heads, dim]`, `k` `[batch, 1, capacity, dim]`.
    pub fn choose_blocks(
        &self,
        (q, q_shape): (&[f32], [usize; 4]),
        (k, k_shape): (&[f32], [usize; 4]),
        choice: BlockChoice,
    ) -> Vec<u32> {
        match self {
            Runner::Burn(device) => {
                let (q, k) = (tensor(q, q_shape, device), tensor(k, k_shape, device));
                let bits = functional::choose_blocks(q, k, choice).into_data();
                bits.iter::<u32>().collect()
            }
            Runner::Kernels(client, reduction, _) => {
                let [batch, seq, heads, dim] = q_shape;
                let shape = cube::BlockChoiceShape {
                    batch,
                    seq,
                    heads,
                    dim,
                    capacity: k_shape[2],
                    len: choice.len,
                    size: choice.size,
                    top: choice.top,
                    local: choice.local,
                };
                let (q, k) = (upload(client, q), upload(client, k));
                let bits = cube::choose_blocks(client, q, k, &shape, Some(*reduction));
                bytemuck::pod_collect_to_vec(&client.read_one(bits.unwrap()).unwrap())
            }
        }
    }

    /// Only burn has this operation.
    pub fn cache_append(
        &self,
        cache: &[f32],
        rows: &[f32],
        shape: [usize; 4],
        seq: usize,
        position: usize,
    ) -> Vec<f32> {
        let Runner::Burn(device) = self else {
            panic!("{self:?} has no cache_append");
        };
        let [batch, heads, _, dim] = shape;
        let cache = tensor(cache, shape, device);
        let rows = tensor(rows, [batch, seq, heads, dim], device);
        host(functional::cache_append(cache, rows, position))
    }
}
