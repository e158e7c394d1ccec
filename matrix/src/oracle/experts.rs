//! Mixtures of experts in f64.

use burn_gguf::ops::{ChoiceParams, Gating};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Ids and shares of the chosen.
pub fn choose(
    logits: &[f32],
    bias: Option<&[f32]>,
    experts: usize,
    params: ChoiceParams,
) -> (Vec<f64>, Vec<f64>) {
    let (mut ids, mut all) = (Vec::new(), Vec::new());
    for row in logits.chunks_exact(experts) {
        let row = super::wide(row);
        let total: f64 = row.iter().map(|v| v.exp()).sum();
        let share = |e: usize| match params.gating {
            Gating::Softmax => row[e].exp() / total,
            Gating::Sigmoid => sigmoid(row[e]),
        };
        let score = |e: usize| share(e) + bias.map_or(0.0, |bias| f64::from(bias[e]));
        let mut order: Vec<usize> = (0..experts).collect();
        // Stable: of equals the first stays first.
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        order.truncate(params.used);
        let sum: f64 = order.iter().map(|&e| share(e)).sum();
        let sum = match params.normalize {
            true => sum.max(f64::from(params.least_sum)),
            false => 1.0,
        };
        ids.extend(order.iter().map(|&e| e as f64));
        all.extend(
            order
                .iter()
                .map(|&e| share(e) / sum * f64::from(params.scale)),
        );
    }
    (ids, all)
}

/// The sum of the experts' rows, each value beside the measure of its terms; `sizes` are tokens, experts of one, values.
pub fn sum(
    y: &[f32],
    shares: &[f32],
    shared: Option<(&[f32], &[f32])>,
    [tokens, used, width]: [usize; 3],
) -> Vec<(f64, f64)> {
    let mut out = Vec::with_capacity(tokens * width);
    for t in 0..tokens {
        for i in 0..width {
            let slots = (t * used)..(t + 1) * used;
            let terms = slots.map(|s| f64::from(shares[s]) * f64::from(y[s * width + i]));
            let rest = shared.map(|(values, gate)| {
                f64::from(values[t * width + i]) * sigmoid(f64::from(gate[t]))
            });
            let terms: Vec<f64> = terms.chain(rest).collect();
            let squares: f64 = terms.iter().map(|v| v * v).sum();
            out.push((terms.iter().sum(), squares.sqrt()));
        }
    }
    out
}
