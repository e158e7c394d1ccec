//! Transparency, and everything else that is not 8-bit RGB.

use image::{DynamicImage, RgbImage};

/// What becomes of an alpha channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alpha {
    /// Composited on white, as transformers does.
    #[default]
    OnWhite,
    /// Left out, whatever colour hides behind transparent pixels (llama.cpp).
    Dropped,
}

/// 8-bit RGB of a picture: grey is repeated, 16 bits are rounded to 8.
pub(super) fn to_rgb8(picture: DynamicImage, alpha: Alpha) -> RgbImage {
    if !picture.color().has_alpha() || alpha == Alpha::Dropped {
        return picture.into_rgb8();
    }
    let picture = picture.into_rgba8();
    let (width, height) = picture.dimensions();
    let mut pixels = picture.into_raw();
    // Each pixel becomes shorter, so the result fits in front of what is still to be read.
    for index in 0..pixels.len() / 4 {
        let [red, green, blue, alpha] = pixels[index * 4..][..4]
            .try_into()
            .expect("four bytes were asked for");
        pixels[index * 3..][..3]
            .copy_from_slice(&[red, green, blue].map(|value| over_white(value, alpha)));
    }
    pixels.truncate(width as usize * height as usize * 3);
    RgbImage::from_raw(width, height, pixels).expect("three bytes per pixel are left")
}

/// Pillow's `alpha_composite` on opaque white: 7 more bits of precision, and a division by 255 made of shifts.
fn over_white(value: u8, alpha: u8) -> u8 {
    let sum =
        128 * (u32::from(value) * u32::from(alpha) + 255 * (255 - u32::from(alpha))) + (0x80 << 7);
    (((sum >> 8) + sum) >> 8 >> 7) as u8
}

#[cfg(test)]
mod tests {
    use image::{Rgba, RgbaImage};

    use super::*;

    #[test]
    fn compositing_is_the_rounded_mean_with_white() {
        for value in 0..=255u8 {
            for alpha in 0..=255u8 {
                let exact =
                    (f64::from(value) * f64::from(alpha) + 255.0 * f64::from(255 - alpha)) / 255.0;
                assert!(
                    (f64::from(over_white(value, alpha)) - exact).abs() <= 0.51,
                    "{value} at {alpha}"
                );
            }
        }
    }

    #[test]
    fn alpha_is_composited_or_dropped() {
        let picture = RgbaImage::from_fn(2, 1, |x, _| Rgba([10, 20, 30, [0, 255][x as usize]]));
        let on_white = to_rgb8(picture.clone().into(), Alpha::OnWhite);
        assert_eq!(on_white.as_raw(), &[255, 255, 255, 10, 20, 30]);
        assert_eq!(
            to_rgb8(picture.into(), Alpha::Dropped).as_raw(),
            &[10, 20, 30, 10, 20, 30]
        );
    }
}
