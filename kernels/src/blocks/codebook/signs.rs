//! Signs of eight values at once.
//!
//! `IQ2_XXS`, `IQ2_XS` and `IQ3_XXS` store seven sign bits for eight values: the number of negative ones is always even
//! (an odd one is made even while quantizing, at the value where that costs least), which gives the eighth.

/// The eighth sign bit added to seven: bit 7 is the parity of the others.
#[inline(always)]
pub(crate) const fn even_parity(seven: u8) -> u8 {
    const EIGHT: [u8; 128] = {
        let mut eight = [0; 128];
        let mut i = 0;
        while i < 128 {
            eight[i] = i as u8 | ((i.count_ones() % 2) as u8) << 7;
            i += 1;
        }
        eight
    };
    EIGHT[(seven & 127) as usize]
}

/// Eight codes from eight magnitudes of at most `OFFSET`: `OFFSET - m` where the sign bit is set, else `OFFSET + m`.
#[inline(always)]
pub(crate) const fn apply_signs<const OFFSET: u8>(magnitudes: u64, signs: u8) -> [u8; 8] {
    const { assert!(OFFSET < 128) };
    let offset = u64::from_le_bytes([OFFSET; 8]);
    // Bit `i` alone in byte `i`; any but zero carries into bit 7, which then fills its byte.
    let bits = (signs as u64 * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let negative = ((bits + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101) * 0xff;
    // No byte carries or borrows: both results are within 0..=2 * OFFSET.
    let (plus, minus) = (offset + magnitudes, offset - magnitudes);
    (plus ^ (plus ^ minus) & negative).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_pattern() {
        for signs in 0..=255u8 {
            let codes = apply_signs::<43>(u64::from_le_bytes([8, 25, 43, 0, 1, 42, 8, 43]), signs);
            for (i, magnitude) in [8, 25, 43, 0, 1, 42, 8, 43].into_iter().enumerate() {
                let sign = if signs >> i & 1 == 1 { -1 } else { 1 };
                assert_eq!(i32::from(codes[i]), 43 + sign * magnitude);
            }
            let eight = even_parity(signs & 127);
            assert_eq!((eight & 127, eight.count_ones() % 2), (signs & 127, 0));
        }
    }
}
