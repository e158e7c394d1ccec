//! The fused operations of a transformer layer.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_gguf::GgmlType;
use burn_gguf::nn::functional;
use burn_gguf::ops::{AttentionParams, Gating, GeluKind, GluActivation, RopeStyle};

mod delta_net;
mod experts;

use crate::cell::Cell;
use crate::compare::Expected;
use crate::oracle::{self, Heads};
use crate::random::Random;

/// A layer operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layer {
    RmsNorm,
    /// Layer normalization.
    CenteredNorm,
    Gelu(GeluKind),
    Rope(RopeStyle),
    Glu(GluActivation),
    /// Into a cache of F32 or F16.
    CacheAppend(GgmlType),
    /// Over a cache in F32.
    Attention(AttentionKind),
    /// Plain causal attention over a cache in F16.
    AttentionF16Cache,
    /// Causal attention over blocks of keys that an indexer chose.
    AttentionBlocks,
    /// That choice.
    ChooseBlocks,
    ShortConv,
    GatedDelta {
        grouped: bool,
    },
    ChooseExperts(Gating),
    ExpertSum,
}

impl Layer {
    /// The plain type it computes with: the cache's where there is one.
    pub fn ggml_type(self) -> GgmlType {
        match self {
            Self::CacheAppend(ty) => ty,
            Self::AttentionF16Cache => GgmlType::F16,
            _ => GgmlType::F32,
        }
    }
}

/// Which keys a query sees, and how its scores are capped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AttentionKind {
    Causal,
    Window,
    Softcap,
    NotCausal,
    WindowSoftcap,
}

impl AttentionKind {
    fn params(self, len: usize) -> AttentionParams {
        let plain = AttentionParams {
            len,
            scale: 0.25,
            causal: true,
            window: None,
            softcap: None,
        };
        match self {
            Self::Causal => plain,
            Self::Window => AttentionParams {
                window: Some(4),
                ..plain
            },
            Self::Softcap => AttentionParams {
                softcap: Some(1.5),
                ..plain
            },
            Self::NotCausal => AttentionParams {
                causal: false,
                ..plain
            },
            Self::WindowSoftcap => AttentionParams {
                window: Some(3),
                softcap: Some(2.0),
                ..plain
            },
        }
    }
}

pub(crate) fn run(layer: Layer, cell: &mut Cell<'_>) {
    match layer {
        Layer::RmsNorm => rms_norm(cell),
        Layer::CenteredNorm => layer_norm(cell),
        Layer::Gelu(kind) => gelu(kind, cell),
        Layer::Rope(style) => rope(style, cell),
        Layer::Glu(activation) => glu(activation, cell),
        Layer::CacheAppend(GgmlType::F16) => cache_append(DType::F16, cell),
        Layer::CacheAppend(_) => cache_append(DType::F32, cell),
        Layer::Attention(kind) => attention(kind, DType::F32, cell),
        Layer::AttentionF16Cache => attention(AttentionKind::Causal, DType::F16, cell),
        Layer::AttentionBlocks => crate::blocks_of_keys::attention_blocks(cell),
        Layer::ChooseBlocks => crate::blocks_of_keys::choose_blocks(cell),
        Layer::ShortConv => delta_net::short_conv(cell),
        Layer::GatedDelta { grouped } => delta_net::gated_delta(grouped, cell),
        Layer::ChooseExperts(gating) => experts::choose(gating, cell),
        Layer::ExpertSum => experts::sum(cell),
    }
}

pub(crate) fn tensor<const D: usize>(
    values: &[f32],
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

fn rms_norm(cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(11);
    // A single row, a residual stream, heads of a width that is no multiple of a vector.
    for shape in [[1, 1, 1, 640], [2, 3, 1, 96], [1, 5, 4, 37]] {
        let dim = shape[3];
        let x = random.floats(shape.iter().product());
        let weight = random.floats(dim);
        let want = Expected::new(oracle::rms_norm(&x, &weight, 1e-6));
        cell.case(&format!("{shape:?}"), &want, shape, || {
            functional::rms_norm(
                tensor(&x, shape, device),
                tensor(&weight, [dim], device),
                1e-6,
            )
        });
    }
}

fn layer_norm(cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(21);
    // Widths of vision towers, and one that is no multiple of a vector.
    for shape in [[1, 1, 1, 1024], [2, 3, 1, 96], [1, 5, 4, 37]] {
        let dim = shape[3];
        // Away from zero: the mean counts.
        let x: Vec<f32> = random.floats(shape.iter().product());
        let x: Vec<f32> = x.iter().map(|v| v + 0.5).collect();
        let (weight, bias) = (random.floats(dim), random.floats(dim));
        let want = Expected::new(oracle::layer_norm(&x, &weight, &bias, 1e-6));
        cell.case(&format!("{shape:?}"), &want, shape, || {
            functional::layer_norm(
                tensor(&x, shape, device),
                tensor(&weight, [dim], device),
                tensor(&bias, [dim], device),
                1e-6,
            )
        });
    }
}

fn gelu(kind: GeluKind, cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(22);
    for shape in [[1, 1, 64], [2, 3, 96], [1, 5, 37]] {
        let x: Vec<f32> = random.floats(shape.iter().product());
        let x: Vec<f32> = x.iter().map(|v| v * 4.0).collect();
        let want = Expected::new(oracle::gelu(&x, kind));
        cell.case(&format!("{shape:?}"), &want, shape, || {
            functional::gelu(tensor(&x, shape, device), kind)
        });
    }
}

fn rope(style: RopeStyle, cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(12);
    // One token, several with a batch, and a head of which only a part rotates.
    for ([batch, seq, heads, dim], half) in
        [([1, 1, 4, 64], 32), ([2, 5, 3, 32], 16), ([1, 4, 2, 48], 8)]
    {
        let x = random.floats(batch * seq * heads * dim);
        let angles: Vec<f32> = (0..seq * half).map(|i| (i as f32) * 0.37).collect();
        let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
        let shape = [batch, seq, heads, dim];
        let want = Expected::new(oracle::rope(&x, [seq, heads, dim], &cos, &sin, style));
        let name = format!("{shape:?}, {} rotate", 2 * half);
        cell.case(&name, &want, shape, || {
            functional::rope(
                tensor(&x, shape, device),
                tensor(&cos, [seq, half], device),
                tensor(&sin, [seq, half], device),
                style,
            )
        });
    }
}

fn glu(activation: GluActivation, cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(13);
    for shape in [[1, 1, 192], [2, 3, 101]] {
        let n = shape.iter().product();
        // Far into both tails, where the activation is the identity or nothing.
        let gate: Vec<f32> = random.floats(n).iter().map(|v| v * 30.0).collect();
        // Past the bounds, where the unit has some.
        let reach = match activation {
            GluActivation::SwigluOai => 10.0,
            _ => 1.0,
        };
        let up: Vec<f32> = random.floats(n).iter().map(|v| v * reach).collect();
        let want = Expected::new(oracle::glu(&gate, &up, activation));
        cell.case(&format!("{shape:?}"), &want, shape, || {
            functional::glu(
                tensor(&gate, shape, device),
                tensor(&up, shape, device),
                activation,
            )
        });
    }
}

fn round(values: &[f32], dtype: DType) -> Vec<f32> {
    match dtype {
        DType::F16 => values
            .iter()
            .map(|&v| half::f16::from_f32(v).to_f32())
            .collect(),
        _ => values.to_vec(),
    }
}

fn cache_append(dtype: DType, cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    if !device.supports_dtype(dtype) {
        return cell.skip("", &format!("the device has no {dtype:?}"));
    }
    let mut random = Random::new(14);
    let [batch, heads, capacity, dim] = [2, 3, 16, 8];
    let shape = [batch, heads, capacity, dim];
    let first = random.floats(batch * heads * capacity * dim);
    let mut want = round(&first, dtype);
    let mut cache = Tensor::<4>::from_data(
        TensorData::new(first, shape).convert_dtype(dtype),
        (device, dtype),
    );
    let shared = cache.clone();
    let before = oracle::wide(&want);
    // The first call finds the cache shared and must leave the other handle alone; the others may write in place.
    for (position, seq) in [(0, 1), (5, 4), (9, 7)] {
        let rows = random.floats(batch * seq * heads * dim);
        cache = functional::cache_append(
            cache,
            tensor(&rows, [batch, seq, heads, dim], device),
            position,
        );
        let rounded = round(&rows, dtype);
        for (i, &value) in rounded.iter().enumerate() {
            let (b, s, h, d) = (
                i / (seq * heads * dim),
                i / (heads * dim) % seq,
                i / dim % heads,
                i % dim,
            );
            want[((b * heads + h) * capacity + position + s) * dim + d] = value;
        }
        assert_eq!(cache.dtype(), dtype);
        let expected = Expected::new(oracle::wide(&want));
        let name = format!("{seq} rows at {position} of {shape:?}");
        cell.case(&name, &expected, shape, || cache.clone());
    }
    let before = Expected::new(before);
    cell.case("the shared handle", &before, shape, || shared.clone());
}

fn attention(kind: AttentionKind, dtype: DType, cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    if !device.supports_dtype(dtype) {
        return cell.skip("", &format!("the device has no {dtype:?}"));
    }
    let mut random = Random::new(15);
    // Decoding and prefill; heads alone, in groups, all on one; an empty and a part-filled cache.
    let shapes = [
        (1, 1, 4, 4, 16, 32, 9),
        (1, 1, 8, 2, 64, 64, 33),
        (1, 7, 6, 2, 16, 32, 7),
        (1, 9, 4, 1, 64, 64, 40),
        (2, 3, 6, 3, 16, 24, 11),
    ];
    for (batch, seq, heads, kv_heads, capacity, dim, len) in shapes {
        let shape = Heads {
            batch,
            seq,
            heads,
            kv_heads,
            capacity,
            dim,
        };
        let params = kind.params(len);
        let q: Vec<f32> = random
            .floats(batch * seq * heads * dim)
            .iter()
            .map(|v| v * 3.0)
            .collect();
        // Rows past `len` hold what a longer conversation left there; nothing of it may show.
        let mut cache = || {
            let mut rows = random.floats(batch * kv_heads * capacity * dim);
            for (i, v) in rows.iter_mut().enumerate() {
                if i / dim % capacity >= len {
                    *v = 1e4;
                }
            }
            round(&rows, dtype)
        };
        let (k, v) = (cache(), cache());
        let cached = |values: &[f32]| {
            let data = TensorData::new(values.to_vec(), [batch, kv_heads, capacity, dim])
                .convert_dtype(dtype);
            Tensor::<4>::from_data(data, (device, dtype))
        };
        let want = Expected::new(oracle::attention(&q, &k, &v, shape, params));
        let dims = [batch, seq, heads, dim];
        let name = format!("{dims:?}, {kv_heads} cache heads of capacity {capacity}, {len} filled");
        cell.case(&name, &want, dims, || {
            functional::attention(tensor(&q, dims, device), cached(&k), cached(&v), params)
        });
    }
}
