//! The register type the fused operations are written against.
//!
//! An operation is one piece of code, generic over [`Vector`], wrapped in a [`Kernel`]. [`dispatch`] runs it at the
//! widest register type the given [`Isa`] allows, inside a function that carries the matching `#[target_feature]`,
//! so that everything marked `#[inline(always)]` below it is compiled for that ISA.
//!
//! The types implementing [`Vector`] never leave this crate, and only [`dispatch`] names them: where a value of such
//! a type exists, the CPU has been checked. That is why plain arithmetic is safe to call and only memory access is not.

mod array;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::Isa;
use array::F32x8Array;
use half::f16;

/// A register of `f32` lanes.
pub(crate) trait Vector: Copy {
    /// Number of lanes.
    const LANES: usize;

    /// All lanes `x`.
    fn splat(x: f32) -> Self;

    /// # Safety
    /// `p` must be readable for `LANES` elements.
    unsafe fn load(p: *const f32) -> Self;

    /// The first `n < LANES` elements, zero in the other lanes.
    ///
    /// # Safety
    /// `p` must be readable for `n` elements.
    unsafe fn load_partial(p: *const f32, n: usize) -> Self;

    /// # Safety
    /// `p` must be readable for `LANES` elements.
    unsafe fn load_f16(p: *const f16) -> Self;

    /// # Safety
    /// `p` must be writable for `LANES` elements.
    unsafe fn store(self, p: *mut f32);

    /// Stores the first `n < LANES` lanes.
    ///
    /// # Safety
    /// `p` must be writable for `n` elements.
    unsafe fn store_partial(self, p: *mut f32, n: usize);

    /// Rounds to nearest even, as `f16::from_f32` does.
    ///
    /// # Safety
    /// `p` must be writable for `LANES` elements.
    unsafe fn store_f16(self, p: *mut f16);

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;

    /// `self * a + b`, rounded once where the ISA can.
    fn fma(self, a: Self, b: Self) -> Self;

    /// The larger; `other` where either is NaN.
    fn max(self, other: Self) -> Self;

    /// The smaller; `other` where either is NaN.
    fn min(self, other: Self) -> Self;

    fn abs(self) -> Self;

    /// Nearest integer, ties to even.
    fn round(self) -> Self;

    /// `2^n` for integral `n` in `-127..=128`; zero at -127, infinite at 128.
    fn pow2(n: Self) -> Self;

    /// `yes` in the lanes where `a < b`, `no` in the others.
    fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self;

    /// Exchanges lanes 2i and 2i+1.
    fn swap_pairs(self) -> Self;

    fn reduce_add(self) -> f32;

    fn reduce_max(self) -> f32;

    /// The four sums over lanes of four registers.
    fn reduce_add4(v: [Self; 4]) -> [f32; 4];

    /// `e^x`; see [`super::exp`].
    #[inline(always)]
    fn exp(self) -> Self {
        super::exp::exp(self)
    }

    /// `2^x`; see [`super::exp`].
    #[inline(always)]
    fn exp2(self) -> Self {
        super::exp::exp2(self)
    }

    /// `tanh x`; see [`super::exp`].
    #[inline(always)]
    fn tanh(self) -> Self {
        super::exp::tanh(self)
    }
}

/// An element type a register can be filled from.
pub(crate) trait Element: Copy + Send + Sync {
    /// # Safety
    /// `p` must be readable for `V::LANES` elements.
    unsafe fn load<V: Vector>(p: *const Self) -> V;

    /// The first `n < V::LANES` elements, zero in the other lanes.
    ///
    /// # Safety
    /// `p` must be readable for `n` elements.
    unsafe fn load_partial<V: Vector>(p: *const Self, n: usize) -> V;

    /// # Safety
    /// `p` must be writable for `V::LANES` elements.
    unsafe fn store<V: Vector>(v: V, p: *mut Self);

    /// The value nearest to `x`.
    fn from_f32(x: f32) -> Self;

    /// The slice itself where this is `f32`.
    fn as_f32(x: &[Self]) -> Option<&[f32]>;
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(p: *const f32) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(p) }
    }

    #[inline(always)]
    unsafe fn load_partial<V: Vector>(p: *const f32, n: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_partial(p, n) }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(v: V, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { v.store(p) }
    }

    #[inline(always)]
    fn from_f32(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn as_f32(x: &[f32]) -> Option<&[f32]> {
        Some(x)
    }
}

impl Element for f16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(p: *const f16) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_f16(p) }
    }

    #[inline(always)]
    unsafe fn load_partial<V: Vector>(p: *const f16, n: usize) -> V {
        let mut padded = [f16::ZERO; 16];
        // SAFETY: the caller promises `n` readable elements, and `n < V::LANES <= 16`.
        unsafe {
            std::ptr::copy_nonoverlapping(p, padded.as_mut_ptr(), n);
            V::load_f16(padded.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(v: V, p: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe { v.store_f16(p) }
    }

    #[inline(always)]
    fn from_f32(x: f32) -> f16 {
        f16::from_f32(x)
    }

    #[inline(always)]
    fn as_f32(_: &[f16]) -> Option<&[f32]> {
        None
    }
}

/// Asks for the cache line at `p` to be brought to the second-level cache; `p` may be any address.
#[inline(always)]
pub(crate) fn prefetch<T>(p: *const T) {
    // SAFETY: SSE is part of x86-64, and a prefetch does not fault.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Work that is generic over the register type. `run` must be `#[inline(always)]`, or it is compiled without the
/// ISA's instructions.
pub(crate) trait Kernel {
    fn run<V: Vector>(self);
}

/// Runs `kernel` at the register type of `isa`, which must be available.
#[inline]
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) {
    assert!(isa.is_available());
    match isa {
        // SAFETY: the assertion.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => unsafe { run_avx512(kernel) },
        // SAFETY: the assertion.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { run_avx2(kernel) },
        _ => kernel.run::<F32x8Array>(),
    }
}

/// # Safety
/// The CPU must have the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) {
    kernel.run::<avx2::F32x8>();
}

/// # Safety
/// The CPU must have the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
unsafe fn run_avx512<K: Kernel>(kernel: K) {
    kernel.run::<avx512::F32x16>();
}
