//! Search for a scale of values that are not negative: `value` is about `scale * code`, with codes of `0..=max_code`.
//! This is how the scales and mins of sub-blocks are packed.

use super::rounding::nearest;
use super::symmetric::NOTHING;

/// The codes of the best of nine scales, each then moved up to five times to where the error is least; and the scale
/// that suits them.
#[inline(always)]
pub(crate) fn search<const N: usize>(
    values: &[f32; N],
    weights: &[f32; N],
    max_code: i32,
    codes: &mut [u8; N],
) -> f32 {
    let most = values
        .iter()
        .fold(0.0, |most, &x| if x > most { x } else { most });
    if most < NOTHING {
        codes.fill(0);
        return 0.0;
    }
    let inverse = best_inverse(values, weights, max_code, most);
    let (mut xq, mut qq) = (0.0f32, 0.0f32);
    for i in 0..N {
        let (x, w) = (values[i], weights[i]);
        let code = nearest(inverse * x).min(max_code);
        codes[i] = code as u8;
        xq += w * x * code as f32;
        qq += w * code as f32 * code as f32;
    }
    for _ in 0..5 {
        let mut changed = false;
        for i in 0..N {
            let (x, w, old) = (values[i], weights[i], f32::from(codes[i]));
            let mut new_xq = xq - w * x * old;
            let mut new_qq = qq - w * old * old;
            if !(new_xq > 0.0 && new_qq > 0.0) {
                continue;
            }
            let code = nearest(x * new_qq / new_xq).min(max_code);
            if code == i32::from(codes[i]) {
                continue;
            }
            new_xq += w * x * code as f32;
            new_qq += w * code as f32 * code as f32;
            if new_xq * new_xq * qq > xq * xq * new_qq {
                codes[i] = code as u8;
                (xq, qq) = (new_xq, new_qq);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    if qq > 0.0 { xq / qq } else { 0.0 }
}

/// The inverse scale with the least weighted squared error, of nine that take the largest value to about `max_code`.
#[inline(always)]
fn best_inverse(values: &[f32], weights: &[f32], max_code: i32, most: f32) -> f32 {
    let error = |inverse: f32, bounded: bool| {
        let scale = 1.0 / inverse;
        let mut error = 0.0f32;
        for (&x, &w) in values.iter().zip(weights) {
            let code = nearest(inverse * x);
            let code = if bounded {
                code.min(max_code)
            } else {
                i32::from(code as u8)
            };
            let difference = x - scale * code as f32;
            error += w * difference * difference;
        }
        error
    };
    let mut best = max_code as f32 / most;
    let mut least = error(best, false);
    for step in (-4..=4).filter(|&step| step != 0) {
        let inverse = (0.1 * step as f32 + max_code as f32) / most;
        let error = error(inverse, true);
        if error < least {
            (best, least) = (inverse, error);
        }
    }
    best
}
