//! Eight lanes: AVX2 with FMA and F16C.

use super::Vector;
use half::f16;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct F32x8(__m256);

/// Calls a register-only intrinsic.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: values of this type exist only under `dispatch`, which has checked the CPU.
        unsafe { $e }
    };
}

/// A mask register with the first `n <= 8` lanes set.
#[inline(always)]
fn first(n: usize) -> __m256i {
    op!(_mm256_cmpgt_epi32(
        _mm256_set1_epi32(n as i32),
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
    ))
}

impl Vector for F32x8 {
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self(op!(_mm256_set1_ps(x)))
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller promises eight readable elements.
        Self(unsafe { _mm256_loadu_ps(p) })
    }

    #[inline(always)]
    unsafe fn load_partial(p: *const f32, n: usize) -> Self {
        // SAFETY: masked lanes are not read; the caller promises the first `n`.
        Self(unsafe { _mm256_maskload_ps(p, first(n)) })
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const f16) -> Self {
        // SAFETY: the caller promises eight readable elements, 16 bytes.
        Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises eight writable elements.
        unsafe { _mm256_storeu_ps(p, self.0) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, n: usize) {
        // SAFETY: masked lanes are not written; the caller promises the first `n`.
        unsafe { _mm256_maskstore_ps(p, first(n), self.0) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16) {
        // SAFETY: the caller promises eight writable elements, 16 bytes.
        unsafe {
            _mm_storeu_si128(
                p.cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0),
            )
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(op!(_mm256_add_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(op!(_mm256_sub_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(op!(_mm256_mul_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(op!(_mm256_div_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        Self(op!(_mm256_fmadd_ps(self.0, a.0, b.0)))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(op!(_mm256_max_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(op!(_mm256_min_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(op!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0)))
    }

    #[inline(always)]
    fn round(self) -> Self {
        Self(op!(_mm256_round_ps::<
            { _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC },
        >(self.0)))
    }

    #[inline(always)]
    fn pow2(n: Self) -> Self {
        Self(op!({
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.0), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }))
    }

    #[inline(always)]
    fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
        Self(op!(_mm256_blendv_ps(
            no.0,
            yes.0,
            _mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0)
        )))
    }

    #[inline(always)]
    fn swap_pairs(self) -> Self {
        Self(op!(_mm256_permute_ps::<0b10_11_00_01>(self.0)))
    }

    #[inline(always)]
    fn reduce_add(self) -> f32 {
        op!({
            let v = _mm_add_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        op!({
            let v = _mm_max_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn reduce_add4(v: [Self; 4]) -> [f32; 4] {
        op!({
            let ab = _mm256_hadd_ps(v[0].0, v[1].0);
            let cd = _mm256_hadd_ps(v[2].0, v[3].0);
            let s = _mm256_hadd_ps(ab, cd);
            let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
            std::mem::transmute::<__m128, [f32; 4]>(s)
        })
    }
}
