//! What every operation should give, in f64 on the host.

pub mod delta_net;
pub mod experts;

use burn_gguf::GgmlType;
use burn_gguf::ops::{AttentionParams, BlockChoice, GeluKind, GluActivation, RopeStyle};
use burn_gguf_kernels::blocks::{BlockType, BlockVisitor, CodeBlock, FloatBlock, visit};

use crate::compare::Expected;

struct Decode<'a>(&'a [u8]);

impl Decode<'_> {
    fn decode<T: BlockType>(self) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len() / T::BYTES * T::LEN];
        for (block, out) in self
            .0
            .chunks_exact(T::BYTES)
            .zip(out.chunks_exact_mut(T::LEN))
        {
            T::dequantize_block(block, out);
        }
        out
    }
}

impl BlockVisitor for Decode<'_> {
    type Output = Vec<f32>;

    fn float<T: FloatBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }

    fn code<T: CodeBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }
}

/// The values of blocks by the scalar decoder.
pub fn decode(ty: GgmlType, blocks: &[u8]) -> Vec<f32> {
    visit(ty, Decode(blocks)).expect("a computable type has a decoder")
}

/// The same values in f64.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// `x . W^T`: x `[n, cols]`, w `[rows, cols]`.
pub fn linear(x: &[f32], w: &[f32], cols: usize) -> Expected {
    let rows = x.chunks_exact(cols);
    Expected::sums(rows.flat_map(|x| products(x, w, cols)).collect())
}

/// The product of each row of w `[rows, cols]` with `x`, beside the root of its squared terms' sum.
pub fn products(x: &[f32], w: &[f32], cols: usize) -> impl Iterator<Item = (f64, f64)> {
    w.chunks_exact(cols).map(move |w| {
        // Several sums at once, which is all the speed this needs.
        let (mut sums, mut squares) = ([0f64; 8], [0f64; 8]);
        for (x, w) in x.chunks(8).zip(w.chunks(8)) {
            for (i, (&x, &w)) in x.iter().zip(w).enumerate() {
                let term = f64::from(x) * f64::from(w);
                sums[i] += term;
                squares[i] += term * term;
            }
        }
        (sums.iter().sum::<f64>(), squares.iter().sum::<f64>().sqrt())
    })
}

/// Rows of `dim` values.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    x.chunks_exact(weight.len())
        .flat_map(|row| {
            let mean = wide(row).iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + f64::from(eps)).sqrt();
            row.iter()
                .zip(weight)
                .map(move |(&v, &w)| f64::from(v) * scale * f64::from(w))
        })
        .collect()
}

/// Rows of `dim` values.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f64> {
    x.chunks_exact(weight.len())
        .flat_map(|row| {
            let n = row.len() as f64;
            let mean = wide(row).iter().sum::<f64>() / n;
            let variance = wide(row).iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
            let scale = 1.0 / (variance + f64::from(eps)).sqrt();
            row.iter()
                .zip(weight.iter().zip(bias))
                .map(move |(&v, (&w, &b))| {
                    (f64::from(v) - mean) * scale * f64::from(w) + f64::from(b)
                })
        })
        .collect()
}

/// GELU, element by element.
pub fn gelu(x: &[f32], kind: GeluKind) -> Vec<f64> {
    let tanh = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    wide(x)
        .into_iter()
        .map(|x| match kind {
            GeluKind::Erf => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
            GeluKind::Tanh => 0.5 * x * (1.0 + tanh(x).tanh()),
            GeluKind::Quick => x / (1.0 + (-1.702 * x).exp()),
        })
        .collect()
}

/// The error function by its Taylor series, which keeps 1e-10 up to |x| = 4; beyond, it is 1 but for 2e-8.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// x `[batch, seq, heads, dim]`, tables `[seq, half]`.
pub fn rope(
    x: &[f32],
    [seq, heads, dim]: [usize; 3],
    cos: &[f32],
    sin: &[f32],
    style: RopeStyle,
) -> Vec<f64> {
    let half = cos.len() / seq;
    let mut out = wide(x);
    for (i, head) in out.chunks_exact_mut(dim).enumerate() {
        let position = i / heads % seq;
        for j in 0..half {
            let (a, b) = match style {
                RopeStyle::Neox => (j, j + half),
                RopeStyle::Norm => (2 * j, 2 * j + 1),
            };
            let (c, s) = (
                f64::from(cos[position * half + j]),
                f64::from(sin[position * half + j]),
            );
            (head[a], head[b]) = (head[a] * c - head[b] * s, head[a] * s + head[b] * c);
        }
    }
    out
}

/// `activation(gate) * up`.
pub fn glu(gate: &[f32], up: &[f32], activation: GluActivation) -> Vec<f64> {
    let active = |x: f64| match activation {
        GluActivation::Silu => x / (1.0 + (-x).exp()),
        GluActivation::GeluTanh => {
            0.5 * x
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        GluActivation::SwigluOai => x / (1.0 + (-1.702 * x).exp()),
    };
    gate.iter()
        .zip(up)
        .map(|(&g, &u)| {
            let (g, u) = (f64::from(g), f64::from(u));
            match activation {
                GluActivation::SwigluOai => active(g.min(7.0)) * (u.clamp(-7.0, 7.0) + 1.0),
                _ => active(g) * u,
            }
        })
        .collect()
}

/// Shape of an attention call.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Sequences.
    pub batch: usize,
    /// New positions of each.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Positions the cache has room for.
    pub capacity: usize,
    /// Values of a head.
    pub dim: usize,
}

/// q `[batch, seq, heads, dim]`; k, v `[batch, kv_heads, capacity, dim]`.
pub fn attention(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    shape: Heads,
    params: AttentionParams,
) -> Vec<f64> {
    attention_where(q, k, v, shape, params, |_, _, _| true)
}

/// The same over those keys of which `seen([sequence, position of the call], key head, key)` holds.
pub fn attention_where(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    shape: Heads,
    params: AttentionParams,
    seen: impl Fn([usize; 2], usize, usize) -> bool,
) -> Vec<f64> {
    let Heads {
        batch,
        seq,
        heads,
        kv_heads,
        capacity,
        dim,
    } = shape;
    let mut out = vec![0f64; q.len()];
    for b in 0..batch {
        for s in 0..seq {
            for h in 0..heads {
                let at = ((b * seq + s) * heads + h) * dim;
                let kv = (b * kv_heads + h / (heads / kv_heads)) * capacity * dim;
                let position = params.len - seq + s;
                let visible = |key: usize| {
                    (!params.causal || key <= position)
                        && params.window.is_none_or(|w| key + w > position)
                        && seen([b, s], h / (heads / kv_heads), key)
                };
                let score = |key: usize| {
                    let rows =
                        (0..dim).map(|d| f64::from(q[at + d]) * f64::from(k[kv + key * dim + d]));
                    let score = rows.sum::<f64>() * f64::from(params.scale);
                    match params.softcap {
                        Some(cap) => f64::from(cap) * (score / f64::from(cap)).tanh(),
                        None => score,
                    }
                };
                let scores: Vec<_> = (0..params.len)
                    .filter(|&key| visible(key))
                    .map(|key| (key, score(key)))
                    .collect();
                let max = scores.iter().fold(f64::MIN, |m, (_, s)| m.max(*s));
                let sum: f64 = scores.iter().map(|(_, s)| (s - max).exp()).sum();
                for (key, score) in scores {
                    let weight = (score - max).exp() / sum;
                    for d in 0..dim {
                        out[at + d] += weight * f64::from(v[kv + key * dim + d]);
                    }
                }
            }
        }
    }
    out
}

/// Which blocks of keys each head of q `[batch, seq, heads, dim]` sees, `[batch, seq, heads, blocks]`, 0 or 1; k
/// `[batch, 1, capacity, dim]`. A block counts by its best key up to the position.
pub fn choose_blocks(q: &[f32], k: &[f32], shape: Heads, choice: BlockChoice) -> Vec<f64> {
    let Heads {
        seq,
        heads,
        capacity,
        dim,
        ..
    } = shape;
    let blocks = choice.len.div_ceil(choice.size);
    let mut out = Vec::new();
    for (row, q) in q.chunks_exact(dim).enumerate() {
        let (b, s) = (row / heads / seq, row / heads % seq);
        let position = choice.len - seq + s;
        let own = position / choice.size;
        let score = |key: usize| {
            let k = &k[(b * capacity + key) * dim..][..dim];
            let products = q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k));
            products.sum::<f64>()
        };
        let mut order: Vec<(f64, usize)> = (0..=own)
            .map(|block| {
                let keys = block * choice.size..((block + 1) * choice.size).min(position + 1);
                let best = keys.map(score).fold(f64::MIN, f64::max);
                let local = block + choice.local > own;
                (if local { f64::MAX } else { best }, block)
            })
            .collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        order.truncate(choice.top);
        out.extend((0..blocks).map(|block| f64::from(order.iter().any(|&(_, b)| b == block))));
    }
    out
}
