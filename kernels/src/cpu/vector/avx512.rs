//! Sixteen lanes: AVX-512 F, BW, VL.

use super::Vector;
use half::f16;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct F32x16(__m512);

/// Calls a register-only intrinsic.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: values of this type exist only under `dispatch`, which has checked the CPU.
        unsafe { $e }
    };
}

/// The two 256-bit halves added.
#[inline(always)]
fn fold(v: F32x16) -> __m256 {
    op!(_mm256_add_ps(
        _mm512_castps512_ps256(v.0),
        _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v.0)))
    ))
}

impl Vector for F32x16 {
    const LANES: usize = 16;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self(op!(_mm512_set1_ps(x)))
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller promises sixteen readable elements.
        Self(unsafe { _mm512_loadu_ps(p) })
    }

    #[inline(always)]
    unsafe fn load_partial(p: *const f32, n: usize) -> Self {
        // SAFETY: masked lanes are not read; the caller promises the first `n`.
        Self(unsafe { _mm512_maskz_loadu_ps((1u16 << n) - 1, p) })
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const f16) -> Self {
        // SAFETY: the caller promises sixteen readable elements, 32 bytes.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, n: usize) {
        // SAFETY: masked lanes are not written; the caller promises the first `n`.
        unsafe { _mm512_mask_storeu_ps(p, (1u16 << n) - 1, self.0) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16) {
        // SAFETY: the caller promises sixteen writable elements, 32 bytes.
        unsafe {
            _mm256_storeu_si256(
                p.cast(),
                _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0),
            )
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(op!(_mm512_add_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(op!(_mm512_sub_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(op!(_mm512_mul_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(op!(_mm512_div_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        Self(op!(_mm512_fmadd_ps(self.0, a.0, b.0)))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(op!(_mm512_max_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(op!(_mm512_min_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(op!(_mm512_abs_ps(self.0)))
    }

    #[inline(always)]
    fn round(self) -> Self {
        Self(op!(_mm512_roundscale_ps::<
            { _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC },
        >(self.0)))
    }

    #[inline(always)]
    fn pow2(n: Self) -> Self {
        Self(op!({
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.0), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }))
    }

    #[inline(always)]
    fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
        Self(op!(_mm512_mask_blend_ps(
            _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a.0, b.0),
            no.0,
            yes.0
        )))
    }

    #[inline(always)]
    fn swap_pairs(self) -> Self {
        Self(op!(_mm512_permute_ps::<0b10_11_00_01>(self.0)))
    }

    #[inline(always)]
    fn reduce_add(self) -> f32 {
        op!({
            let v = fold(self);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        op!(_mm512_reduce_max_ps(self.0))
    }

    #[inline(always)]
    fn reduce_add4(v: [Self; 4]) -> [f32; 4] {
        op!({
            let ab = _mm256_hadd_ps(fold(v[0]), fold(v[1]));
            let cd = _mm256_hadd_ps(fold(v[2]), fold(v[3]));
            let s = _mm256_hadd_ps(ab, cd);
            let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
            std::mem::transmute::<__m128, [f32; 4]>(s)
        })
    }
}
