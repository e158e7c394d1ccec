//! `muse-glimmer`: the grid of tokens closest to the picture's shape.

use std::cmp::Ordering;

use super::size::Placement;
use super::{ProcessorConfig, ProcessorStyle};

pub(super) fn place(config: &ProcessorConfig, width: u32, height: u32) -> Placement {
    let side = config.token_size();
    let limit = config.max_tokens();
    let mut rows = f64::from(height) / f64::from(side);
    let mut columns = f64::from(width) / f64::from(side);
    let ratio = columns / rows;
    if rows * columns > limit as f64 {
        rows = (limit as f64 / ratio).sqrt();
        columns = rows * ratio;
    }
    let shape = f64::from(height) / f64::from(width);
    let mut candidates: Vec<(u64, u64)> = Vec::with_capacity(4);
    for down in [rows.floor(), rows.ceil()] {
        for across in [columns.floor(), columns.ceil()] {
            let candidate = (down as u64, across as u64);
            let fits = candidate.0 >= 1 && candidate.1 >= 1 && candidate.0 * candidate.1 <= limit;
            if fits && !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
    }
    let distance = |&(down, across): &(u64, u64)| (down as f64 / across as f64 - shape).abs();
    let tie = |left: &(u64, u64), right: &(u64, u64)| match config.style {
        ProcessorStyle::LlamaCpp => (right.0 * right.1).cmp(&(left.0 * left.1)),
        ProcessorStyle::Transformers => Ordering::Equal,
    };
    if config.style == ProcessorStyle::Transformers {
        candidates = in_set_order(&candidates);
    }
    let best = candidates
        .iter()
        .min_by(|left, right| {
            distance(left)
                .total_cmp(&distance(right))
                .then_with(|| tie(left, right))
        })
        .copied()
        .unwrap_or((
            rows.round().max(1.0) as u64,
            columns.round().max(1.0) as u64,
        ));
    let pixels = |tokens: u64| {
        u32::try_from(tokens)
            .unwrap_or(u32::MAX)
            .saturating_mul(side)
    };
    Placement::stretched(pixels(best.1), pixels(best.0))
}

/// The order in which CPython iterates over a set of at most four pairs: the original processor takes the first of
/// equally good candidates of a set, so for square pictures the hash of the pair decides.
fn in_set_order(pairs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    const SLOTS: u64 = 8;
    let mut table = [None; SLOTS as usize];
    for &pair in pairs {
        let mut perturb = tuple_hash(pair);
        let mut slot = perturb % SLOTS;
        while table[slot as usize].is_some() {
            perturb >>= 5;
            slot = (slot * 5 + 1 + perturb % SLOTS) % SLOTS;
        }
        table[slot as usize] = Some(pair);
    }
    table.into_iter().flatten().collect()
}

/// CPython's hash of a tuple of two small integers (xxHash with their own values as lanes).
fn tuple_hash((first, second): (u64, u64)) -> u64 {
    const PRIMES: [u64; 3] = [
        11_400_714_785_074_694_791,
        14_029_467_366_897_019_727,
        2_870_177_450_012_600_261,
    ];
    let lane = |sum: u64, lane: u64| {
        sum.wrapping_add(lane.wrapping_mul(PRIMES[1]))
            .rotate_left(31)
            .wrapping_mul(PRIMES[0])
    };
    lane(lane(PRIMES[2], first), second).wrapping_add(2 ^ PRIMES[2] ^ 3_527_539)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From CPython 3: the first diagonal pair of `set(product((n, n + 1), (n, n + 1)))`, relative to n, for n = 1..=32.
    #[test]
    fn set_order_is_that_of_cpython() {
        const LARGER_FIRST: [u64; 32] = [
            0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1,
            0, 1, 0,
        ];
        for (n, larger) in (1..).zip(LARGER_FIRST) {
            let order = in_set_order(&[(n, n), (n, n + 1), (n + 1, n), (n + 1, n + 1)]);
            let first = order.iter().find(|pair| pair.0 == pair.1).unwrap();
            assert_eq!(first.0 - n, larger, "{n}");
        }
    }
}
