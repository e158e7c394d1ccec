//! The table of tensor types a GGUF file can name: every ggml type id, its spelling and its block geometry.

use std::fmt;

macro_rules! ggml_types {
    ($($variant:ident = $id:literal, $name:literal, $len:literal, $bytes:literal;)*) => {
        /// A ggml tensor type, spelled as ggml spells it without the underscore (`Q4_K` is [`GgmlType::Q4K`]).
        ///
        /// Types that ggml removed are listed too, so that a file holding one can be opened and the type named;
        /// see [`GgmlType::is_removed`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        #[allow(missing_docs)]
        pub enum GgmlType {
            $($variant = $id,)*
        }

        impl GgmlType {
            /// Every known type, by ascending id.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant),*];

            /// The type with this id in a GGUF file, if known (0..=42).
            pub const fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(GgmlType::$variant),)*
                    _ => None,
                }
            }

            /// ggml's spelling, for example `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(GgmlType::$variant => $name,)*
                }
            }

            /// Values in one block (1 for plain number types).
            pub const fn block_len(self) -> usize {
                match self {
                    $(GgmlType::$variant => $len,)*
                }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(GgmlType::$variant => $bytes,)*
                }
            }
        }
    };
}

ggml_types! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q4_2 = 4, "Q4_2", 16, 10;
    Q4_3 = 5, "Q4_3", 16, 12;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q8_1 = 9, "Q8_1", 32, 36;
    Q2K = 10, "Q2_K", 256, 84;
    Q3K = 11, "Q3_K", 256, 110;
    Q4K = 12, "Q4_K", 256, 144;
    Q5K = 13, "Q5_K", 256, 176;
    Q6K = 14, "Q6_K", 256, 210;
    Q8K = 15, "Q8_K", 256, 292;
    IQ2XXS = 16, "IQ2_XXS", 256, 66;
    IQ2XS = 17, "IQ2_XS", 256, 74;
    IQ3XXS = 18, "IQ3_XXS", 256, 98;
    IQ1S = 19, "IQ1_S", 256, 50;
    IQ4NL = 20, "IQ4_NL", 32, 18;
    IQ3S = 21, "IQ3_S", 256, 110;
    IQ2S = 22, "IQ2_S", 256, 82;
    IQ4XS = 23, "IQ4_XS", 256, 136;
    I8 = 24, "I8", 1, 1;
    I16 = 25, "I16", 1, 2;
    I32 = 26, "I32", 1, 4;
    I64 = 27, "I64", 1, 8;
    F64 = 28, "F64", 1, 8;
    IQ1M = 29, "IQ1_M", 256, 56;
    BF16 = 30, "BF16", 1, 2;
    Q4_0x4x4 = 31, "Q4_0_4_4", 32, 18;
    Q4_0x4x8 = 32, "Q4_0_4_8", 32, 18;
    Q4_0x8x8 = 33, "Q4_0_8_8", 32, 18;
    TQ1_0 = 34, "TQ1_0", 256, 54;
    TQ2_0 = 35, "TQ2_0", 256, 66;
    IQ4NLx4x4 = 36, "IQ4_NL_4_4", 32, 18;
    IQ4NLx4x8 = 37, "IQ4_NL_4_8", 32, 18;
    IQ4NLx8x8 = 38, "IQ4_NL_8_8", 32, 18;
    MXFP4 = 39, "MXFP4", 32, 17;
    NVFP4 = 40, "NVFP4", 64, 36;
    Q1_0 = 41, "Q1_0", 128, 18;
    Q2_0 = 42, "Q2_0", 64, 18;
}

impl GgmlType {
    /// The id a GGUF file stores for this type.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Whether ggml dropped the type: files with it can be listed, never computed.
    pub const fn is_removed(self) -> bool {
        matches!(self.id(), 4 | 5 | 31..=33 | 36..=38)
    }

    /// Bytes of a row of `len` values; `None` if `len` does not fill whole blocks or the size overflows.
    pub const fn row_bytes(self, len: usize) -> Option<usize> {
        if !len.is_multiple_of(self.block_len()) {
            return None;
        }
        (len / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dense_and_round_trip() {
        assert_eq!(GgmlType::ALL.len(), 43);
        for (id, ty) in GgmlType::ALL.iter().enumerate() {
            assert_eq!(ty.id() as usize, id);
            assert_eq!(GgmlType::from_id(id as u32), Some(*ty));
        }
        assert_eq!(GgmlType::from_id(43), None);
    }

    #[test]
    fn row_bytes_needs_whole_blocks() {
        assert_eq!(GgmlType::Q8_0.row_bytes(64), Some(68));
        assert_eq!(GgmlType::Q8_0.row_bytes(16), None);
        assert_eq!(GgmlType::Q6K.row_bytes(128), None);
        assert_eq!(GgmlType::F64.row_bytes(usize::MAX), None);
    }
}
