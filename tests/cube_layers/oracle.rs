//! The operations as their definitions read, in `f64`.

use burn_gguf::ops::{AttentionParams, BlockChoice, GluActivation, RopeStyle};
use burn_gguf_kernels::cpu;

/// A small generator (xorshift32), so that tests repeat exactly.
pub struct Random(pub u32);

impl Random {
    /// Evenly distributed bits, no word of them zero.
    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    fn float(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    /// `n` values evenly in `-range..range`.
    pub fn values(&mut self, n: usize, range: f32) -> Vec<f32> {
        (0..n).map(|_| self.float() * range).collect()
    }
}

pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    x.chunks(weight.len())
        .flat_map(|row| {
            let sum: f64 = row.iter().map(|&v| f64::from(v).powi(2)).sum();
            let norm = 1.0 / (sum / row.len() as f64 + f64::from(eps)).sqrt();
            row.iter()
                .zip(weight)
                .map(move |(&v, &w)| f64::from(v) * norm * f64::from(w))
        })
        .collect()
}

pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f64> {
    x.chunks(weight.len())
        .flat_map(|row| {
            let n = row.len() as f64;
            let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
            let variance = row
                .iter()
                .map(|&v| (f64::from(v) - mean).powi(2))
                .sum::<f64>()
                / n;
            let norm = 1.0 / (variance + f64::from(eps)).sqrt();
            row.iter()
                .zip(weight.iter().zip(bias))
                .map(move |(&v, (&w, &b))| {
                    (f64::from(v) - mean) * norm * f64::from(w) + f64::from(b)
                })
        })
        .collect()
}

pub fn rope(
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    [_, seq, heads, dim]: [usize; 4],
    pairs: usize,
    style: RopeStyle,
) -> Vec<f64> {
    let mut out: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
    for (i, head) in out.chunks_mut(dim).enumerate() {
        let token = i / heads % seq;
        for pair in 0..pairs {
            let (a, b) = match style {
                RopeStyle::Neox => (pair, pair + pairs),
                RopeStyle::Norm => (2 * pair, 2 * pair + 1),
            };
            let c = f64::from(cos[token * pairs + pair]);
            let s = f64::from(sin[token * pairs + pair]);
            (head[a], head[b]) = (head[a] * c - head[b] * s, head[a] * s + head[b] * c);
        }
    }
    out
}

pub fn glu(gate: &[f32], up: &[f32], kind: GluActivation) -> Vec<f64> {
    let activation = |x: f64| match kind {
        GluActivation::Silu => x / (1.0 + (-x).exp()),
        GluActivation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        GluActivation::SwigluOai => x / (1.0 + (-1.702 * x).exp()),
    };
    gate.iter()
        .zip(up)
        .map(|(&g, &u)| {
            let (g, u) = (f64::from(g), f64::from(u));
            match kind {
                GluActivation::SwigluOai => activation(g.min(7.0)) * (u.clamp(-7.0, 7.0) + 1.0),
                _ => activation(g) * u,
            }
        })
        .collect()
}

pub fn cache_append(
    cache: &[f32],
    rows: &[f32],
    [batch, heads, capacity, dim]: [usize; 4],
    seq: usize,
    position: usize,
) -> Vec<f32> {
    let mut out = cache.to_vec();
    for b in 0..batch {
        for h in 0..heads {
            for t in 0..seq {
                let to = ((b * heads + h) * capacity + position + t) * dim;
                let from = ((b * seq + t) * heads + h) * dim;
                out[to..to + dim].copy_from_slice(&rows[from..from + dim]);
            }
        }
    }
    out
}

/// The kernel of the CPU, which has an oracle of its own.
pub fn choose_blocks(
    q: &[f32],
    k: &[f32],
    ([batch, seq, heads, dim], [_, _, capacity, _]): ([usize; 4], [usize; 4]),
    choice: BlockChoice,
) -> Vec<u32> {
    let shape = cpu::BlockChoiceShape {
        tokens: seq,
        heads,
        dim,
        len: choice.len,
        size: choice.size,
        top: choice.top,
        local: choice.local,
    };
    let words = seq * heads * BlockChoice::words(choice.len, choice.size);
    let mut bits = vec![0; batch * words];
    for (i, bits) in bits.chunks_mut(words).enumerate() {
        let q = &q[i * seq * heads * dim..][..seq * heads * dim];
        let k = &k[i * capacity * dim..][..capacity * dim];
        cpu::choose_blocks(q, k, &shape, bits).unwrap();
    }
    bits
}

/// Operands of one attention call. Cache values are exact in `f16`, so that both cache types expect the same.
pub struct AttentionCase {
    pub batch: usize,
    pub seq: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub dim: usize,
    pub capacity: usize,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    /// Bits and size of the blocks that are seen, where not all are.
    pub blocks: Option<(Vec<u32>, usize)>,
}

impl std::fmt::Debug for AttentionCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "batch {}, seq {}, heads {}/{}, dim {}, capacity {}, blocks of {:?}",
            self.batch,
            self.seq,
            self.heads,
            self.kv_heads,
            self.dim,
            self.capacity,
            self.blocks.as_ref().map(|(_, size)| size)
        )
    }
}

impl AttentionCase {
    pub fn random(
        random: &mut Random,
        [batch, seq, heads, kv_heads, dim, capacity]: [usize; 6],
    ) -> Self {
        let q = random.values(batch * seq * heads * dim, 1.5);
        let mut cache = || {
            let values = random.values(batch * kv_heads * capacity * dim, 1.5);
            values
                .iter()
                .map(|&v| (v * 256.0).round() / 256.0)
                .collect()
        };
        let (k, v) = (cache(), cache());
        Self {
            batch,
            seq,
            heads,
            kv_heads,
            dim,
            capacity,
            q,
            k,
            v,
            blocks: None,
        }
    }

    /// With about half the blocks seen, and one in all of one head of one token.
    pub fn with_blocks(mut self, random: &mut Random, len: usize, size: usize) -> Self {
        let words = BlockChoice::words(len, size);
        let mut bits: Vec<u32> = (0..self.batch * self.seq * self.kv_heads * words)
            .map(|_| random.bits())
            .collect();
        bits[..words].fill(0);
        bits[0] = 1;
        self.blocks = Some((bits, size));
        self
    }

    pub fn expected(&self, params: &AttentionParams) -> Vec<f64> {
        let d = self.dim;
        let mut out = Vec::with_capacity(self.q.len());
        for (i, q) in self.q.chunks(d).enumerate() {
            let head = i % self.heads;
            let position = params.len - self.seq + i / self.heads % self.seq;
            let item = i / self.heads / self.seq;
            let first = item * self.kv_heads + head / (self.heads / self.kv_heads);
            let row = |cache: &[f32], key: usize| -> Vec<f64> {
                cache[(first * self.capacity + key) * d..][..d]
                    .iter()
                    .map(|&v| f64::from(v))
                    .collect()
            };
            let mut sum = 0.0;
            let mut acc = vec![0.0; d];
            for key in 0..params.len {
                let hidden = params.causal && key > position
                    || params.window.is_some_and(|w| key + w <= position);
                let seen = self.blocks.as_ref().is_none_or(|(bits, size)| {
                    let words = BlockChoice::words(params.len, *size);
                    let row = (i / self.heads * self.kv_heads + first % self.kv_heads) * words;
                    bits[row + key / size / 32] & 1 << (key / size % 32) != 0
                });
                if hidden || !seen {
                    continue;
                }
                let products = row(&self.k, key).into_iter().zip(q);
                let mut score: f64 = products.map(|(k, &q)| k * f64::from(q)).sum();
                score *= f64::from(params.scale);
                if let Some(cap) = params.softcap.map(f64::from) {
                    score = cap * (score / cap).tanh();
                }
                // Scores of these cases are far from the range of `f64`'s exponential.
                let weight = score.exp();
                sum += weight;
                for (acc, v) in acc.iter_mut().zip(row(&self.v, key)) {
                    *acc += weight * v;
                }
            }
            let sum = if sum == 0.0 { 1.0 } else { sum };
            out.extend(acc.into_iter().map(|v| v / sum));
        }
        out
    }
}
