//! The portable register: eight lanes in an array, mathematics from `std`.

use super::Vector;
use half::f16;

#[derive(Clone, Copy)]
pub(crate) struct F32x8Array([f32; 8]);

impl F32x8Array {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Vector for F32x8Array {
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; 8])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller promises eight readable elements.
        Self(unsafe { p.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_partial(p: *const f32, n: usize) -> Self {
        // SAFETY: the caller promises `n` readable elements.
        let src = unsafe { std::slice::from_raw_parts(p, n) };
        Self(std::array::from_fn(|i| src.get(i).copied().unwrap_or(0.0)))
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const f16) -> Self {
        // SAFETY: the caller promises eight readable elements.
        let src = unsafe { p.cast::<[f16; 8]>().read_unaligned() };
        Self(src.map(f16::to_f32))
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises eight writable elements.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, n: usize) {
        // SAFETY: the caller promises `n < 8` writable elements.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), p, n) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16) {
        // SAFETY: the caller promises eight writable elements.
        unsafe {
            p.cast::<[f16; 8]>()
                .write_unaligned(self.0.map(f16::from_f32))
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    // Two roundings: `f32::mul_add` is a library call where the target has no such instruction.
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.mul(a).add(b)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.map(f32::abs))
    }

    #[inline(always)]
    fn round(self) -> Self {
        Self(self.0.map(f32::round_ties_even))
    }

    #[inline(always)]
    fn pow2(n: Self) -> Self {
        Self(n.0.map(|n| f32::from_bits((((n as i32) + 127) as u32) << 23)))
    }

    #[inline(always)]
    fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
        Self(std::array::from_fn(|i| {
            if a.0[i] < b.0[i] { yes.0[i] } else { no.0[i] }
        }))
    }

    #[inline(always)]
    fn swap_pairs(self) -> Self {
        Self(std::array::from_fn(|i| self.0[i ^ 1]))
    }

    #[inline(always)]
    fn reduce_add(self) -> f32 {
        let v = self.0;
        ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        self.0.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn reduce_add4(v: [Self; 4]) -> [f32; 4] {
        v.map(Self::reduce_add)
    }

    #[inline(always)]
    fn exp(self) -> Self {
        Self(self.0.map(f32::exp))
    }

    #[inline(always)]
    fn exp2(self) -> Self {
        Self(self.0.map(f32::exp2))
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        Self(self.0.map(f32::tanh))
    }
}
