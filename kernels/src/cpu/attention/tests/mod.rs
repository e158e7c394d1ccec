//! Every kernel on every ISA against a plain `f64` oracle.

mod blocks;

use super::*;
use crate::cpu::testing::{ATTENTION, ATTENTION_CAPPED, Rng, assert_close, isas};
use crate::cpu::{KvViewMut, append_kv};
use half::f16;

struct Case {
    shape: AttentionShape,
    q: Vec<f32>,
    /// In the cache's layout, already rounded to `f16`, so that both element types hold the same values.
    k: Vec<f32>,
    v: Vec<f32>,
    /// Bits and size of the blocks that are seen, where not all are.
    blocks: Option<(Vec<u32>, usize)>,
}

impl Case {
    /// Rows from `len` on are NaN: they must not be read.
    fn new(
        rng: &mut Rng,
        tokens: usize,
        n_heads: usize,
        n_kv_heads: usize,
        head_dim: usize,
        len: usize,
    ) -> Case {
        let capacity = len + 3;
        let shape = AttentionShape {
            tokens,
            n_heads,
            n_kv_heads,
            head_dim,
            capacity,
            len,
        };
        let mut cache = || {
            let x: Vec<f32> = rng.normal(len * n_kv_heads * head_dim);
            let x: Vec<f32> = x.iter().map(|&x| f16::from_f32(x).to_f32()).collect();
            let mut cache = vec![f32::NAN; n_kv_heads * capacity * head_dim];
            append_kv(
                KvViewMut::F32(&mut cache),
                n_kv_heads,
                capacity,
                head_dim,
                0,
                &x,
            )
            .unwrap();
            cache
        };
        let (k, v) = (cache(), cache());
        Case {
            shape,
            q: rng.normal(tokens * n_heads * head_dim),
            k,
            v,
            blocks: None,
        }
    }

    /// With one block in `one_in` seen, by chance.
    fn with_blocks(mut self, rng: &mut Rng, size: usize, one_in: f32) -> Case {
        let s = &self.shape;
        let words = KeyBlocks::words(s.len, size);
        let mut bits = vec![0u32; s.tokens * s.n_kv_heads * words];
        for word in &mut bits {
            *word = (0..32).fold(0, |word, bit| {
                let seen = (rng.uniform() + 1.0) * 0.5 * one_in < 1.0;
                word | u32::from(seen) << bit
            });
        }
        self.blocks = Some((bits, size));
        self
    }

    fn run(
        &self,
        isa: Isa,
        method: Option<Method>,
        params: &AttentionParams,
        half: bool,
    ) -> Vec<f32> {
        let to_half = |x: &[f32]| x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>();
        let mut out = vec![f32::NAN; self.q.len()];
        let (kh, vh) = if half {
            (to_half(&self.k), to_half(&self.v))
        } else {
            (vec![], vec![])
        };
        let (k, v) = if half {
            (KvView::F16(&kh), KvView::F16(&vh))
        } else {
            (KvView::F32(&self.k), KvView::F32(&self.v))
        };
        let blocks = self.blocks.as_ref();
        let blocks = blocks.map(|(bits, size)| KeyBlocks { bits, size: *size });
        let shape = &self.shape;
        attention_with(isa, method, &self.q, k, v, shape, params, blocks, &mut out).unwrap();
        out
    }

    fn oracle(&self, params: &AttentionParams) -> Vec<f64> {
        let s = &self.shape;
        let d = s.head_dim;
        let mut out = vec![0.0f64; self.q.len()];
        for t in 0..s.tokens {
            let position = s.len - s.tokens + t;
            for h in 0..s.n_heads {
                let kv = h / (s.n_heads / s.n_kv_heads);
                let row = (t * s.n_heads + h) * d;
                let q = &self.q[row..row + d];
                let keys: Vec<usize> = (0..s.len)
                    .filter(|&p| !params.causal || p <= position)
                    .filter(|&p| {
                        params
                            .window
                            .is_none_or(|w| (position as i128 - p as i128) < w as i128)
                    })
                    .filter(|&p| {
                        self.blocks.as_ref().is_none_or(|(bits, size)| {
                            let words = KeyBlocks::words(s.len, *size);
                            let word = (t * s.n_kv_heads + kv) * words + p / size / 32;
                            bits[word] & 1 << (p / size % 32) != 0
                        })
                    })
                    .collect();
                let score = |p: usize| {
                    let k = &self.k[(kv * s.capacity + p) * d..][..d];
                    let dot: f64 = q.iter().zip(k).map(|(&a, &b)| a as f64 * b as f64).sum();
                    let x = dot * params.scale as f64;
                    params
                        .softcap
                        .map_or(x, |c| c as f64 * (x / c as f64).tanh())
                };
                let scores: Vec<f64> = keys.iter().map(|&p| score(p)).collect();
                let max = scores.iter().copied().fold(f64::MIN, f64::max);
                let total: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                for (&p, x) in keys.iter().zip(&scores) {
                    let w = (x - max).exp() / total;
                    let v = &self.v[(kv * s.capacity + p) * d..][..d];
                    for (o, &v) in out[row..row + d].iter_mut().zip(v) {
                        *o += w * v as f64;
                    }
                }
            }
        }
        out
    }

    fn check(&self, params: &AttentionParams) {
        let expect = self.oracle(params);
        let tolerance = if params.softcap.is_some() {
            ATTENTION_CAPPED
        } else {
            ATTENTION
        };
        for isa in isas() {
            for method in [None, Some(Method::Tile), Some(Method::Stream)] {
                for half in [false, true] {
                    let got = self.run(isa, method, params, half);
                    let what =
                        format!("{isa:?} {method:?} half={half} {:?} {params:?}", self.shape);
                    assert_close(&got, &expect, tolerance, &what);
                }
            }
        }
    }
}

fn causal(head_dim: usize) -> AttentionParams {
    AttentionParams {
        scale: 1.0 / (head_dim as f32).sqrt(),
        causal: true,
        window: None,
        softcap: None,
    }
}

#[test]
fn head_dims() {
    let mut rng = Rng::new(10);
    for d in [1, 3, 8, 17, 64, 80, 96, 127, 128, 256, 512] {
        for tokens in [1, 7, 33] {
            Case::new(&mut rng, tokens, 4, 2, d, tokens + 150).check(&causal(d));
        }
    }
}

#[test]
fn tokens_and_lengths() {
    let mut rng = Rng::new(11);
    for (tokens, len) in [
        (0, 0),
        (0, 9),
        (1, 1),
        (2, 2),
        (7, 7),
        (33, 33),
        (130, 130),
        (1, 97),
        (2, 96),
        (7, 1000),
        (130, 517),
        (33, 129),
        (1, 4097),
    ] {
        Case::new(&mut rng, tokens, 3, 1, 16, len).check(&causal(16));
    }
}

#[test]
fn head_groups() {
    let mut rng = Rng::new(12);
    for (n_heads, n_kv) in [(1, 1), (14, 2), (4, 1), (5, 5), (8, 1), (71, 1), (32, 4)] {
        for tokens in [1, 3, 19] {
            Case::new(&mut rng, tokens, n_heads, n_kv, 24, tokens + 230).check(&causal(24));
        }
    }
}

#[test]
fn windows() {
    let mut rng = Rng::new(13);
    for (tokens, len) in [(1, 700), (5, 300), (130, 300), (130, 130)] {
        let case = Case::new(&mut rng, tokens, 2, 1, 32, len);
        for window in [1, 2, 16, 95, 96, 97, 128, 129, 300, 5000, usize::MAX] {
            case.check(&AttentionParams {
                window: Some(window),
                ..causal(32)
            });
            case.check(&AttentionParams {
                window: Some(window),
                causal: false,
                ..causal(32)
            });
        }
    }
}

#[test]
fn not_causal() {
    let mut rng = Rng::new(14);
    for (tokens, len) in [(1, 50), (40, 40), (130, 257)] {
        Case::new(&mut rng, tokens, 6, 2, 64, len).check(&AttentionParams {
            causal: false,
            ..causal(64)
        });
    }
}

#[test]
fn soft_caps() {
    let mut rng = Rng::new(15);
    for cap in [0.5, 2.0, 50.0] {
        for (tokens, len) in [(1, 300), (33, 200)] {
            let params = AttentionParams {
                softcap: Some(cap),
                scale: 1.0,
                ..causal(64)
            };
            Case::new(&mut rng, tokens, 4, 2, 64, len).check(&params);
        }
    }
}

#[test]
fn nothing_visible_gives_zeros() {
    let mut rng = Rng::new(16);
    let case = Case::new(&mut rng, 20, 2, 1, 16, 150);
    let params = AttentionParams {
        window: Some(0),
        ..causal(16)
    };
    for isa in isas() {
        for method in [Method::Tile, Method::Stream] {
            assert_eq!(
                case.run(isa, Some(method), &params, false),
                vec![0.0; case.q.len()]
            );
        }
    }
    // Later keys are still visible here, to all but the last token.
    case.check(&AttentionParams {
        window: Some(0),
        causal: false,
        ..causal(16)
    });
}

#[test]
fn huge_scores_stay_finite() {
    let mut rng = Rng::new(17);
    for size in [1e3f32, 1e12, 1e30] {
        let mut case = Case::new(&mut rng, 18, 2, 1, 16, 300);
        case.q.iter_mut().for_each(|q| *q *= size);
        for isa in isas() {
            for method in [Method::Tile, Method::Stream] {
                let out = case.run(isa, Some(method), &causal(16), false);
                // Softmax is next to the arg max: an average of values, of order 1.
                assert!(
                    out.iter().all(|x| x.abs() <= 3.01),
                    "{isa:?} {method:?} {size}"
                );
            }
        }
    }
}

#[test]
fn scores_growing_along_the_keys_rescale() {
    let mut rng = Rng::new(18);
    let mut case = Case::new(&mut rng, 20, 2, 1, 16, 600);
    case.q.fill(0.25);
    for (i, k) in case.k.iter_mut().enumerate() {
        let row = i / 16;
        *k = if row < 600 {
            f16::from_f32(row as f32 / 64.0).to_f32()
        } else {
            f32::NAN
        };
    }
    case.check(&causal(16));
}

#[test]
fn key_splits_in_a_pool_of_many_threads() {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(5)
        .build()
        .unwrap();
    pool.install(|| {
        let mut rng = Rng::new(19);
        for (tokens, heads, kv, d, len) in [
            (1, 4, 1, 256, 4097),
            (2, 14, 2, 64, 3000),
            (9, 4, 1, 64, 2500),
        ] {
            let case = Case::new(&mut rng, tokens, heads, kv, d, len);
            case.check(&causal(d));
            case.check(&AttentionParams {
                window: Some(1000),
                ..causal(d)
            });
        }
        let case = Case::new(&mut rng, 1, 4, 1, 64, 4096);
        let problem = Problem {
            q: &case.q,
            k: &case.k[..],
            v: &case.v[..],
            shape: case.shape,
            params: causal(64),
            blocks: None,
        };
        assert!(
            problem.plan(Method::Stream).0.len() > 4,
            "this test is meant to split the keys"
        );
    });
}

#[test]
fn bad_shapes_are_errors() {
    let shape = AttentionShape {
        tokens: 1,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 2,
        capacity: 3,
        len: 2,
    };
    let call = |shape: &AttentionShape, q: usize, k: usize| {
        let (q, k, v) = (vec![0.0; q], vec![0.0; k], vec![0.0; 12]);
        attention(
            &q,
            KvView::F32(&k),
            KvView::F32(&v),
            shape,
            &causal(2),
            &mut [0.0; 8],
        )
    };
    assert_eq!(call(&shape, 8, 12), Ok(()));
    assert_eq!(
        call(&shape, 7, 12),
        Err(ShapeError::Length {
            what: "q",
            expected: 8,
            got: 7
        })
    );
    assert_eq!(
        call(&shape, 8, 11),
        Err(ShapeError::Length {
            what: "k",
            expected: 12,
            got: 11
        })
    );
    let with = |f: fn(&mut AttentionShape)| {
        let mut s = shape;
        f(&mut s);
        call(&s, 8, 12)
    };
    assert_eq!(
        with(|s| s.n_kv_heads = 3),
        Err(ShapeError::HeadGroups {
            n_heads: 4,
            n_kv_heads: 3
        })
    );
    assert_eq!(
        with(|s| s.n_kv_heads = 0),
        Err(ShapeError::Zero { what: "n_kv_heads" })
    );
    assert_eq!(
        with(|s| s.len = 4),
        Err(ShapeError::CacheFull {
            rows: 4,
            capacity: 3
        })
    );
    assert_eq!(
        with(|s| s.len = 0),
        Err(ShapeError::CacheTooShort { tokens: 1, len: 0 })
    );
    assert_eq!(
        with(|s| s.tokens = 2),
        Err(ShapeError::Length {
            what: "q",
            expected: 16,
            got: 8
        })
    );
    assert_eq!(
        with(|s| s.head_dim = usize::MAX),
        Err(ShapeError::Overflow { what: "q" })
    );
}
