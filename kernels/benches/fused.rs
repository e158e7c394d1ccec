//! Times of the fused CPU operations: `cargo bench -p burn-gguf-kernels --bench fused [-- FILTER]`.
//!
//! Attention's GFLOP/s count two products of two operations for each visible (query, key) pair; GB/s count keys and
//! values once. Best of several runs.

use burn_gguf_kernels::cpu::{
    AttentionParams, AttentionShape, ChoiceShape, ExpertSumShape, GatedDeltaInput, GatedDeltaShape,
    Gating, KvView, RopePairing, RopeTable, ShortConvShape, attention, choose_experts, expert_sum,
    gated_delta, geglu_tanh, rms_norm, short_conv, swiglu,
};
use half::f16;
use std::hint::black_box;
use std::time::Instant;

/// Seconds of the fastest run, over about a third of a second.
fn best(mut f: impl FnMut()) -> f64 {
    f();
    let start = Instant::now();
    let (mut best, mut runs) = (f64::MAX, 0);
    while runs < 5 || start.elapsed().as_secs_f64() < 0.33 {
        let t = Instant::now();
        f();
        best = best.min(t.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Values in `-1.0..1.0`.
fn values(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

struct Model {
    name: &'static str,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

const MODELS: [Model; 3] = [
    Model {
        name: "Qwen2.5-0.5B 14/2 x 64",
        n_heads: 14,
        n_kv_heads: 2,
        head_dim: 64,
    },
    Model {
        name: "Gemma-3-270m 4/1 x 256",
        n_heads: 4,
        n_kv_heads: 1,
        head_dim: 256,
    },
    Model {
        name: "no groups 16/16 x 128",
        n_heads: 16,
        n_kv_heads: 16,
        head_dim: 128,
    },
];

fn attention_case(model: &Model, tokens: usize, depth: usize, half: bool) {
    let &Model {
        n_heads,
        n_kv_heads,
        head_dim,
        ..
    } = model;
    let len = depth + tokens;
    let shape = AttentionShape {
        tokens,
        n_heads,
        n_kv_heads,
        head_dim,
        capacity: len,
        len,
    };
    let params = AttentionParams {
        scale: 1.0 / (head_dim as f32).sqrt(),
        causal: true,
        window: None,
        softcap: None,
    };
    let q = values(tokens * n_heads * head_dim);
    // As many caches as layers, so that decoding finds them in memory and not in the cache of the CPU.
    let layers = if tokens == 1 { 24 } else { 1 };
    let caches: Vec<[Vec<f32>; 2]> = (0..layers)
        .map(|_| {
            [
                values(n_kv_heads * len * head_dim),
                values(n_kv_heads * len * head_dim),
            ]
        })
        .collect();
    let to_half = |x: &Vec<f32>| x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>();
    let halves: Vec<[Vec<f16>; 2]> = if half {
        caches
            .iter()
            .map(|[k, v]| [to_half(k), to_half(v)])
            .collect()
    } else {
        vec![]
    };
    let mut out = vec![0.0; q.len()];
    let seconds = best(|| {
        for layer in 0..layers {
            let (k, v) = if half {
                (
                    KvView::F16(&halves[layer][0]),
                    KvView::F16(&halves[layer][1]),
                )
            } else {
                (
                    KvView::F32(&caches[layer][0]),
                    KvView::F32(&caches[layer][1]),
                )
            };
            attention(black_box(&q), k, v, &shape, &params, black_box(&mut out)).unwrap();
        }
    }) / layers as f64;
    let pairs: usize = (0..tokens).map(|t| depth + t + 1).sum();
    let flops = (4 * pairs * n_heads * head_dim) as f64;
    let bytes = (2 * n_kv_heads * len * head_dim * if half { 2 } else { 4 }) as f64;
    println!(
        "{:24} {} tokens {tokens:4} depth {depth:5}: {:9.1} us {:7.1} GFLOP/s {:6.2} GB/s",
        model.name,
        if half { "f16" } else { "f32" },
        seconds * 1e6,
        flops / seconds / 1e9,
        bytes / seconds / 1e9
    );
}

fn elementwise(name: &str, elements: usize, f: impl FnMut()) {
    let seconds = best(f);
    println!(
        "{name:30} {:9.2} us {:6.2} G elements/s",
        seconds * 1e6,
        elements as f64 / seconds / 1e9
    );
}

fn small_operations(tokens: usize) {
    let n = tokens * 4864;
    let (gate, up, mut out) = (values(n), values(n), vec![0.0; n]);
    elementwise(&format!("swiglu {tokens} x 4864"), n, || {
        swiglu(black_box(&gate), &up, &mut out).unwrap()
    });
    elementwise(&format!("geglu_tanh {tokens} x 4864"), n, || {
        geglu_tanh(black_box(&gate), &up, &mut out).unwrap()
    });

    let n = tokens * 896;
    let (x, weight, mut out) = (values(n), values(896), vec![0.0; n]);
    elementwise(&format!("rms_norm {tokens} x 896"), n, || {
        rms_norm(black_box(&x), 896, Some(&weight), 1e-6, &mut out).unwrap()
    });

    let (positions, freq) = ((0..tokens as i32).collect::<Vec<_>>(), values(32));
    let mut x = values(n);
    for pairing in [RopePairing::Neox, RopePairing::Norm] {
        elementwise(
            &format!("rope table {pairing:?} {tokens} x 32"),
            tokens * 32,
            || {
                black_box(RopeTable::new(
                    black_box(&positions),
                    &freq,
                    1.0,
                    1.0,
                    pairing,
                ));
            },
        );
        let table = RopeTable::new(&positions, &freq, 1.0, 1.0, pairing);
        elementwise(&format!("rope {pairing:?} {tokens} x 14 x 64"), n, || {
            table.apply(black_box(&mut x), 14, 64).unwrap()
        });
    }
}

/// Of Qwen3.5-0.8B: 16 heads of 128 and as many layers as there are, so that decoding finds states in memory.
fn delta_net(tokens: usize) {
    let (heads, dim) = (16, 128);
    let layers = if tokens == 1 { 18 } else { 1 };
    let shape = GatedDeltaShape {
        batch: 1,
        tokens,
        key_heads: heads,
        value_heads: heads,
        head_dim: dim,
        grouped: false,
        eps: 1e-6,
    };
    let (mixed, gate) = (
        values(tokens * 3 * heads * dim),
        values(tokens * heads * dim),
    );
    let (beta, alpha) = (values(tokens * heads), values(tokens * heads));
    let a: Vec<f32> = values(heads).iter().map(|v| -v.abs()).collect();
    let (dt, norm) = (values(heads), values(dim));
    let input = GatedDeltaInput {
        mixed: &mixed,
        gate: &gate,
        beta: &beta,
        alpha: &alpha,
        a: &a,
        dt: &dt,
        norm: &norm,
    };
    let mut states: Vec<_> = (0..layers).map(|_| values(heads * dim * dim)).collect();
    let mut out = vec![0.0; gate.len()];
    let cells = layers * tokens * heads * dim * dim;
    elementwise(
        &format!("gated_delta {layers} x {tokens} x {heads} x {dim}^2"),
        cells,
        || {
            for state in &mut states {
                gated_delta(black_box(input), &shape, state, &mut out).unwrap();
            }
        },
    );
    let shape = ShortConvShape {
        batch: 1,
        tokens,
        channels: 3 * heads * dim,
        kernel: 4,
    };
    let (taps, mut state) = (values(shape.channels * 4), values(shape.channels * 3));
    let mut out = vec![0.0; mixed.len()];
    let name = format!("short_conv {tokens} x {}", shape.channels);
    elementwise(&name, mixed.len(), || {
        short_conv(black_box(&mixed), &taps, &shape, &mut state, &mut out).unwrap();
    });
}

fn experts(tokens: usize) {
    let shape = ChoiceShape {
        tokens,
        experts: 128,
        used: 8,
        gating: Gating::Softmax,
        normalize: true,
        least_sum: 6e-5,
        scale: 1.0,
    };
    let logits = values(tokens * 128);
    let (mut ids, mut shares) = (vec![0; tokens * 8], vec![0.0; tokens * 8]);
    let name = format!("choose_experts {tokens} x 128");
    elementwise(&name, logits.len(), || {
        choose_experts(black_box(&logits), None, &shape, &mut ids, &mut shares).unwrap();
    });
    let shape = ExpertSumShape {
        tokens,
        used: 8,
        width: 2048,
    };
    let y = values(tokens * 8 * 2048);
    let mut out = vec![0.0; tokens * 2048];
    let name = format!("expert_sum {tokens} x 8 x 2048");
    elementwise(&name, y.len(), || {
        expert_sum(black_box(&y), &shares, None, &shape, &mut out).unwrap();
    });
}

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .unwrap_or_default();
    let available = std::thread::available_parallelism().map_or(1, |n| n.get());
    for threads in [1, 2] {
        if threads > available {
            println!("skipped: {threads} threads, this machine has {available}");
            continue;
        }
        println!("# {threads} thread(s)");
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a thread pool");
        pool.install(|| {
            for model in &MODELS {
                for (kind, tokens) in [("decode", 1), ("prefill", 512)] {
                    for depth in [0, 4096] {
                        for half in [false, true] {
                            if "attention".contains(&filter) || kind.contains(&filter) {
                                attention_case(model, tokens, depth, half);
                            }
                        }
                    }
                }
            }
            if "small".contains(&filter) {
                small_operations(1);
                small_operations(512);
            }
            for tokens in [1, 8, 512] {
                if "delta".contains(&filter) {
                    delta_net(tokens);
                }
                if "experts".contains(&filter) {
                    experts(tokens);
                }
            }
        });
    }
}
