//! The transformer-layer operations on CubeCL devices against plain `f64` code.
//!
//! Every case runs through burn on the `vulkan` device, and through the kernels alone on a Vulkan client, once compiled
//! to SPIR-V and once to WGSL, with every reduction that works there. Without a device the tests print why they were
//! skipped.
#![cfg(feature = "vulkan")]

mod oracle;
mod runner;

use burn_gguf::ops::{AttentionParams, BlockChoice, GluActivation, RopeStyle};
use oracle::{AttentionCase, Random};
use runner::{Cache, Runner, runners};

/// Largest accepted difference relative to the largest expected value, per operation.
mod tolerance {
    /// A mean of up to 5000 squares in `f32` partial sums, and a square root of 2 or 3 last bits.
    pub const RMS_NORM: f64 = 1e-5;
    /// Two sums of up to 5000 values, the second of differences from the first's mean.
    pub const LAYER_NORM: f64 = 2e-5;
    /// Two products and a sum.
    pub const ROPE: f64 = 1e-6;
    /// Vulkan grants an exponential of `x` an error of `3 + 2 |x|` last bits, and `|x|` is up to 20 here.
    pub const GLU: f64 = 1e-5;
    /// Scores are sums of up to 256 products, and weights exponentials of score differences of up to 30.
    pub const ATTENTION: f64 = 2e-5;
}

fn close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
    for (i, (&a, &b)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(a) - b).abs() / largest;
        assert!(
            error <= tolerance,
            "{what}, value {i}: {a} is not {b}, off by {error:e}"
        );
    }
}

#[test]
fn rms_norm_of_rows() {
    for runner in runners() {
        let mut random = Random(1);
        for dim in [1, 8, 63, 64, 80, 256, 896, 1024, 1026, 5000] {
            for rows in [1, 2, 17] {
                let x = random.values(rows * dim, 3.0);
                let weight = random.values(dim, 2.0);
                for eps in [1e-6, 0.5] {
                    let got = runner.rms_norm(&x, &weight, rows, eps);
                    let want = oracle::rms_norm(&x, &weight, eps);
                    let what = format!("{runner:?} {rows} x {dim}, eps {eps}");
                    close(&got, &want, tolerance::RMS_NORM, &what);
                }
            }
        }
    }
}

#[test]
fn rms_norm_of_zeros_is_zero() {
    for runner in runners() {
        let got = runner.rms_norm(&[0.0; 128], &[1.0; 64], 2, 1e-6);
        assert!(got.iter().all(|&v| v == 0.0), "{runner:?}: {got:?}");
    }
}

#[test]
fn layer_norm_of_rows() {
    for runner in runners() {
        let mut random = Random(8);
        for dim in [2, 8, 63, 64, 80, 1024, 1026, 5000] {
            for rows in [1, 2, 17] {
                let x = random.values(rows * dim, 3.0);
                let x: Vec<f32> = x.iter().map(|v| v + 1.0).collect();
                let (weight, bias) = (random.values(dim, 2.0), random.values(dim, 1.0));
                // A large epsilon, as two values may differ by little and their spread is then rounding.
                for eps in [1e-2, 0.5] {
                    let got = runner.layer_norm(&x, &weight, &bias, rows, eps);
                    let want = oracle::layer_norm(&x, &weight, &bias, eps);
                    let what = format!("{runner:?} {rows} x {dim}, eps {eps}");
                    close(&got, &want, tolerance::LAYER_NORM, &what);
                }
            }
        }
    }
}

#[test]
fn rope_of_whole_and_partial_heads() {
    for runner in runners() {
        let mut random = Random(2);
        for (dim, pairs) in [(8, 4), (64, 32), (80, 40), (80, 16), (256, 128), (7, 3)] {
            for (batch, seq, heads) in [(1, 1, 4), (1, 2, 1), (2, 17, 3)] {
                let x = random.values(batch * seq * heads * dim, 2.0);
                let angles = random.values(seq * pairs, 3.0);
                let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
                let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
                for style in [RopeStyle::Neox, RopeStyle::Norm] {
                    let shape = [batch, seq, heads, dim];
                    let got = runner.rope(&x, &cos, &sin, shape, pairs, style);
                    let want = oracle::rope(&x, &cos, &sin, shape, pairs, style);
                    let what = format!("{runner:?} {shape:?}, {pairs} pairs, {style:?}");
                    close(&got, &want, tolerance::ROPE, &what);
                }
            }
        }
    }
}

#[test]
fn glu_of_ordinary_and_extreme_gates() {
    const KINDS: [GluActivation; 3] = [
        GluActivation::Silu,
        GluActivation::GeluTanh,
        GluActivation::SwigluOai,
    ];
    for runner in runners() {
        let mut random = Random(3);
        for len in [1, 4, 63, 4864] {
            for range in [1.0, 20.0] {
                let (gate, up) = (random.values(len, range), random.values(len, range.sqrt()));
                for kind in KINDS {
                    let got = runner.glu(&gate, &up, kind);
                    let want = oracle::glu(&gate, &up, kind);
                    let what = format!("{runner:?} {len} values up to {range}, {kind:?}");
                    close(&got, &want, tolerance::GLU, &what);
                }
            }
        }
        let gate = [-1e10, -1e4, -100.0, -0.0, 0.0, 100.0, 1e4];
        for kind in KINDS {
            let one = if kind == GluActivation::SwigluOai {
                0.0
            } else {
                1.0
            };
            for (&x, y) in gate.iter().zip(runner.glu(&gate, &[one; 7], kind)) {
                let most = if kind == GluActivation::SwigluOai {
                    7.0
                } else {
                    x
                };
                let want = f32::max(x, 0.0).min(most.max(0.0));
                let what = format!("{runner:?} {kind:?} of {x}: {y}");
                assert!((y - want).abs() <= 1e-5 * want.abs().max(1.0), "{what}");
            }
        }
    }
}

#[test]
fn attention_of_every_shape_and_mask() {
    for runner in runners() {
        let mut random = Random(4);
        let mut cases = 0;
        for dim in [8, 30, 64, 80, 256] {
            for (batch, seq, heads, kv_heads, len) in [
                (1, 1, 1, 1, 1),
                (1, 1, 4, 2, 33),
                (1, 2, 3, 1, 300),
                (1, 17, 4, 4, 17),
                (2, 17, 6, 2, 40),
                (2, 1, 2, 1, 1100),
            ] {
                let capacity = len + len % 3;
                let base = AttentionParams {
                    len,
                    scale: 1.0 / (dim as f32).sqrt(),
                    causal: true,
                    window: None,
                    softcap: None,
                };
                let params = [
                    base,
                    AttentionParams {
                        causal: false,
                        ..base
                    },
                    AttentionParams {
                        window: Some(5),
                        ..base
                    },
                    AttentionParams {
                        window: Some(1),
                        softcap: Some(2.0),
                        ..base
                    },
                    AttentionParams {
                        window: Some(9),
                        causal: false,
                        ..base
                    },
                    // Scores far apart, where the largest one decides and is rescaled to.
                    AttentionParams {
                        scale: 3.0,
                        softcap: Some(15.0),
                        ..base
                    },
                ];
                let case = AttentionCase::random(
                    &mut random,
                    [batch, seq, heads, kv_heads, dim, capacity],
                );
                for params in params {
                    for cache in [Cache::F32, Cache::F16] {
                        let Some(got) = runner.attention(&case, &params, cache) else {
                            continue;
                        };
                        let want = case.expected(&params);
                        let what = format!("{runner:?} {case:?} {params:?} {cache:?}");
                        close(&got, &want, tolerance::ATTENTION, &what);
                        cases += 1;
                    }
                }
            }
        }
        println!("{runner:?}: {cases} cases");
    }
}

/// The widest heads there are, in Gemma 4.
#[test]
fn attention_of_wide_heads() {
    for runner in runners() {
        let [seq, heads, len, dim] = [2, 4, 70, 512];
        let case = AttentionCase::random(&mut Random(6), [1, seq, heads, 2, dim, len]);
        let params = AttentionParams {
            len,
            scale: 1.0 / (dim as f32).sqrt(),
            causal: true,
            window: None,
            softcap: None,
        };
        let Some(got) = runner.attention(&case, &params, Cache::F32) else {
            continue;
        };
        let what = format!("{runner:?} {case:?}");
        close(&got, &case.expected(&params), tolerance::ATTENTION, &what);
    }
}

#[test]
fn attention_over_blocks_of_every_size() {
    for runner in runners() {
        let mut random = Random(6);
        for dim in [30, 64, 256] {
            for (batch, seq, heads, kv_heads, len, size) in [
                (1, 1, 4, 2, 33, 8),
                (1, 17, 4, 4, 40, 5),
                (2, 9, 6, 2, 300, 32),
                (1, 3, 4, 1, 700, 128),
                (1, 2, 2, 1, 300, 1),
            ] {
                let shape = [batch, seq, heads, kv_heads, dim, len + 3];
                let case = AttentionCase::random(&mut random, shape);
                let case = case.with_blocks(&mut random, len, size);
                for (window, softcap) in [(None, None), (Some(70), Some(2.0))] {
                    let params = AttentionParams {
                        len,
                        scale: 1.0 / (dim as f32).sqrt(),
                        causal: true,
                        window,
                        softcap,
                    };
                    for cache in [Cache::F32, Cache::F16] {
                        let Some(got) = runner.attention(&case, &params, cache) else {
                            continue;
                        };
                        let want = case.expected(&params);
                        let what = format!("{runner:?} {case:?} {params:?} {cache:?}");
                        close(&got, &want, tolerance::ATTENTION, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn chosen_blocks_are_those_the_cpu_chooses() {
    for runner in runners() {
        let mut random = Random(7);
        for (batch, seq, heads, dim, len, size, top, local) in [
            (1, 1, 1, 8, 1, 4, 1, 1),
            (1, 1, 4, 128, 700, 16, 5, 1),
            (1, 48, 2, 32, 48, 8, 3, 1),
            (2, 7, 3, 30, 400, 8, 6, 2),
            (1, 3, 2, 16, 90, 1, 0, 0),
            (1, 3, 2, 16, 90, 16, 9, 3),
        ] {
            let capacity = len + 5;
            let q = random.values(batch * seq * heads * dim, 1.0);
            let k = random.values(batch * capacity * dim, 1.0);
            let choice = BlockChoice {
                len,
                size,
                top,
                local,
            };
            let shapes = ([batch, seq, heads, dim], [batch, 1, capacity, dim]);
            let got = runner.choose_blocks((&q, shapes.0), (&k, shapes.1), choice);
            let want = oracle::choose_blocks(&q, &k, shapes, choice);
            assert_eq!(got, want, "{runner:?} {shapes:?} {choice:?}");
        }
        // Of equal blocks the earlier.
        let (q, k) = (vec![1.0; 4], vec![2.0; 4 * 64]);
        let choice = BlockChoice {
            len: 64,
            size: 8,
            top: 3,
            local: 1,
        };
        let got = runner.choose_blocks((&q, [1, 1, 1, 4]), (&k, [1, 1, 64, 4]), choice);
        assert_eq!(got, [0b1000_0011], "{runner:?}");
    }
}

#[test]
fn cache_append_writes_the_rows_and_nothing_else() {
    let Some(runner) = runners().into_iter().find(|r| matches!(r, Runner::Burn(_))) else {
        return;
    };
    let mut random = Random(5);
    for (shape, seq, position) in [
        ([1, 2, 8, 8], 1, 0),
        ([1, 1, 9, 64], 3, 6),
        ([2, 3, 40, 80], 17, 5),
    ] {
        let [batch, heads, capacity, dim] = shape;
        let cache = random.values(batch * heads * capacity * dim, 1.0);
        let rows = random.values(batch * seq * heads * dim, 1.0);
        let got = runner.cache_append(&cache, &rows, shape, seq, position);
        let want = oracle::cache_append(&cache, &rows, shape, seq, position);
        assert_eq!(got, want, "{shape:?}, {seq} rows at {position}");
    }
}
