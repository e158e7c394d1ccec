//! The sixteen values of `IQ4_NL` and `IQ4_XS`: close together around zero, where most weights are, and wider apart
//! towards both ends. None is zero, and the ends differ, so a scale's sign decides which tail reaches further.

/// What the four-bit codes stand for, rising.
pub(crate) const IQ4: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// `IQ4` plus 128, four to a word.
pub(super) static WORDS: [u32; 4] = {
    let mut words = [0; 4];
    let mut i = 0;
    while i < 16 {
        words[i / 4] |= ((IQ4[i] as i32 + 128) as u32) << (i % 4 * 8);
        i += 1;
    }
    words
};
