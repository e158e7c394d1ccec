//! The table of types the CPU computes with, and what a type may add to its block code for speed.

use super::error::CpuError;
use super::gemv::RowInput;
use super::level::Level;
use crate::GgmlType;
use crate::blocks::{self, BlockType, CodeBlock, MAX_BLOCK_LEN};
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;

/// A type whose rows the CPU can decode.
pub(super) trait CpuType: BlockType {
    /// Whether the type is one of plain numbers that a register widens to `f32` with an instruction or two.
    const WIDENS: bool = false;

    /// 8 values, of a type that `WIDENS`.
    ///
    /// # Safety
    /// The CPU must have AVX2 and F16C; there must be 8 values.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx2(bytes: *const u8) -> __m256 {
        let mut out = [0.0; 8];
        for (i, out) in out.iter_mut().enumerate() {
            // SAFETY: the caller says that there are 8 values.
            let value =
                unsafe { std::slice::from_raw_parts(bytes.add(i * Self::BYTES), Self::BYTES) };
            Self::dequantize_block(value, std::slice::from_mut(out));
        }
        // SAFETY: an array of 8.
        unsafe { _mm256_loadu_ps(out.as_ptr()) }
    }

    /// 16 values, of a type that `WIDENS`.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F, AVX2 and F16C; there must be 16 values.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx512(bytes: *const u8) -> __m512 {
        // SAFETY: the caller says so.
        unsafe {
            let low = _mm256_castps_pd(Self::widen_avx2(bytes));
            let high = _mm256_castps_pd(Self::widen_avx2(bytes.add(8 * Self::BYTES)));
            _mm512_castpd_ps(_mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high))
        }
    }

    /// Decodes whole blocks: `out.len() / LEN` of them.
    ///
    /// # Safety
    /// The CPU must have the features of `L`.
    #[inline(always)]
    unsafe fn decode<L: Level>(bytes: &[u8], out: &mut [f32]) {
        if Self::WIDENS {
            // SAFETY: the caller's promise is the callee's.
            return unsafe { L::widen::<Self>(bytes, out) };
        }
        for (block, out) in bytes
            .chunks_exact(Self::BYTES)
            .zip(out.chunks_exact_mut(Self::LEN))
        {
            Self::dequantize_block(block, out);
        }
    }
}

/// A type of codes and scales. `gemv/` overrides by type what is better written by hand.
pub(super) trait CpuCode: CpuType + CodeBlock {
    /// As [`CodeBlock::unpack_block`], of exactly one block.
    ///
    /// # Safety
    /// The CPU must have AVX2, FMA and F16C; the slices must have the lengths `unpack_block` asks for.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_avx2(block: &[u8], codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        Self::unpack_block(block, codes, scales, mins);
    }

    /// Dot products of one row of blocks with `N` quantized activation rows.
    ///
    /// # Safety
    /// The CPU must have AVX2 and FMA; `row` must hold `x[_].len / LEN` blocks.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn dot_avx2<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
        // SAFETY: the caller's promises are the callee's.
        unsafe { super::gemv::dot_unpacked::<Self, super::level::Avx2, N>(row, x) }
    }

    /// Dot products of one row of blocks with `N` quantized activation rows.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F, BW, VL and VNNI; `row` must hold `x[_].len / LEN` blocks.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn dot_avx512<const N: usize>(row: &[u8], x: &[RowInput<'_>; N]) -> [f32; N] {
        // SAFETY: the caller's promises are the callee's.
        unsafe { super::gemv::dot_unpacked::<Self, super::level::Avx512, N>(row, x) }
    }
}

/// What to do with a type that is only known at run time; see [`visit`].
pub(super) trait TypeVisitor {
    type Output;
    fn float<T: CpuType>(self) -> Self::Output;
    fn code<T: CpuCode>(self) -> Self::Output;
}

macro_rules! cpu_types {
    (decode $code:ident) => {
        impl CpuType for blocks::$code {
            #[inline(always)]
            unsafe fn decode<L: Level>(bytes: &[u8], out: &mut [f32]) {
                // SAFETY: the caller's promise is the callee's.
                unsafe { decode_codes::<Self, L>(bytes, out) }
            }
        }
    };
    (float: $($float:ident),*; code: $($code:ident),*;) => {
        /// Calls the visitor with the Rust type of `ty`.
        pub(super) fn visit<V: TypeVisitor>(ty: GgmlType, operation: &'static str, visitor: V) -> Result<V::Output, CpuError> {
            match ty {
                $(GgmlType::$float => Ok(visitor.float::<blocks::$float>()),)*
                $(GgmlType::$code => Ok(visitor.code::<blocks::$code>()),)*
                _ => Err(CpuError::UnsupportedType { ty, operation }),
            }
        }

        $(cpu_types!(decode $code);)*
    };
}

cpu_types! {
    float: F32, F16, BF16, F64, I8, I16, I32, I64;
    code: Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2K, Q3K, Q4K, Q5K, Q6K, Q8K, TQ1_0, TQ2_0, MXFP4, NVFP4,
        IQ1S, IQ1M, IQ2XXS, IQ2XS, IQ2S, IQ3XXS, IQ3S, IQ4NL, IQ4XS;
}

impl CpuType for blocks::F64 {}
impl CpuType for blocks::I8 {}
impl CpuType for blocks::I16 {}
impl CpuType for blocks::I32 {}
impl CpuType for blocks::I64 {}

impl CpuType for blocks::F32 {
    const WIDENS: bool = true;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx2(bytes: *const u8) -> __m256 {
        // SAFETY: the caller says that there are 8 values.
        unsafe { _mm256_loadu_ps(bytes.cast()) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx512(bytes: *const u8) -> __m512 {
        // SAFETY: the caller says that there are 16 values.
        unsafe { _mm512_loadu_ps(bytes.cast()) }
    }
}

impl CpuType for blocks::F16 {
    const WIDENS: bool = true;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx2(bytes: *const u8) -> __m256 {
        // SAFETY: the caller says that there are 8 values.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(bytes.cast())) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx512(bytes: *const u8) -> __m512 {
        // SAFETY: the caller says that there are 16 values.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(bytes.cast())) }
    }
}

impl CpuType for blocks::BF16 {
    const WIDENS: bool = true;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx2(bytes: *const u8) -> __m256 {
        // SAFETY: the caller says that there are 8 values.
        unsafe {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(bytes.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_avx512(bytes: *const u8) -> __m512 {
        // SAFETY: the caller says that there are 16 values.
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bytes.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
}

/// Decodes blocks from their unpacked codes: the level's way of unpacking, and one loop for every type.
///
/// # Safety
/// The CPU must have the features of `L`.
#[inline(always)]
unsafe fn decode_codes<T: CpuCode, L: Level>(bytes: &[u8], out: &mut [f32]) {
    let (mut codes, mut scales, mut mins) = ([0; MAX_BLOCK_LEN], [0.0; 16], [0.0; 16]);
    for (block, out) in bytes
        .chunks_exact(T::BYTES)
        .zip(out.chunks_exact_mut(T::LEN))
    {
        // SAFETY: the caller's; one block and buffers for the longest.
        unsafe { L::unpack::<T>(block, &mut codes, &mut scales, &mut mins) };
        let subs = out
            .chunks_exact_mut(T::SUB_LEN)
            .zip(codes.chunks_exact(T::SUB_LEN));
        for (sub, (out, codes)) in subs.enumerate() {
            // SAFETY: the caller's; a sub-block is 16 or 32 values.
            unsafe { L::scale_codes::<T>(codes, scales[sub], mins[sub], out) };
        }
    }
}

/// Whether the operations of this module take the type.
pub fn is_supported(ty: GgmlType) -> bool {
    struct Nothing;
    impl TypeVisitor for Nothing {
        type Output = ();
        fn float<T: CpuType>(self) {}
        fn code<T: CpuCode>(self) {}
    }
    visit(ty, "any operation", Nothing).is_ok()
}
