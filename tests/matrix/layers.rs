//! The fused operations of a transformer layer.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_gguf::nn::functional;
use burn_gguf::ops::{AttentionParams, GluActivation, RopeStyle};

use crate::blocks::Random;
use crate::oracle::{self, Heads};
use crate::report::{Outcome, Table};

pub fn run(table: &mut Table) {
    table.row("rms_norm", "", rms_norm);
    for (name, style) in [
        ("rope neox", RopeStyle::Neox),
        ("rope norm", RopeStyle::Norm),
    ] {
        table.row(name, "", |device| rope(style, device));
    }
    for (name, activation) in [
        ("glu silu", GluActivation::Silu),
        ("glu gelu", GluActivation::GeluTanh),
    ] {
        table.row(name, "", |device| glu(activation, device));
    }
    for (name, dtype) in [
        ("cache_append f32", DType::F32),
        ("cache_append f16", DType::F16),
    ] {
        table.row(name, "", |device| cache_append(dtype, device));
    }
    for (name, params) in attentions() {
        table.row(name, "", |device| attention(params, DType::F32, device));
    }
    let (_, plain) = attentions()[0];
    table.row("attention f16 cache", "", |device| {
        attention(plain, DType::F16, device)
    });
}

fn tensor<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().unwrap()
}

fn rms_norm(device: &Device) -> Vec<(String, Outcome)> {
    let mut random = Random::new(11);
    let mut cases = Vec::new();
    // A single row, a residual stream, heads of a width that is no multiple of a vector.
    for shape in [[1, 1, 1, 640], [2, 3, 1, 96], [1, 5, 4, 37]] {
        let dim = shape[3];
        let x = random.floats(shape.iter().product());
        let weight = random.floats(dim);
        let got = functional::rms_norm(
            tensor(&x, shape, device),
            tensor(&weight, [dim], device),
            1e-6,
        );
        cases.push((
            format!("{shape:?}"),
            Outcome::Values(values(got), oracle::rms_norm(&x, &weight, 1e-6)),
        ));
    }
    cases
}

fn rope(style: RopeStyle, device: &Device) -> Vec<(String, Outcome)> {
    let mut random = Random::new(12);
    let mut cases = Vec::new();
    // One token, several with a batch, and a head of which only a part rotates.
    for ([batch, seq, heads, dim], half) in
        [([1, 1, 4, 64], 32), ([2, 5, 3, 32], 16), ([1, 4, 2, 48], 8)]
    {
        let x = random.floats(batch * seq * heads * dim);
        let angles: Vec<f32> = (0..seq * half).map(|i| (i as f32) * 0.37).collect();
        let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
        let got = functional::rope(
            tensor(&x, [batch, seq, heads, dim], device),
            tensor(&cos, [seq, half], device),
            tensor(&sin, [seq, half], device),
            style,
        );
        let want = oracle::rope(&x, [seq, heads, dim], &cos, &sin, style);
        cases.push((
            format!("[{batch}, {seq}, {heads}, {dim}], {} rotate", 2 * half),
            Outcome::Values(values(got), want),
        ));
    }
    cases
}

fn glu(activation: GluActivation, device: &Device) -> Vec<(String, Outcome)> {
    let mut random = Random::new(13);
    let mut cases = Vec::new();
    for shape in [[1, 1, 192], [2, 3, 101]] {
        let n = shape.iter().product();
        // Far into both tails, where the activation is the identity or nothing.
        let gate: Vec<f32> = random.floats(n).iter().map(|v| v * 30.0).collect();
        let up = random.floats(n);
        let got = functional::glu(
            tensor(&gate, shape, device),
            tensor(&up, shape, device),
            activation,
        );
        cases.push((
            format!("{shape:?}"),
            Outcome::Values(values(got), oracle::glu(&gate, &up, activation)),
        ));
    }
    cases
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

fn cache_append(dtype: DType, device: &Device) -> Vec<(String, Outcome)> {
    if !device.supports_dtype(dtype) {
        return vec![(
            String::new(),
            Outcome::Skipped(format!("no {dtype:?} there")),
        )];
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
    let mut cases = Vec::new();
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
        let got = values(cache.clone());
        cases.push((
            format!("{seq} rows at {position}"),
            Outcome::Values(got, oracle::wide(&want)),
        ));
    }
    cases.push((
        "the shared handle".into(),
        Outcome::Values(values(shared), before),
    ));
    cases
}

/// The first is plain causal attention.
fn attentions() -> [(&'static str, AttentionParams); 5] {
    let plain = AttentionParams {
        len: 0,
        scale: 0.25,
        causal: true,
        window: None,
        softcap: None,
    };
    [
        ("attention", plain),
        (
            "attention window",
            AttentionParams {
                window: Some(4),
                ..plain
            },
        ),
        (
            "attention softcap",
            AttentionParams {
                softcap: Some(1.5),
                ..plain
            },
        ),
        (
            "attention not causal",
            AttentionParams {
                causal: false,
                ..plain
            },
        ),
        (
            "attention window and softcap",
            AttentionParams {
                window: Some(3),
                softcap: Some(2.0),
                ..plain
            },
        ),
    ]
}

fn attention(params: AttentionParams, dtype: DType, device: &Device) -> Vec<(String, Outcome)> {
    if !device.supports_dtype(dtype) {
        return vec![(
            String::new(),
            Outcome::Skipped(format!("no {dtype:?} there")),
        )];
    }
    let mut random = Random::new(15);
    let mut cases = Vec::new();
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
        let params = AttentionParams { len, ..params };
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
        let got = functional::attention(
            tensor(&q, [batch, seq, heads, dim], device),
            cached(&k),
            cached(&v),
            params,
        );
        assert_eq!(got.dims(), [batch, seq, heads, dim]);
        cases.push((
            format!("{shape:?} len {len}"),
            Outcome::Values(values(got), oracle::attention(&q, &k, &v, shape, params)),
        ));
    }
    cases
}
