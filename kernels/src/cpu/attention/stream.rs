//! Attention for few query rows: the head's elements lie in the lanes.
//!
//! Keys come in blocks of [`KEYS`]. Scores are dot products of a key's registers with those of several rows at once, so
//! that a key is loaded (and widened) once for up to `M` rows; then the softmax is updated row by row; then values are
//! added with the accumulators of several rows by several registers held across the block.
//!
//! Decoding over a long cache waits for memory. So each half of a block asks for what the next half will read: the
//! scores for the block's values, the sums for the next block's keys. The hardware's own prefetching is slower to
//! start, and blind to values that are read in pieces of a row.

use super::scratch::Scratch;
use super::{Item, Problem, Rows, Work};
use crate::cpu::vector::{Element, Vector, prefetch};

/// Rows an item should have at most.
pub(super) const MAX_ROWS: usize = 32;

/// Keys per block.
const KEYS: usize = 128;

// No closures around vector code here and in `tile`: one that is not inlined is compiled without the ISA.

/// Does the item of `work`.
#[inline(always)]
pub(super) fn run<R: Vector, K: Element, V: Element>(work: &Work<'_, K, V>) {
    let (problem, item) = (work.problem, work.item);
    let shape = &problem.shape;
    let (d, group) = (shape.head_dim, problem.group());
    let rows = item.tokens.len() * group;
    let stride = d.next_multiple_of(R::LANES);
    let sizes = [
        rows * stride,
        rows * KEYS,
        rows * stride,
        rows,
        rows,
        rows * R::LANES,
    ];
    let mut scratch = Scratch::take();
    let [q, scores, acc, max, sum, lane_sum] = scratch.split(sizes);
    load_queries(problem, item, stride, q);
    acc[..rows * stride].fill(0.0);
    max[..rows].fill(f32::MIN);
    lane_sum[..rows * R::LANES].fill(0.0);

    let head = item.kv_head * shape.capacity;
    let mut stretch = problem.stretch(item, item.keys.start);
    while !stretch.is_empty() {
        let first = stretch.start;
        let n = KEYS.min(stretch.end - first);
        let at = (head + first) * d;
        let (k, v) = (&problem.k[at..at + n * d], &problem.v[at..at + n * d]);
        score::<R, K, V>(q, rows, stride, k, d, scores, v);
        for r in 0..rows {
            let scores = &mut scores[r * KEYS..(r + 1) * KEYS];
            if let Some(factor) = problem.cap_factor() {
                cap::<R>(scores, factor);
            }
            let visible = problem.visible(item.tokens.start + r / group);
            let seen = visible.start.saturating_sub(first).min(n)
                ..visible.end.saturating_sub(first).min(n);
            scores[..seen.start].fill(f32::NEG_INFINITY);
            scores[seen.end.max(seen.start)..].fill(f32::NEG_INFINITY);
            for (span, block) in problem.spans(first, n) {
                if !problem.sees(item, item.tokens.start + r / group, block) {
                    scores[span].fill(f32::NEG_INFINITY);
                }
            }
            let factor = weigh::<R>(
                scores,
                &mut max[r],
                &mut lane_sum[r * R::LANES..(r + 1) * R::LANES],
            );
            if factor != 1.0 {
                acc[r * stride..(r + 1) * stride]
                    .iter_mut()
                    .for_each(|a| *a *= factor);
            }
        }
        add_values::<R, K, V>(
            scores,
            rows,
            v,
            d,
            acc,
            stride,
            k.as_ptr().wrapping_add(n * d),
        );
        stretch.start += n;
        if stretch.is_empty() {
            stretch = problem.stretch(item, stretch.end);
        }
    }
    for (sum, lanes) in sum
        .iter_mut()
        .zip(lane_sum[..rows * R::LANES].chunks_exact(R::LANES))
    {
        // SAFETY: the chunk is one register long.
        *sum = unsafe { R::load(lanes.as_ptr()) }.reduce_add();
    }
    work.finish(Rows {
        max,
        sum,
        acc,
        stride,
    });
}

/// Copies the item's queries to `[rows, stride]`, scaled, padded with zeros.
#[inline(always)]
fn load_queries<K: Element, V: Element>(
    problem: &Problem<'_, K, V>,
    item: &Item,
    stride: usize,
    to: &mut [f32],
) {
    let shape = &problem.shape;
    let (d, group) = (shape.head_dim, problem.group());
    let factor = problem.query_factor();
    for (i, t) in item.tokens.clone().enumerate() {
        for h in 0..group {
            let from = &problem.q[(t * shape.n_heads + item.kv_head * group + h) * d..][..d];
            let to = &mut to[(i * group + h) * stride..][..stride];
            for (to, from) in to.iter_mut().zip(from) {
                *to = from * factor;
            }
            to[d..].fill(0.0);
        }
    }
}

/// Splits `rows` into chunks of about equal size, at most `most` (at most 6), and calls `$f::<.., M>` for each.
macro_rules! by_rows {
    ($rows:expr, $most:expr, |$first:ident, $m:ident| $call:expr) => {{
        let chunks = $rows.div_ceil($most);
        let mut $first = 0;
        for i in 0..chunks {
            let size = ($rows - $first).div_ceil(chunks - i);
            match size {
                1 => {
                    const $m: usize = 1;
                    $call
                }
                2 => {
                    const $m: usize = 2;
                    $call
                }
                3 => {
                    const $m: usize = 3;
                    $call
                }
                4 => {
                    const $m: usize = 4;
                    $call
                }
                5 => {
                    const $m: usize = 5;
                    $call
                }
                _ => {
                    const $m: usize = 6;
                    $call
                }
            }
            $first += size;
        }
    }};
}

/// How many rows by four registers of accumulators fit the register file, beside one register per row and one that is
/// widened from `T`.
#[inline(always)]
fn rows_at_once<R: Vector, T: Element>() -> usize {
    match (R::LANES, size_of::<T>()) {
        (16, _) => 6,
        (_, 4) => 3,
        _ => 2,
    }
}

/// `scores[r, j] = q[r] . k[j]`, with `q` `[rows, stride]`, `k` `[n, d]`, `scores` `[rows, KEYS]`;
/// brings `v` `[n, d]` closer on the way.
#[inline(always)]
fn score<R: Vector, K: Element, V: Element>(
    q: &[f32],
    rows: usize,
    stride: usize,
    k: &[K],
    d: usize,
    scores: &mut [f32],
    v: &[V],
) {
    let n = k.len() / d;
    let most = rows_at_once::<R, K>();
    assert!(q.len() >= rows * stride && stride >= d && n <= KEYS && scores.len() >= rows * KEYS);
    let mut j = 0;
    while j < n {
        // SAFETY: the assertion above; `j + 4 <= n` or one key at a time.
        unsafe {
            let (k, s) = (k.as_ptr().add(j * d), scores.as_mut_ptr().add(j));
            if j + 4 <= n {
                for i in (0..4 * d).step_by(64 / size_of::<V>()) {
                    prefetch(v.as_ptr().wrapping_add(j * d + i));
                }
                by_rows!(rows, most, |first, M| dots::<R, K, M, 4>(
                    q.as_ptr().add(first * stride),
                    stride,
                    k,
                    d,
                    s.add(first * KEYS)
                ));
                j += 4;
            } else {
                by_rows!(rows, most, |first, M| dots::<R, K, M, 1>(
                    q.as_ptr().add(first * stride),
                    stride,
                    k,
                    d,
                    s.add(first * KEYS)
                ));
                j += 1;
            }
        }
    }
}

/// `M` rows by `N` keys of [`score`].
///
/// # Safety
/// `q` has `M` rows of `stride >= d` elements, `k` `N` rows of `d`, `s` `M` rows of `KEYS` with `N` writable.
#[inline(always)]
unsafe fn dots<R: Vector, K: Element, const M: usize, const N: usize>(
    q: *const f32,
    stride: usize,
    k: *const K,
    d: usize,
    s: *mut f32,
) {
    let mut acc = [[R::splat(0.0); N]; M];
    // SAFETY: the caller's promise; whole registers below `whole`, the rest by `load_partial`.
    unsafe {
        let whole = d / R::LANES * R::LANES;
        let mut i = 0;
        while i < whole {
            let q = column::<R, M>(q.add(i), stride);
            for j in 0..N {
                let k = K::load::<R>(k.add(j * d + i));
                for r in 0..M {
                    acc[r][j] = q[r].fma(k, acc[r][j]);
                }
            }
            i += R::LANES;
        }
        if whole < d {
            let q = column::<R, M>(q.add(whole), stride);
            for j in 0..N {
                let k = K::load_partial::<R>(k.add(j * d + whole), d - whole);
                for r in 0..M {
                    acc[r][j] = q[r].fma(k, acc[r][j]);
                }
            }
        }
        for r in 0..M {
            if N == 4 {
                let a = &acc[r];
                let sums = R::reduce_add4([a[0], a[1 % N], a[2 % N], a[3 % N]]);
                s.add(r * KEYS).cast::<[f32; 4]>().write_unaligned(sums);
            } else {
                for j in 0..N {
                    *s.add(r * KEYS + j) = acc[r][j].reduce_add();
                }
            }
        }
    }
}

/// One register from each of `M` rows.
///
/// # Safety
/// `p` has `M` rows `stride` apart of a register each.
#[inline(always)]
unsafe fn column<R: Vector, const M: usize>(p: *const f32, stride: usize) -> [R; M] {
    let mut column = [R::splat(0.0); M];
    for (r, to) in column.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *to = unsafe { R::load(p.add(r * stride)) };
    }
    column
}

/// `scores = factor * tanh(scores)`.
#[inline(always)]
fn cap<R: Vector>(scores: &mut [f32], factor: f32) {
    for s in scores.chunks_exact_mut(R::LANES) {
        // SAFETY: the chunk is one register long.
        unsafe {
            R::load(s.as_ptr())
                .tanh()
                .mul(R::splat(factor))
                .store(s.as_mut_ptr())
        }
    }
}

/// Turns a row's scores into weights relative to the new largest score, adds them to `sum` `[LANES]`, and returns the
/// factor from the old largest score to the new.
#[inline(always)]
fn weigh<R: Vector>(scores: &mut [f32], max: &mut f32, sum: &mut [f32]) -> f32 {
    assert!(sum.len() == R::LANES && scores.len().is_multiple_of(R::LANES));
    let mut top = R::splat(*max);
    for s in scores.chunks_exact(R::LANES) {
        // SAFETY: the chunk is one register long.
        top = top.max(unsafe { R::load(s.as_ptr()) });
    }
    let old = *max;
    *max = top.reduce_max();
    let new = R::splat(*max);
    let factor = if old == *max {
        1.0
    } else {
        (old - *max).exp2()
    };
    // SAFETY: `sum` and the chunks are one register long.
    unsafe {
        let mut total = R::load(sum.as_ptr()).mul(R::splat(factor));
        for s in scores.chunks_exact_mut(R::LANES) {
            let w = R::load(s.as_ptr()).sub(new).exp2();
            w.store(s.as_mut_ptr());
            total = total.add(w);
        }
        total.store(sum.as_mut_ptr());
    }
    factor
}

/// `acc[r] += sum_j weights[r, j] * v[j]`, with `weights` `[rows, KEYS]`, `v` `[n, d]`, `acc` `[rows, stride]`;
/// brings the keys at `next` closer on the way.
#[inline(always)]
fn add_values<R: Vector, K: Element, V: Element>(
    weights: &[f32],
    rows: usize,
    v: &[V],
    d: usize,
    acc: &mut [f32],
    stride: usize,
    next: *const K,
) {
    let n = v.len() / d;
    let most = rows_at_once::<R, V>();
    assert!(weights.len() >= rows * KEYS && n <= KEYS && acc.len() >= rows * stride && stride >= d);
    by_rows!(rows, most, |first, M| {
        // SAFETY: the assertion above; registers are taken while they fit `d`, then the rest.
        unsafe {
            let (w, a) = (
                weights.as_ptr().add(first * KEYS),
                acc.as_mut_ptr().add(first * stride),
            );
            let ahead = first == 0;
            let mut i = 0;
            while i + 4 * R::LANES <= d {
                values::<R, K, V, M, 4>(
                    w,
                    n,
                    v.as_ptr().add(i),
                    d,
                    a.add(i),
                    stride,
                    R::LANES,
                    next.wrapping_add(i),
                    ahead,
                );
                i += 4 * R::LANES;
            }
            if i + 2 * R::LANES <= d {
                values::<R, K, V, M, 2>(
                    w,
                    n,
                    v.as_ptr().add(i),
                    d,
                    a.add(i),
                    stride,
                    R::LANES,
                    next.wrapping_add(i),
                    ahead,
                );
                i += 2 * R::LANES;
            }
            while i < d {
                values::<R, K, V, M, 1>(
                    w,
                    n,
                    v.as_ptr().add(i),
                    d,
                    a.add(i),
                    stride,
                    d - i,
                    next.wrapping_add(i),
                    ahead,
                );
                i += R::LANES;
            }
        }
    });
}

/// `M` rows by `N` registers of [`add_values`]; of the last register only `last` elements exist in `v`.
///
/// # Safety
/// `w` has `M` rows of `KEYS`, `n` of them readable; `v` has `n` rows of `d` with the columns named readable; `acc` has
/// `M` rows of `stride`, `N` registers of each writable. `N` is 1 where `last < LANES`.
#[inline(always)]
unsafe fn values<R: Vector, K: Element, V: Element, const M: usize, const N: usize>(
    w: *const f32,
    n: usize,
    v: *const V,
    d: usize,
    acc: *mut f32,
    stride: usize,
    last: usize,
    next: *const K,
    ahead: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = [[R::splat(0.0); N]; M];
        for r in 0..M {
            for c in 0..N {
                sum[r][c] = R::load(acc.add(r * stride + c * R::LANES));
            }
        }
        if N > 1 || last >= R::LANES {
            for j in 0..n {
                if ahead {
                    for c in 0..N {
                        if (c * R::LANES * size_of::<K>()).is_multiple_of(64) {
                            prefetch(next.wrapping_add(j * d + c * R::LANES));
                        }
                    }
                }
                let mut weight = [R::splat(0.0); M];
                for r in 0..M {
                    weight[r] = R::splat(*w.add(r * KEYS + j));
                }
                for c in 0..N {
                    let v = V::load::<R>(v.add(j * d + c * R::LANES));
                    for r in 0..M {
                        sum[r][c] = weight[r].fma(v, sum[r][c]);
                    }
                }
            }
        } else {
            for j in 0..n {
                let v = V::load_partial::<R>(v.add(j * d), last);
                for r in 0..M {
                    sum[r][0] = R::splat(*w.add(r * KEYS + j)).fma(v, sum[r][0]);
                }
            }
        }
        for r in 0..M {
            for c in 0..N {
                sum[r][c].store(acc.add(r * stride + c * R::LANES));
            }
        }
    }
}
