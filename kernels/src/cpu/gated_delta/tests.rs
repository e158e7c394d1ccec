use super::*;
use crate::cpu::testing::{Rng, isas};

struct Case {
    shape: GatedDeltaShape,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    beta: Vec<f32>,
    alpha: Vec<f32>,
    a: Vec<f32>,
    dt: Vec<f32>,
    norm: Vec<f32>,
    state: Vec<f32>,
}

impl Case {
    fn new(seed: u64, shape: GatedDeltaShape) -> Self {
        let mut rng = Rng::new(seed);
        let (rows, dim) = (shape.batch * shape.tokens, shape.head_dim);
        let (keys, heads) = (shape.key_heads, shape.value_heads);
        Self {
            shape,
            mixed: rng.normal(rows * (2 * keys + heads) * dim),
            gate: rng.normal(rows * heads * dim),
            beta: rng.normal(rows * heads),
            // Some decays vanish.
            alpha: rng.normal(rows * heads).iter().map(|v| v * 20.0).collect(),
            a: rng.normal(heads).iter().map(|v| -v.abs()).collect(),
            dt: rng.normal(heads),
            norm: rng.normal(dim),
            state: rng.normal(shape.batch * heads * dim * dim),
        }
    }

    /// The tokens of `range` of a single sequence.
    fn part(&self, range: Range<usize>) -> (GatedDeltaInput<'_>, GatedDeltaShape) {
        assert_eq!(self.shape.batch, 1);
        let shape = GatedDeltaShape {
            tokens: range.len(),
            ..self.shape
        };
        let cut = |of: &'_ [f32]| {
            let width = of.len() / self.shape.tokens;
            range.start * width..range.end * width
        };
        let input = GatedDeltaInput {
            mixed: &self.mixed[cut(&self.mixed)],
            gate: &self.gate[cut(&self.gate)],
            beta: &self.beta[cut(&self.beta)],
            alpha: &self.alpha[cut(&self.alpha)],
            ..self.input()
        };
        (input, shape)
    }

    fn input(&self) -> GatedDeltaInput<'_> {
        GatedDeltaInput {
            mixed: &self.mixed,
            gate: &self.gate,
            beta: &self.beta,
            alpha: &self.alpha,
            a: &self.a,
            dt: &self.dt,
            norm: &self.norm,
        }
    }

    /// Output and state, as the definition says.
    fn oracle(&self) -> (Vec<f64>, Vec<f64>) {
        let s = &self.shape;
        let (dim, keys, heads) = (s.head_dim, s.key_heads, s.value_heads);
        let wide = |x: &[f32]| x.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
        let eps = f64::from(s.eps);
        let mut state = wide(&self.state);
        let mut out = Vec::new();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for (row, mixed) in self.mixed.chunks((2 * keys + heads) * dim).enumerate() {
            let mixed = wide(mixed);
            for n in 0..heads {
                let key_head = if s.grouped {
                    n / (heads / keys)
                } else {
                    n % keys
                };
                let unit = |at: usize, scale: f64| {
                    let x = &mixed[at * dim..][..dim];
                    let norm = (x.iter().map(|v| v * v).sum::<f64>() + eps).sqrt() / scale;
                    x.iter().map(|v| v / norm).collect::<Vec<_>>()
                };
                let q = unit(key_head, 1.0 / (dim as f64).sqrt());
                let k = unit(keys + key_head, 1.0);
                let v = &mixed[(2 * keys + n) * dim..][..dim];
                let at = row * heads + n;
                let step = f64::from(self.alpha[at]) + f64::from(self.dt[n]);
                let decay = (f64::from(self.a[n]) * step.exp().ln_1p()).exp();
                let beta = sigmoid(f64::from(self.beta[at]));
                let item = row / s.tokens;
                let matrix = &mut state[(item * heads + n) * dim * dim..][..dim * dim];
                matrix.iter_mut().for_each(|v| *v *= decay);
                let mut o = vec![0.0; dim];
                for (j, o) in o.iter_mut().enumerate() {
                    let said: f64 = (0..dim).map(|i| matrix[i * dim + j] * k[i]).sum();
                    let d = beta * (v[j] - said);
                    for i in 0..dim {
                        matrix[i * dim + j] += k[i] * d;
                        *o += matrix[i * dim + j] * q[i];
                    }
                }
                let norm = (o.iter().map(|v| v * v).sum::<f64>() / dim as f64 + eps).sqrt();
                for (j, o) in o.iter().enumerate() {
                    let g = f64::from(self.gate[at * dim + j]);
                    out.push(o / norm * f64::from(self.norm[j]) * g * sigmoid(g));
                }
            }
        }
        (out, state)
    }
}

fn shape(batch: usize, tokens: usize, heads: [usize; 2], head_dim: usize) -> GatedDeltaShape {
    GatedDeltaShape {
        batch,
        tokens,
        key_heads: heads[0],
        value_heads: heads[1],
        head_dim,
        grouped: false,
        eps: 1e-6,
    }
}

/// The largest error relative to the largest value.
fn error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let size = want.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let errors = got.iter().zip(want).map(|(&g, w)| (f64::from(g) - w).abs());
    errors.fold(0.0, |m, e| if e > m || e.is_nan() { e } else { m }) / size
}

/// Sums of 128 products and a norm; the recurrence adds up the errors of tokens and fades them.
const ERROR: f64 = 1e-5;

#[test]
fn matches_the_definition() {
    for isa in isas() {
        for (dim, heads) in [
            (128, [2, 4]),
            (64, [1, 1]),
            (16, [2, 2]),
            (20, [1, 3]),
            (1, [1, 1]),
        ] {
            for (batch, tokens) in [(1, 1), (2, 3), (1, 4), (2, 7), (1, 75)] {
                for grouped in [false, true] {
                    let shape = GatedDeltaShape {
                        grouped,
                        ..shape(batch, tokens, heads, dim)
                    };
                    let case = Case::new(7, shape);
                    let (want, want_state) = case.oracle();
                    let mut state = case.state.clone();
                    let mut out = vec![f32::NAN; want.len()];
                    gated_delta_with(isa, case.input(), &shape, &mut state, &mut out).unwrap();
                    let what = format!("{isa:?} {shape:?}");
                    let (e, s) = (error(&out, &want), error(&state, &want_state));
                    // A head of one value is normalized to a sign.
                    assert!(dim == 1 || e < ERROR, "{what}: output {e:e}");
                    assert!(s < ERROR, "{what}: state {s:e}");
                }
            }
        }
    }
}

#[test]
fn chunks_do_not_matter() {
    let shape = shape(1, 70, [1, 2], 128);
    let case = Case::new(8, shape);
    let (want, want_state) = case.oracle();
    for isa in isas() {
        for chunk in [1, 2, 5, 33] {
            let mut state = case.state.clone();
            let mut out = vec![f32::NAN; want.len()];
            let width = out.len() / shape.tokens;
            for start in (0..shape.tokens).step_by(chunk) {
                let end = shape.tokens.min(start + chunk);
                let (input, part) = case.part(start..end);
                let out = &mut out[start * width..end * width];
                gated_delta_with(isa, input, &part, &mut state, out).unwrap();
            }
            let (e, s) = (error(&out, &want), error(&state, &want_state));
            assert!(e < ERROR && s < ERROR, "{isa:?} by {chunk}: {e:e} {s:e}");
        }
    }
}

#[test]
fn without_tokens_the_state_stays() {
    let case = Case::new(9, shape(1, 0, [1, 1], 16));
    let mut state = case.state.clone();
    gated_delta(case.input(), &case.shape, &mut state, &mut []).unwrap();
    assert_eq!(state, case.state);
}

#[test]
fn bad_shapes_are_errors() {
    let case = Case::new(10, shape(1, 2, [2, 4], 8));
    let mut out = vec![0.0; 2 * 4 * 8];
    let run = |shape: GatedDeltaShape, state: &mut [f32], out: &mut [f32]| {
        gated_delta(case.input(), &shape, state, out)
    };
    let mut state = case.state.clone();
    let uneven = GatedDeltaShape {
        key_heads: 3,
        ..case.shape
    };
    assert!(matches!(
        run(uneven, &mut state, &mut out),
        Err(ShapeError::HeadGroups { .. })
    ));
    assert!(matches!(
        run(case.shape, &mut state[1..], &mut out),
        Err(ShapeError::Length { what: "state", .. })
    ));
    assert!(matches!(
        run(case.shape, &mut state, &mut out[1..]),
        Err(ShapeError::Length { what: "out", .. })
    ));
    let empty = GatedDeltaShape {
        head_dim: 0,
        ..case.shape
    };
    assert_eq!(
        run(empty, &mut state, &mut out),
        Err(ShapeError::Zero { what: "head_dim" })
    );
}
