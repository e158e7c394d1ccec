//! Linear attention by the gated delta rule.

use burn::tensor::Tensor;
use burn_gguf::nn::functional::{self, DeltaInput};
use burn_gguf::ops::DeltaParams;

use super::tensor;
use crate::cell::Cell;
use crate::compare::Expected;
use crate::oracle::delta_net::{self as oracle, Delta};
use crate::random::Random;

/// Results and states as one row of values, so that a case has both.
fn joined<const A: usize, const B: usize>(out: Tensor<A>, state: Tensor<B>) -> Vec<Tensor<1>> {
    let flat = |n: usize| [n];
    let (outs, cells) = (out.shape().num_elements(), state.shape().num_elements());
    vec![out.reshape(flat(outs)), state.reshape(flat(cells))]
}

pub(super) fn short_conv(cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(31);
    // One token, fewer than taps, many; widths that are no multiple of a vector.
    for (batch, seq, channels, kernel) in [
        (1, 1, 192, 4),
        (2, 2, 37, 4),
        (1, 40, 101, 4),
        (1, 3, 64, 2),
    ] {
        let x = random.floats(batch * seq * channels);
        let taps = random.floats(channels * kernel);
        let past = [batch, kernel - 1, channels];
        let state = random.floats(past.iter().product());
        let (want, after) = oracle::short_conv(&x, &taps, &state, [batch, seq, channels, kernel]);
        let (outs, kept) = (want.len(), after.len());
        let (want, after) = (Expected::sums(want), Expected::new(after));
        let shape = [batch, seq, channels];
        let name = format!("{shape:?}, {kernel} taps");
        cell.cases(&name, &[(&want, [outs]), (&after, [kept])], || {
            let (out, state) = functional::short_conv(
                tensor(&x, shape, device),
                tensor(&taps, [channels, kernel], device),
                tensor(&state, past, device),
            );
            joined(out, state)
        });
    }
}

pub(super) fn gated_delta(grouped: bool, cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(32);
    let eps = 1e-6;
    // One token, a few, more than a chunk; heads of usual and of odd widths.
    for (batch, seq, keys, heads, dim) in [
        (1, 1, 2, 4, 128),
        (2, 3, 1, 3, 64),
        (1, 6, 2, 4, 20),
        (1, 37, 2, 2, 32),
    ] {
        let rows = batch * seq;
        let mixed = random.floats(rows * (2 * keys + heads) * dim);
        let gate = random.floats(rows * heads * dim);
        let beta = random.floats(rows * heads);
        let alpha: Vec<f32> = random.floats(rows * heads);
        // From decays that forget at once to such that never do.
        let alpha: Vec<f32> = alpha.iter().map(|v| v * 8.0).collect();
        let a: Vec<f32> = random.floats(heads).iter().map(|v| -v.abs()).collect();
        let (dt, norm) = (random.floats(heads), random.floats(dim));
        let matrices = [batch, heads, dim, dim];
        let state = random.floats(matrices.iter().product());
        let delta = Delta {
            mixed: &mixed,
            gate: &gate,
            beta: &beta,
            alpha: &alpha,
            a: &a,
            dt: &dt,
            norm: &norm,
            sizes: [batch, seq, keys, heads, dim],
            grouped,
            eps,
        };
        let (want, after) = delta.run(&state);
        let (outs, cells) = (want.len(), after.len());
        let (want, after) = (Expected::new(want), Expected::new(after));
        let name = format!("{batch} x {seq} tokens, {keys} / {heads} heads of {dim}");
        let input = || DeltaInput {
            mixed: tensor(&mixed, [batch, seq, (2 * keys + heads) * dim], device),
            gate: tensor(&gate, [batch, seq, heads * dim], device),
            beta: tensor(&beta, [batch, seq, heads], device),
            alpha: tensor(&alpha, [batch, seq, heads], device),
            a: tensor(&a, [heads], device),
            dt: tensor(&dt, [heads], device),
            norm: tensor(&norm, [dim], device),
        };
        let params = DeltaParams {
            key_heads: keys,
            grouped,
            eps,
        };
        let expected = [(&want, [outs]), (&after, [cells])];
        cell.cases(&name, &expected, || {
            let (out, state) =
                functional::gated_delta(input(), tensor(&state, matrices, device), params);
            joined(out, state)
        });
        // The state found shared must stay for its other handle.
        let before = Expected::new(state.iter().map(|&v| f64::from(v)).collect());
        let expected = [(&want, [outs]), (&before, [cells])];
        cell.cases(&format!("{name}, the shared handle"), &expected, || {
            let shared = tensor(&state, matrices, device);
            let (out, _) = functional::gated_delta(input(), shared.clone(), params);
            joined(out, shared)
        });
    }
}
