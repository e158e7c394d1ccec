//! Putting together results over parts of the keys.

use super::{AttentionShape, Item, Rows};

/// Elements of the partial result of so many rows: the largest scores, the sums of weights, the sums of values.
pub(super) fn partial_size(rows: usize, head_dim: usize) -> usize {
    rows * (head_dim + 2)
}

/// Writes a partial result.
pub(super) fn write(to: &mut [f32], head_dim: usize, rows: &Rows<'_>) {
    let n = to.len() / (head_dim + 2);
    let (max, to) = to.split_at_mut(n);
    let (sum, acc) = to.split_at_mut(n);
    max.copy_from_slice(&rows.max[..n]);
    sum.copy_from_slice(&rows.sum[..n]);
    for (to, from) in acc
        .chunks_exact_mut(head_dim)
        .zip(rows.acc.chunks(rows.stride))
    {
        to.copy_from_slice(&from[..head_dim]);
    }
}

/// Combines the partial results of items that differ in their keys only; such items follow each other.
pub(super) fn merge(
    group: usize,
    shape: &AttentionShape,
    items: &[Item],
    partials: &[f32],
    out: &mut [f32],
) {
    let d = shape.head_dim;
    let mut weights = Vec::new();
    for parts in items.chunk_by(|a, b| a.kv_head == b.kv_head && a.tokens == b.tokens) {
        let n = parts[0].tokens.len() * group;
        let at = |item: &Item| {
            item.partial
                .map(|offset| &partials[offset..offset + partial_size(n, d)])
        };
        for r in 0..n {
            let max = parts
                .iter()
                .filter_map(at)
                .map(|p| p[r])
                .fold(f32::MIN, f32::max);
            weights.clear();
            weights.extend(parts.iter().filter_map(at).map(|p| (p[r] - max).exp2()));
            if weights.is_empty() {
                continue;
            }
            let sum: f32 = parts
                .iter()
                .filter_map(at)
                .zip(&weights)
                .map(|(p, w)| p[n + r] * w)
                .sum();
            let scale = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            let (t, h) = (
                parts[0].tokens.start + r / group,
                parts[0].kv_head * group + r % group,
            );
            let to = &mut out[(t * shape.n_heads + h) * d..][..d];
            to.fill(0.0);
            for (p, w) in parts.iter().filter_map(at).zip(&weights) {
                let w = w * scale;
                for (to, acc) in to.iter_mut().zip(&p[2 * n + r * d..]) {
                    *to += acc * w;
                }
            }
        }
    }
}
