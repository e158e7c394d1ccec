//! Separable resampling of 8-bit RGB pictures with antialiasing.
//!
//! Both arithmetics widen the filter by the reduction factor, normalise its weights in `f64`, round them to integers,
//! and round back to 8 bits after each of the two passes:
//!
//! - [`Arithmetic::Pillow`]: weights with 22 fractional bits (Pillow's `Resample.c`, which llama.cpp follows);
//! - [`Arithmetic::Torch`]: weights as 16-bit integers with as many fractional bits as the largest of them leaves
//!   room for (torchvision's `resize` of `uint8` tensors on a CPU).
//!
//! Rows first, then columns: the order is visible where a filter with negative lobes overshoots, as the first pass clips.

use std::f64::consts::PI;

use image::RgbImage;

/// Interpolation filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Triangle, support 1.
    Bilinear,
    /// Cubic convolution with a = -0.5, support 2.
    Bicubic,
    /// Windowed sinc, support 3.
    Lanczos,
}

impl Filter {
    /// Half width in source pixels where nothing is reduced.
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Weight at distance `x` from the centre.
    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let distance = x.abs();
        match self {
            Self::Bilinear => (1.0 - distance).max(0.0),
            Self::Bicubic if distance < 1.0 => {
                ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0
            }
            Self::Bicubic if distance < 2.0 => {
                (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A
            }
            Self::Lanczos if distance < 3.0 => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        1.0
    } else {
        (x * PI).sin() / (x * PI)
    }
}

/// How weights are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// Pillow's and llama.cpp's.
    Pillow,
    /// torchvision's.
    Torch,
}

const CHANNELS: usize = 3;

/// Weights of one axis: output `i` is the sum over `k < counts[i]` of `weights[i * taps + k]` times source
/// `starts[i] + k`, shifted right by `bits`.
struct Axis {
    starts: Vec<usize>,
    counts: Vec<usize>,
    taps: usize,
    weights: Vec<i32>,
    bits: u32,
}

impl Axis {
    fn new(source: usize, target: usize, filter: Filter, arithmetic: Arithmetic) -> Self {
        let scale = source as f64 / target as f64;
        let widening = scale.max(1.0);
        let support = filter.support() * widening;
        let taps = support.ceil() as usize * 2 + 1;
        let mut starts = Vec::with_capacity(target);
        let mut counts = Vec::with_capacity(target);
        let mut exact = vec![0f64; target * taps];
        for (index, row) in exact.chunks_exact_mut(taps).enumerate() {
            let center = (index as f64 + 0.5) * scale;
            // A cast to an unsigned integer stops at zero.
            let start = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(source);
            let count = end.saturating_sub(start).min(taps);
            let inverse = 1.0 / widening;
            let mut total = 0.0;
            for (offset, weight) in row[..count].iter_mut().enumerate() {
                *weight = filter.weight(((offset + start) as f64 - center + 0.5) * inverse);
                total += *weight;
            }
            if total != 0.0 {
                row[..count].iter_mut().for_each(|weight| *weight /= total);
            }
            starts.push(start);
            counts.push(count);
        }
        let bits = match arithmetic {
            Arithmetic::Pillow => 22,
            Arithmetic::Torch => {
                let largest = exact.iter().copied().fold(0.0, f64::max);
                (0..22)
                    .find(|bits| (0.5 + largest * f64::from(1 << (bits + 1))) as i32 >= 1 << 15)
                    .unwrap_or(22)
            }
        };
        let one = f64::from(1 << bits);
        let weights = exact
            .iter()
            .map(|&weight| (weight * one + if weight < 0.0 { -0.5 } else { 0.5 }) as i32)
            .collect();
        Self {
            starts,
            counts,
            taps,
            weights,
            bits,
        }
    }

    fn weights_of(&self, index: usize) -> &[i32] {
        &self.weights[index * self.taps..][..self.counts[index]]
    }
}

/// Resizes to `width` x `height`, both at least 1, without regard to the aspect ratio.
pub fn resize(
    picture: &RgbImage,
    width: u32,
    height: u32,
    filter: Filter,
    arithmetic: Arithmetic,
) -> RgbImage {
    let (source_width, source_height) = (picture.width() as usize, picture.height() as usize);
    let (target_width, target_height) = (width as usize, height as usize);
    let across = (source_width != target_width)
        .then(|| Axis::new(source_width, target_width, filter, arithmetic));
    let down = (source_height != target_height)
        .then(|| Axis::new(source_height, target_height, filter, arithmetic));
    let pixels = picture.as_raw();
    let pixels = match (across, down) {
        (None, None) => pixels.clone(),
        (Some(across), None) => horizontal(pixels, source_width, &across),
        (None, Some(down)) => vertical(pixels, source_width, &down),
        (Some(across), Some(down)) => vertical(
            &horizontal(pixels, source_width, &across),
            target_width,
            &down,
        ),
    };
    RgbImage::from_raw(width, height, pixels).expect("the passes give width * height pixels")
}

fn clip(sum: i32, bits: u32) -> u8 {
    (sum >> bits).clamp(0, 255) as u8
}

/// Along each row.
fn horizontal(pixels: &[u8], source_width: usize, axis: &Axis) -> Vec<u8> {
    let width = axis.starts.len();
    let height = pixels.len() / (source_width * CHANNELS);
    let mut out = vec![0; width * height * CHANNELS];
    in_bands(&mut out, width * CHANNELS, |first, band| {
        for (row, target) in band.chunks_exact_mut(width * CHANNELS).enumerate() {
            let source =
                &pixels[(first + row) * source_width * CHANNELS..][..source_width * CHANNELS];
            for (index, pixel) in target.chunks_exact_mut(CHANNELS).enumerate() {
                let mut sums = [1 << (axis.bits - 1); CHANNELS];
                let taps = source[axis.starts[index] * CHANNELS..].chunks_exact(CHANNELS);
                for (tap, &weight) in taps.zip(axis.weights_of(index)) {
                    for (sum, &value) in sums.iter_mut().zip(tap) {
                        *sum += i32::from(value) * weight;
                    }
                }
                for (value, sum) in pixel.iter_mut().zip(sums) {
                    *value = clip(sum, axis.bits);
                }
            }
        }
    });
    out
}

/// Along each column, a whole row of sums at a time.
fn vertical(pixels: &[u8], width: usize, axis: &Axis) -> Vec<u8> {
    let row_len = width * CHANNELS;
    let mut out = vec![0; row_len * axis.starts.len()];
    in_bands(&mut out, row_len, |first, band| {
        let mut sums = vec![0i32; row_len];
        for (row, target) in band.chunks_exact_mut(row_len).enumerate() {
            sums.fill(1 << (axis.bits - 1));
            let sources = pixels[axis.starts[first + row] * row_len..].chunks_exact(row_len);
            for (source, &weight) in sources.zip(axis.weights_of(first + row)) {
                for (sum, &value) in sums.iter_mut().zip(source) {
                    *sum += i32::from(value) * weight;
                }
            }
            for (value, &sum) in target.iter_mut().zip(&sums) {
                *value = clip(sum, axis.bits);
            }
        }
    });
    out
}

/// Calls `work(first row, rows)` for bands of whole rows, on several threads where that pays.
fn in_bands(out: &mut [u8], row_len: usize, work: impl Fn(usize, &mut [u8]) + Sync) {
    const WORTH_A_THREAD: usize = 1 << 18;
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(16);
    let rows = out.len() / row_len;
    let bands = threads.min(out.len() / WORTH_A_THREAD + 1);
    let band_rows = rows.div_ceil(bands);
    if bands <= 1 {
        return work(0, out);
    }
    std::thread::scope(|scope| {
        for (index, band) in out.chunks_mut(band_rows * row_len).enumerate() {
            let work = &work;
            scope.spawn(move || work(index * band_rows, band));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILTERS: [Filter; 3] = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos];

    #[test]
    fn one_colour_stays_and_mirrors_mirror() {
        let flat = RgbImage::from_pixel(13, 7, image::Rgb([250, 3, 128]));
        let scene = RgbImage::from_fn(41, 23, |x, y| {
            image::Rgb([(x * 6) as u8, (y * 11) as u8, (x * y) as u8])
        });
        for filter in FILTERS {
            for arithmetic in [Arithmetic::Pillow, Arithmetic::Torch] {
                for (width, height) in [(1, 1), (5, 20), (29, 3), (13, 7), (40, 40)] {
                    let resized = resize(&flat, width, height, filter, arithmetic);
                    assert!(
                        resized.pixels().all(|pixel| pixel.0 == [250, 3, 128]),
                        "{filter:?} {arithmetic:?}"
                    );
                    let mirrored = resize(
                        &image::imageops::flip_horizontal(&scene),
                        width,
                        height,
                        filter,
                        arithmetic,
                    );
                    let expected = image::imageops::flip_horizontal(&resize(
                        &scene, width, height, filter, arithmetic,
                    ));
                    assert_eq!(
                        mirrored, expected,
                        "{filter:?} {arithmetic:?} {width} x {height}"
                    );
                }
            }
        }
    }

    #[test]
    fn halving_with_a_triangle_weighs_four_pixels() {
        let row = RgbImage::from_fn(4, 1, |x, _| image::Rgb([[0, 80, 160, 240][x as usize]; 3]));
        // Weights 3/8, 3/8 and 1/8 of the pixels that exist, normalised by their sum of 7/8.
        let resized = resize(&row, 2, 1, Filter::Bilinear, Arithmetic::Pillow);
        let expected = (0.0f64 * 3.0 + 80.0 * 3.0 + 160.0) / 7.0;
        assert_eq!(resized.get_pixel(0, 0).0, [expected.round() as u8; 3]);
    }
}
