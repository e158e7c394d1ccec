//! Activations quantized to 8 bits: once per call, shared by all matrices of the call.
//!
//! Every 32 values of a row get one `f32` scale, `max |x| / 127`, and codes in -127..=127. This is finer than ggml's
//! 256 values per scale for K types, and the scale is not rounded to `f16`. A row with an infinity or NaN gets a
//! scale that makes all its products NaN, as they would be in floats.
//!
//! [`RowBuffers`] lays rows out one after the other for row products, with what the sums of codes contribute
//! computed ahead. [`Group`] interleaves [`GROUP`] rows for the matrix product.

use super::isa::Isa;
use super::level::{GROUP, Kernel, Level, TokenGroup};
use crate::blocks::CodeBlock;
use rayon::prelude::*;

/// Values that share a scale.
pub(super) const SCALE_LEN: usize = 32;

/// One quantized row and sums over it, with all that a row product may want in ready form.
#[derive(Clone, Copy)]
pub(super) struct RowInput<'a> {
    /// Values in the row.
    pub len: usize,
    /// `[len]`.
    pub codes: &'a [i8],
    /// `[len / 32]`.
    pub scales: &'a [f32],
    /// `[len / 32]`: scale times the sum of 32 codes.
    pub sums: &'a [f32],
    /// `[len / 16]`: scale times the sum of 16 codes.
    pub sums16: &'a [f32],
    /// `[len / 4]`: -128 times the sum of 4 codes, which takes the offset off 8-bit codes before anything is rounded.
    /// For narrower codes, whose offset is no larger than they are, `sums` will do.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub lanes: &'a [i32],
}

impl<'a> RowInput<'a> {
    /// The values from `start` on, a multiple of 32.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn from(&self, start: usize) -> RowInput<'a> {
        RowInput {
            len: self.len - start,
            codes: &self.codes[start..],
            scales: &self.scales[start / SCALE_LEN..],
            sums: &self.sums[start / SCALE_LEN..],
            sums16: &self.sums16[start / 16..],
            lanes: &self.lanes[start / 4..],
        }
    }
}

/// Quantized rows, one after the other.
#[derive(Default)]
pub(super) struct RowBuffers {
    len: usize,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<f32>,
    sums16: Vec<f32>,
    lanes: Vec<i32>,
}

impl RowBuffers {
    /// Quantizes rows of `len` values. Many are shared among the threads of rayon's current pool.
    pub(super) fn quantize(&mut self, x: &[f32], len: usize, isa: Isa) {
        self.len = len;
        grow(&mut self.codes, x.len());
        grow(&mut self.scales, x.len() / SCALE_LEN);
        grow(&mut self.sums, x.len() / SCALE_LEN);
        grow(&mut self.sums16, x.len() / 16);
        grow(&mut self.lanes, x.len() / 4);
        let mut whole = QuantizeRows {
            x,
            codes: &mut self.codes[..x.len()],
            scales: &mut self.scales,
            sums: &mut self.sums,
            sums16: &mut self.sums16,
            lanes: &mut self.lanes,
        };
        let mut parts = Vec::new();
        while whole.x.len() > PART_LEN {
            let (part, rest) = whole.split(PART_LEN);
            parts.push(part);
            whole = rest;
        }
        if !parts.is_empty() {
            // SAFETY: levels are checked where they enter.
            parts
                .into_par_iter()
                .for_each(|part| unsafe { isa.run(part) });
        }
        // SAFETY: as above.
        unsafe { isa.run(whole) }
    }

    /// Row `index`.
    pub(super) fn row(&self, index: usize) -> RowInput<'_> {
        fn part<T>(all: &[T], index: usize, len: usize) -> &[T] {
            &all[index * len..][..len]
        }
        let len = self.len;
        RowInput {
            len,
            codes: part(&self.codes, index, len),
            scales: part(&self.scales, index, len / SCALE_LEN),
            sums: part(&self.sums, index, len / SCALE_LEN),
            sums16: part(&self.sums16, index, len / 16),
            lanes: part(&self.lanes, index, len / 4),
        }
    }
}

/// Values that one task quantizes: some ten microseconds of work.
const PART_LEN: usize = 1 << 15;

struct QuantizeRows<'a> {
    x: &'a [f32],
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [f32],
    sums16: &'a mut [f32],
    lanes: &'a mut [i32],
}

impl<'a> QuantizeRows<'a> {
    /// The first `len` values, a multiple of 32, and the others.
    fn split(self, len: usize) -> (Self, Self) {
        let x = self.x.split_at(len);
        let codes = self.codes.split_at_mut(len);
        let scales = self.scales.split_at_mut(len / SCALE_LEN);
        let sums = self.sums.split_at_mut(len / SCALE_LEN);
        let sums16 = self.sums16.split_at_mut(len / 16);
        let lanes = self.lanes.split_at_mut(len / 4);
        let part = |x, codes, scales, sums, sums16, lanes| Self {
            x,
            codes,
            scales,
            sums,
            sums16,
            lanes,
        };
        (
            part(x.0, codes.0, scales.0, sums.0, sums16.0, lanes.0),
            part(x.1, codes.1, scales.1, sums.1, sums16.1, lanes.1),
        )
    }
}

impl Kernel for QuantizeRows<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Level>(self) {
        let to = self;
        for (block, x) in to.x.as_chunks::<SCALE_LEN>().0.iter().enumerate() {
            let codes = &mut to.codes.as_chunks_mut::<SCALE_LEN>().0[block];
            let scale = quantize(x, codes);
            let fours = sums_of_4(codes);
            to.scales[block] = scale;
            to.lanes.as_chunks_mut::<8>().0[block] = fours.map(|sum| -128 * sum);
            let halves = [fours[..4].iter().sum::<i32>(), fours[4..].iter().sum()];
            to.sums16.as_chunks_mut::<2>().0[block] = halves.map(|sum| scale * sum as f32);
            to.sums[block] = scale * (halves[0] + halves[1]) as f32;
        }
    }
}

/// What a type wants to know of the sums of codes in a [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SumKind {
    sub_len: usize,
    offset: i32,
    has_min: bool,
}

impl SumKind {
    /// What the type wants.
    pub(super) const fn of<T: CodeBlock>() -> Self {
        assert!(T::SUB_LEN == 16 || T::SUB_LEN == SCALE_LEN);
        assert!(
            T::OFFSET == 0 || !T::HAS_MIN,
            "one sum per sub-block serves either"
        );
        assert!(
            T::CODE_BITS < 8 || T::OFFSET == 128,
            "wide codes can be made signed"
        );
        Self {
            sub_len: T::SUB_LEN,
            offset: T::OFFSET,
            has_min: T::HAS_MIN,
        }
    }
}

/// [`GROUP`] quantized rows side by side, the last ones zero where the input has fewer.
#[derive(Clone, Default)]
pub(super) struct Group {
    /// Values per row. The buffers may be longer than that calls for.
    len: usize,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<(Option<SumKind>, Vec<u32>)>,
}

impl Group {
    /// Quantizes `x`, rows of `len` values, into the first of the groups. Runs on rayon's current pool.
    pub(super) fn quantize_all(
        groups: &mut Vec<Group>,
        x: &[f32],
        len: usize,
        kinds: &[SumKind],
        isa: Isa,
    ) {
        grow(groups, x.len().div_ceil(GROUP * len));
        groups
            .par_iter_mut()
            .zip(x.par_chunks(GROUP * len))
            .for_each(|(group, x)| {
                group.reserve(len, kinds);
                // SAFETY: levels are checked where they enter.
                unsafe { isa.run(QuantizeGroup { x, len, to: group }) }
            });
    }

    /// Collects `rows` of quantized ones, in that order, into the first of the groups; equal to quantizing them so.
    pub(super) fn gather_all(
        groups: &mut [Group],
        from: &RowBuffers,
        rows: &[u32],
        kinds: &[SumKind],
    ) {
        for (group, rows) in groups.iter_mut().zip(rows.chunks(GROUP)) {
            group.reserve(from.len, kinds);
            if rows.len() < GROUP {
                group.clear();
            }
            for (token, &row) in rows.iter().enumerate() {
                let row = from.row(row as usize);
                for block in 0..row.scales.len() {
                    let at = block * GROUP + token;
                    group.codes[at * SCALE_LEN..][..SCALE_LEN]
                        .copy_from_slice(&row.codes[block * SCALE_LEN..][..SCALE_LEN]);
                    group.scales[at] = row.scales[block];
                }
                for (kind, sums) in &mut group.sums {
                    let Some(kind) = kind else { continue };
                    let ready = if kind.sub_len == SCALE_LEN {
                        row.sums
                    } else {
                        row.sums16
                    };
                    let fours = row.lanes.chunks_exact(kind.sub_len / 4);
                    for (sub, (ready, fours)) in ready.iter().zip(fours).enumerate() {
                        sums[sub * GROUP + token] = if kind.has_min {
                            ready.to_bits()
                        } else {
                            (fours.iter().sum::<i32>() / 128 * kind.offset) as u32
                        };
                    }
                }
            }
        }
    }

    /// Makes room for rows of `len` values and these sums.
    fn reserve(&mut self, len: usize, kinds: &[SumKind]) {
        self.len = len;
        grow(&mut self.codes, GROUP * len);
        grow(&mut self.scales, GROUP * len / SCALE_LEN);
        self.sums.resize_with(kinds.len(), Default::default);
        for (sums, kind) in self.sums.iter_mut().zip(kinds) {
            sums.0 = Some(*kind);
            grow(&mut sums.1, GROUP * len / kind.sub_len);
        }
    }

    /// Sets all rows to zero.
    fn clear(&mut self) {
        self.codes.fill(0);
        self.scales.fill(0.0);
        self.sums.iter_mut().for_each(|sums| sums.1.fill(0));
    }

    /// The group for a type that wants this of the sums, one of those given to `quantize_all`.
    pub(super) fn view(&self, kind: SumKind) -> TokenGroup<'_> {
        let sums = self
            .sums
            .iter()
            .find(|sums| sums.0 == Some(kind))
            .map_or(&[][..], |sums| &sums.1);
        let values = GROUP * self.len;
        TokenGroup {
            codes: &self.codes[..values],
            scales: &self.scales[..values / SCALE_LEN],
            sums: &sums[..values / kind.sub_len],
        }
    }
}

struct QuantizeGroup<'a> {
    x: &'a [f32],
    len: usize,
    to: &'a mut Group,
}

impl Kernel for QuantizeGroup<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Level>(self) {
        let Self { x, len, to } = self;
        if x.len() < GROUP * len {
            to.clear();
        }
        for (token, x) in x.chunks_exact(len).enumerate() {
            for (block, x) in x.as_chunks::<SCALE_LEN>().0.iter().enumerate() {
                let at = block * GROUP + token;
                let codes = &mut to.codes.as_chunks_mut::<SCALE_LEN>().0[at];
                let scale = quantize(x, codes);
                to.scales[at] = scale;
                let fours = sums_of_4(codes);
                let halves: [i32; 2] = [fours[..4].iter().sum(), fours[4..].iter().sum()];
                for (kind, sums) in &mut to.sums {
                    let Some(kind) = kind else { continue };
                    let bits = |sum: i32| {
                        if kind.has_min {
                            (scale * sum as f32).to_bits()
                        } else {
                            (-kind.offset * sum) as u32
                        }
                    };
                    if kind.sub_len == SCALE_LEN {
                        sums[at] = bits(halves[0] + halves[1]);
                    } else {
                        sums[2 * block * GROUP + token] = bits(halves[0]);
                        sums[(2 * block + 1) * GROUP + token] = bits(halves[1]);
                    }
                }
            }
        }
    }
}

/// Makes a buffer at least `len` long. It never shrinks: growing back would clear it each time.
pub(super) fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}

/// Quantizes 32 values and returns their scale.
#[inline(always)]
fn quantize(x: &[f32; SCALE_LEN], codes: &mut [i8; SCALE_LEN]) -> f32 {
    // The largest magnitude by its bits, which order NaN above infinity above all numbers.
    let most = x
        .iter()
        .fold(0, |most, x| (x.to_bits() & !(1 << 31)).max(most));
    let most = f32::from_bits(most);
    let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
    for (code, x) in codes.iter_mut().zip(x) {
        // The bounds matter where `inverse` overflows, and turn a NaN into a number; its scale is NaN.
        #[expect(clippy::manual_clamp, reason = "clamp would keep a NaN")]
        let rounded = (x * inverse).round_ties_even().max(-127.0).min(127.0);
        // SAFETY: a number in -127..=127. The checked conversion would not be vectorized.
        *code = unsafe { rounded.to_int_unchecked::<i32>() } as i8;
    }
    most / 127.0
}

/// Sums of 4 neighbours.
#[inline(always)]
fn sums_of_4(codes: &[i8; SCALE_LEN]) -> [i32; 8] {
    std::array::from_fn(|i| {
        codes[4 * i..4 * i + 4]
            .iter()
            .map(|&code| i32::from(code))
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_scales_reproduce_the_values() {
        let x: [f32; 32] = std::array::from_fn(|i| (i as f32 - 7.25) * 3.5e4);
        let mut codes = [0; 32];
        let scale = quantize(&x, &mut codes);
        for (code, x) in codes.iter().zip(x) {
            assert!((f32::from(*code) * scale - x).abs() <= 0.5001 * scale);
        }
        assert_eq!(codes[31], 127);
    }

    #[test]
    fn zeros_denormals_and_non_numbers() {
        let mut codes = [0; 32];
        assert_eq!(quantize(&[0.0; 32], &mut codes), 0.0);
        assert_eq!(codes, [0; 32]);
        let scale = quantize(&[-1e-40; 32], &mut codes);
        assert!(scale >= 0.0 && codes.iter().all(|&code| (-127..=0).contains(&code)));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[5] = bad;
            assert!(!quantize(&x, &mut codes).is_finite());
        }
    }
}
