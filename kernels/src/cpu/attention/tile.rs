//! Attention for many query rows: the rows lie in the lanes.
//!
//! A tile has up to [`super::TILE_ROWS`] rows, so every key and value that is loaded meets that many rows, and the work
//! is two matrix products per block of [`KEYS`] keys with the softmax between them:
//!
//! - `S[j, r] = sum_i k[j, i] * q[i, r]`: the queries are transposed once per tile; keys are taken as they lie in the
//!   cache, one element broadcast to all rows at a time (`f16` keys are widened to a block in `f32` first);
//! - softmax over `j`: each lane is a row, so maximum and sum need no reduction across lanes;
//! - `O[r, i] += sum_j S[j, r] * v[j, i]`: a weight is broadcast, values are taken as they lie.
//!
//! Both products keep a block of accumulators in registers, 6 by 4 registers with 32 of them and 6 by 2 with 16.

use super::scratch::Scratch;
use super::{Item, Problem, Rows, Work};
use crate::cpu::vector::{Element, Vector};

/// Keys per block, a multiple of the 6 keys of the first product.
const KEYS: usize = 96;

/// Does the item of `work`.
#[inline(always)]
pub(super) fn run<R: Vector, K: Element, V: Element>(work: &Work<'_, K, V>) {
    let (problem, item) = (work.problem, work.item);
    let shape = &problem.shape;
    let (d, group) = (shape.head_dim, problem.group());
    let rows = item.tokens.len() * group;
    let lanes = rows.next_multiple_of(R::LANES);
    let stride = d.next_multiple_of(R::LANES);
    let sizes = [
        lanes * d,
        KEYS * lanes,
        rows * stride,
        lanes,
        lanes,
        lanes,
        2 * lanes,
        KEYS * stride,
        KEYS * stride,
    ];
    let mut scratch = Scratch::take();
    let [q, scores, acc, max, sum, factor, bounds, k_block, v_block] = scratch.split(sizes);
    transpose_queries::<R, K, V>(problem, item, lanes, q);
    acc[..rows * stride].fill(0.0);
    max[..lanes].fill(f32::MIN);
    sum[..lanes].fill(0.0);

    // Keys every row sees.
    let common = problem.visible(item.tokens.end - 1).start..problem.visible(item.tokens.start).end;
    let head = item.kv_head * shape.capacity;
    let mut stretch = problem.stretch(item, item.keys.start);
    while !stretch.is_empty() {
        let first = stretch.start;
        let n = KEYS.min(stretch.end - first);
        let at = (head + first) * d;
        let (k, k_stride) = widen::<R, K>(&problem.k[at..at + n * d], d, d, k_block);
        score::<R>(q, d, lanes, k, k_stride, n, scores);
        if let Some(factor) = problem.cap_factor() {
            cap::<R>(&mut scores[..n * lanes], factor);
        }
        if first < common.start || first + n > common.end {
            let (lo, hi) = bounds.split_at_mut(lanes);
            for r in 0..lanes {
                // Rows beyond the last are never looked at.
                let visible = problem.visible(item.tokens.start + r.min(rows - 1) / group);
                lo[r] = visible.start.saturating_sub(first).min(n) as f32;
                hi[r] = visible.end.saturating_sub(first).min(n) as f32;
            }
            mask::<R>(&mut scores[..n * lanes], lanes, lo, hi);
        }
        for (span, block) in problem.spans(first, n) {
            let mut tokens = item.tokens.clone();
            if tokens.all(|t| problem.sees(item, t, block)) {
                continue;
            }
            let (lo, hi) = bounds.split_at_mut(lanes);
            lo.fill(0.0);
            for r in 0..lanes {
                let token = item.tokens.start + r.min(rows - 1) / group;
                hi[r] = f32::from(problem.sees(item, token, block)) * KEYS as f32;
            }
            let scores = &mut scores[span.start * lanes..span.end * lanes];
            mask::<R>(scores, lanes, lo, hi);
        }
        weigh::<R>(&mut scores[..n * lanes], lanes, max, sum, factor);
        let (v, v_stride) = widen::<R, V>(&problem.v[at..at + n * d], d, R::LANES, v_block);
        add_values::<R>(scores, lanes, factor, v, v_stride, n, acc, rows, stride);
        stretch.start += n;
        if stretch.is_empty() {
            stretch = problem.stretch(item, stretch.end);
        }
    }
    work.finish(Rows {
        max,
        sum,
        acc,
        stride,
    });
}

/// Writes the item's queries to `[lanes / LANES, d, LANES]`, scaled, zero beyond the last row.
#[inline(always)]
fn transpose_queries<R: Vector, K: Element, V: Element>(
    problem: &Problem<'_, K, V>,
    item: &Item,
    lanes: usize,
    to: &mut [f32],
) {
    let shape = &problem.shape;
    let (d, group) = (shape.head_dim, problem.group());
    let factor = problem.query_factor();
    let to = &mut to[..lanes * d];
    to.fill(0.0);
    for r in 0..item.tokens.len() * group {
        let (t, h) = (
            item.tokens.start + r / group,
            item.kv_head * group + r % group,
        );
        let from = &problem.q[(t * shape.n_heads + h) * d..][..d];
        let column = &mut to[r / R::LANES * d * R::LANES + r % R::LANES..];
        for (to, from) in column.iter_mut().step_by(R::LANES).zip(from) {
            *to = from * factor;
        }
    }
}

/// The rows of `x` `[n, d]` as `f32`, and the distance between them: where they lie if that is possible, else in
/// `block`, padded with zeros to whole registers. In place only if `d` is a multiple of `unit`.
#[inline(always)]
fn widen<'a, R: Vector, T: Element>(
    x: &'a [T],
    d: usize,
    unit: usize,
    block: &'a mut [f32],
) -> (&'a [f32], usize) {
    if let Some(x) = T::as_f32(x)
        && d.is_multiple_of(unit)
    {
        return (x, d);
    }
    let stride = d.next_multiple_of(R::LANES);
    let whole = d / R::LANES * R::LANES;
    for (from, to) in x.chunks_exact(d).zip(block.chunks_exact_mut(stride)) {
        // SAFETY: registers below `whole`, then what remains of the row; `to` has whole registers.
        unsafe {
            let mut i = 0;
            while i < whole {
                T::load::<R>(from.as_ptr().add(i)).store(to.as_mut_ptr().add(i));
                i += R::LANES;
            }
            if whole < d {
                T::load_partial::<R>(from.as_ptr().add(whole), d - whole)
                    .store(to.as_mut_ptr().add(whole));
            }
        }
    }
    (block, stride)
}

/// Calls `$call` with constants `M` (1 to 6) and `N` (1, 2 or 4) for the sizes of a block.
macro_rules! by_size {
    ($m:expr, $n:expr, |$M:ident, $N:ident| $call:expr) => {
        by_size!(@n $n, $N, {
            by_size!(@m $m, $M, $call)
        })
    };
    (@n $n:expr, $N:ident, $call:expr) => {
        match $n {
            1 => { const $N: usize = 1; $call }
            2 => { const $N: usize = 2; $call }
            _ => { const $N: usize = 4; $call }
        }
    };
    (@m $m:expr, $M:ident, $call:expr) => {
        match $m {
            1 => { const $M: usize = 1; $call }
            2 => { const $M: usize = 2; $call }
            3 => { const $M: usize = 3; $call }
            4 => { const $M: usize = 4; $call }
            5 => { const $M: usize = 5; $call }
            _ => { const $M: usize = 6; $call }
        }
    };
}

/// Registers of the next block's side when `left` remain: 4 with 32 registers, else 2, else 1.
#[inline(always)]
fn side<R: Vector>(left: usize) -> usize {
    match left {
        4.. if R::LANES == 16 => 4,
        2.. => 2,
        _ => 1,
    }
}

/// `scores[j, r] = sum_i k[j, i] * q[i, r]`, with `scores` `[n, lanes]`.
#[inline(always)]
fn score<R: Vector>(
    q: &[f32],
    d: usize,
    lanes: usize,
    k: &[f32],
    k_stride: usize,
    n: usize,
    scores: &mut [f32],
) {
    assert!(q.len() >= lanes * d && k.len() >= (n - 1) * k_stride + d && scores.len() >= n * lanes);
    let columns = lanes / R::LANES;
    let mut c = 0;
    while c < columns {
        let width = side::<R>(columns - c);
        let mut j = 0;
        while j < n {
            let height = (n - j).min(6);
            // SAFETY: the assertion above, with `c + width <= columns` and `j + height <= n`.
            unsafe {
                let q = q.as_ptr().add(c * d * R::LANES);
                let k = k.as_ptr().add(j * k_stride);
                let s = scores.as_mut_ptr().add(j * lanes + c * R::LANES);
                by_size!(height, width, |M, N| score_block::<R, M, N>(
                    q, d, k, k_stride, s, lanes
                ));
            }
            j += height;
        }
        c += width;
    }
}

/// `M` keys by `N` registers of rows of [`score`].
///
/// # Safety
/// `q` is `[N, d, LANES]`, `k` has `M` rows of `d` elements `k_stride` apart, `s` `M` rows `lanes` apart of `N` registers.
#[inline(always)]
unsafe fn score_block<R: Vector, const M: usize, const N: usize>(
    q: *const f32,
    d: usize,
    k: *const f32,
    k_stride: usize,
    s: *mut f32,
    lanes: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[R::splat(0.0); N]; M];
        for i in 0..d {
            let q = row::<R, N>(q.add(i * R::LANES), d * R::LANES);
            for j in 0..M {
                let k = R::splat(*k.add(j * k_stride + i));
                for c in 0..N {
                    acc[j][c] = k.fma(q[c], acc[j][c]);
                }
            }
        }
        for j in 0..M {
            for c in 0..N {
                acc[j][c].store(s.add(j * lanes + c * R::LANES));
            }
        }
    }
}

/// `N` registers, `step` elements apart.
///
/// # Safety
/// `p` has `N` registers there.
#[inline(always)]
unsafe fn row<R: Vector, const N: usize>(p: *const f32, step: usize) -> [R; N] {
    let mut row = [R::splat(0.0); N];
    for (c, to) in row.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *to = unsafe { R::load(p.add(c * step)) };
    }
    row
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

/// Hides key `j` of the block from the rows with `j < lo` or `j >= hi`.
#[inline(always)]
fn mask<R: Vector>(scores: &mut [f32], lanes: usize, lo: &[f32], hi: &[f32]) {
    assert!(lo.len() >= lanes && hi.len() >= lanes);
    let hidden = R::splat(f32::NEG_INFINITY);
    for (j, row) in scores.chunks_exact_mut(lanes).enumerate() {
        let j = R::splat(j as f32);
        for (c, s) in row.chunks_exact_mut(R::LANES).enumerate() {
            // SAFETY: the chunk is one register long, and so is what remains of the bounds.
            unsafe {
                let (lo, hi) = (
                    R::load(lo.as_ptr().add(c * R::LANES)),
                    R::load(hi.as_ptr().add(c * R::LANES)),
                );
                let v = R::load(s.as_ptr());
                let v = R::select_lt(j, hi, v, hidden);
                R::select_lt(j, lo, hidden, v).store(s.as_mut_ptr());
            }
        }
    }
}

/// Turns scores `[n, lanes]` into weights relative to the new largest scores, updates `max` and `sum`, and sets
/// `factor` to what brings the old weights to the new scale.
#[inline(always)]
fn weigh<R: Vector>(
    scores: &mut [f32],
    lanes: usize,
    max: &mut [f32],
    sum: &mut [f32],
    factor: &mut [f32],
) {
    assert!(max.len() >= lanes && sum.len() >= lanes && factor.len() >= lanes);
    let n = scores.len() / lanes;
    for c in (0..lanes).step_by(R::LANES) {
        // SAFETY: `c + LANES <= lanes`, the length of a row of scores and of the other slices.
        unsafe {
            let s = scores.as_mut_ptr().add(c);
            let old = R::load(max.as_ptr().add(c));
            let mut new = old;
            for j in 0..n {
                new = new.max(R::load(s.add(j * lanes)));
            }
            let f = old.sub(new).exp2();
            let mut total = [R::load(sum.as_ptr().add(c)).mul(f), R::splat(0.0)];
            for j in 0..n {
                let w = R::load(s.add(j * lanes)).sub(new).exp2();
                w.store(s.add(j * lanes));
                total[j % 2] = total[j % 2].add(w);
            }
            new.store(max.as_mut_ptr().add(c));
            f.store(factor.as_mut_ptr().add(c));
            total[0].add(total[1]).store(sum.as_mut_ptr().add(c));
        }
    }
}

/// `acc[r, i] = acc[r, i] * factor[r] + sum_j weights[j, r] * v[j, i]`.
#[inline(always)]
fn add_values<R: Vector>(
    weights: &[f32],
    lanes: usize,
    factor: &[f32],
    v: &[f32],
    v_stride: usize,
    n: usize,
    acc: &mut [f32],
    rows: usize,
    stride: usize,
) {
    assert!(weights.len() >= n * lanes && factor.len() >= lanes && rows <= lanes);
    assert!(v_stride >= stride && v.len() >= n * v_stride && acc.len() >= rows * stride);
    let columns = stride / R::LANES;
    let mut c = 0;
    while c < columns {
        let width = side::<R>(columns - c);
        let mut r = 0;
        while r < rows {
            let height = (rows - r).min(6);
            // SAFETY: the assertions above, with `c + width <= columns` and `r + height <= rows`.
            unsafe {
                let w = weights.as_ptr().add(r);
                let f = factor.as_ptr().add(r);
                let v = v.as_ptr().add(c * R::LANES);
                let a = acc.as_mut_ptr().add(r * stride + c * R::LANES);
                by_size!(height, width, |M, N| value_block::<R, M, N>(
                    w, lanes, f, v, v_stride, n, a, stride
                ));
            }
            r += height;
        }
        c += width;
    }
}

/// `M` rows by `N` registers of [`add_values`].
///
/// # Safety
/// `w` has `n` rows `lanes` apart of `M` elements, `f` `M` elements, `v` `n` rows `v_stride` apart of `N` registers,
/// `acc` `M` rows `stride` apart of `N` registers.
#[inline(always)]
unsafe fn value_block<R: Vector, const M: usize, const N: usize>(
    w: *const f32,
    lanes: usize,
    f: *const f32,
    v: *const f32,
    v_stride: usize,
    n: usize,
    acc: *mut f32,
    stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = [[R::splat(0.0); N]; M];
        for r in 0..M {
            let f = R::splat(*f.add(r));
            for c in 0..N {
                sum[r][c] = R::load(acc.add(r * stride + c * R::LANES)).mul(f);
            }
        }
        for j in 0..n {
            let v = row::<R, N>(v.add(j * v_stride), R::LANES);
            for r in 0..M {
                let w = R::splat(*w.add(j * lanes + r));
                for c in 0..N {
                    sum[r][c] = w.fma(v[c], sum[r][c]);
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
