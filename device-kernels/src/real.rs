//! The types in which kernels sum.

use core::ops::{Add, Mul};

use windrow_simt::{GlobalPtr, Simt, Word};

use crate::unroll::each4;

/// A type in which a kernel sums: f32, or f64 for elements of that type.
pub trait Real: Word + PartialOrd + Add<Output = Self> + Mul<Output = Self> {
    /// 0, where sums begin.
    const ZERO: Self;
    /// 1, a factor that changes nothing.
    const ONE: Self;
    /// What spoils every sum: not a number.
    const NAN: Self;

    /// The number nearest to `x`.
    fn from_f32(x: f32) -> Self;

    /// The number nearest to `x`.
    fn from_f64(x: f64) -> Self;

    /// `a·b + c`, rounded once.
    fn fma<S: Simt>(s: &S, a: Self, b: Self, c: Self) -> Self;

    /// What the lane whose number differs by `mask` holds.
    ///
    /// # Safety
    /// Collective: all 32 lanes.
    unsafe fn shuffle_xor<S: Simt>(s: &S, x: Self, mask: u32) -> Self;

    /// What the lane `delta` below holds, or the own value if there is none.
    ///
    /// # Safety
    /// Collective: all 32 lanes.
    unsafe fn shuffle_up<S: Simt>(s: &S, x: Self, delta: u32) -> Self;

    /// Adds to a number in memory, atomically.
    ///
    /// # Safety
    /// As for [`Simt::reduce_add_f32`].
    unsafe fn reduce_add<S: Simt>(s: &S, to: GlobalPtr<Self>, x: Self);

    /// `N` numbers, 1, 2 or 4, from an address that is aligned to all of them or to 16 bytes.
    ///
    /// # Safety
    /// As for [`Simt::load`].
    unsafe fn load<S: Simt, const N: usize>(s: &S, from: GlobalPtr<Self>) -> [Self; N];

    /// Stores `N` numbers, likewise; `streaming` if nobody reads them soon.
    ///
    /// # Safety
    /// As for [`Simt::store`].
    unsafe fn store<S: Simt, const N: usize>(s: &S, to: GlobalPtr<Self>, x: [Self; N], streaming: bool);

    /// Stores four numbers in shared memory, 16 bytes or twice as many from an offset that is aligned to 16.
    ///
    /// # Safety
    /// As for [`Simt::store_shared`].
    unsafe fn store_shared<S: Simt>(s: &S, to: u32, x: [Self; 4]);

    /// Loads four numbers from shared memory, likewise.
    ///
    /// # Safety
    /// As for [`Simt::load_shared`].
    unsafe fn load_shared<S: Simt>(s: &S, from: u32) -> [Self; 4];

    /// The number as a factor in the params of a kernel.
    fn factor(self) -> Factor;

    /// The number that a factor is.
    fn of_factor(factor: Factor) -> Self;
}

/// A number in the params of a kernel, in the type in which the kernel sums.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Factor([u32; 2]);

impl Factor {
    /// `x` for a kernel that sums in `T`.
    #[inline(always)]
    #[must_use]
    pub fn new<T: Real>(x: T) -> Self {
        x.factor()
    }

    /// The number, for the type that it was made of: bits of another mean nothing.
    #[inline(always)]
    #[must_use]
    pub fn get<T: Real>(self) -> T {
        T::of_factor(self)
    }
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NAN: Self = Self::NAN;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as Self
    }
    #[inline(always)]
    fn fma<S: Simt>(s: &S, a: Self, b: Self, c: Self) -> Self {
        s.fma(a, b, c)
    }
    #[inline(always)]
    unsafe fn shuffle_xor<S: Simt>(s: &S, x: Self, mask: u32) -> Self {
        // SAFETY: the caller promises that all 32 lanes are here.
        Self::from_bits(unsafe { s.shuffle_xor(x.to_bits(), mask) })
    }
    #[inline(always)]
    unsafe fn shuffle_up<S: Simt>(s: &S, x: Self, delta: u32) -> Self {
        // SAFETY: the caller promises that all 32 lanes are here.
        Self::from_bits(unsafe { s.shuffle_up(x.to_bits(), delta) })
    }
    #[inline(always)]
    unsafe fn reduce_add<S: Simt>(s: &S, to: GlobalPtr<Self>, x: Self) {
        // SAFETY: the caller has a number at `to`, which others only add to meanwhile.
        unsafe { s.reduce_add_f32(to, x) }
    }
    #[inline(always)]
    unsafe fn load<S: Simt, const N: usize>(s: &S, from: GlobalPtr<Self>) -> [Self; N] {
        let mut out = [0.0; N];
        // SAFETY: the caller has `N` numbers at `from`, aligned to all of them.
        unsafe {
            match N {
                1 => out[0] = s.load(from),
                2 => [out[0], out[1 % N]] = s.load(from.cast::<[Self; 2]>()),
                4 => [out[0], out[1 % N], out[2 % N], out[3 % N]] = s.load(from.cast::<[Self; 4]>()),
                _ => const { assert!(matches!(N, 1 | 2 | 4)) },
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn store<S: Simt, const N: usize>(s: &S, to: GlobalPtr<Self>, x: [Self; N], streaming: bool) {
        // SAFETY: the caller has room for `N` numbers at `to`, aligned to all of them, and no other thread touches it.
        unsafe {
            match N {
                1 => s.store(to, x[0]),
                2 => put(s, to.cast(), [x[0], x[1 % N]], streaming),
                4 => put(s, to.cast(), [x[0], x[1 % N], x[2 % N], x[3 % N]], streaming),
                _ => const { assert!(matches!(N, 1 | 2 | 4)) },
            }
        }
    }
    #[inline(always)]
    unsafe fn store_shared<S: Simt>(s: &S, to: u32, x: [Self; 4]) {
        // SAFETY: the caller has 16 bytes of shared memory at `to`, aligned to them.
        unsafe { s.store_shared(to, x) }
    }
    #[inline(always)]
    unsafe fn load_shared<S: Simt>(s: &S, from: u32) -> [Self; 4] {
        // SAFETY: the caller has 16 bytes of shared memory at `from`, aligned to them and written before a barrier.
        unsafe { s.load_shared(from) }
    }
    #[inline(always)]
    fn factor(self) -> Factor {
        Factor([self.to_bits(), 0])
    }
    #[inline(always)]
    fn of_factor(Factor([bits, _]): Factor) -> Self {
        Self::from_bits(bits)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NAN: Self = Self::NAN;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        Self::from(x)
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn fma<S: Simt>(s: &S, a: Self, b: Self, c: Self) -> Self {
        s.fma_f64(a, b, c)
    }
    #[inline(always)]
    unsafe fn shuffle_xor<S: Simt>(s: &S, x: Self, mask: u32) -> Self {
        // SAFETY: the caller promises that all 32 lanes are here; both halves go the same way.
        by_halves(x, |half| unsafe { s.shuffle_xor(half, mask) })
    }
    #[inline(always)]
    unsafe fn shuffle_up<S: Simt>(s: &S, x: Self, delta: u32) -> Self {
        // SAFETY: the caller promises that all 32 lanes are here; both halves go the same way.
        by_halves(x, |half| unsafe { s.shuffle_up(half, delta) })
    }
    #[inline(always)]
    unsafe fn reduce_add<S: Simt>(s: &S, to: GlobalPtr<Self>, x: Self) {
        // SAFETY: the caller has a number at `to`, which others only add to meanwhile.
        unsafe { s.reduce_add_f64(to, x) }
    }
    #[inline(always)]
    unsafe fn load<S: Simt, const N: usize>(s: &S, from: GlobalPtr<Self>) -> [Self; N] {
        let mut out = [0.0; N];
        // SAFETY: the caller has `N` numbers at `from`, aligned to 16 bytes where there are two and more.
        unsafe {
            match N {
                1 => out[0] = s.load(from),
                2 => [out[0], out[1 % N]] = s.load(from.cast::<[Self; 2]>()),
                4 => {
                    [out[0], out[1 % N]] = s.load(from.cast::<[Self; 2]>());
                    [out[2 % N], out[3 % N]] = s.load(from.at(2).cast::<[Self; 2]>());
                }
                _ => const { assert!(matches!(N, 1 | 2 | 4)) },
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn store<S: Simt, const N: usize>(s: &S, to: GlobalPtr<Self>, x: [Self; N], streaming: bool) {
        // SAFETY: the caller has room for `N` numbers at `to`, aligned to 16 bytes where there are two and more.
        unsafe {
            match N {
                1 => s.store(to, x[0]),
                2 => put(s, to.cast(), [x[0], x[1 % N]], streaming),
                4 => {
                    put(s, to.cast(), [x[0], x[1 % N]], streaming);
                    put(s, to.at(2).cast(), [x[2 % N], x[3 % N]], streaming);
                }
                _ => const { assert!(matches!(N, 1 | 2 | 4)) },
            }
        }
    }
    #[inline(always)]
    unsafe fn store_shared<S: Simt>(s: &S, to: u32, [a, b, c, d]: [Self; 4]) {
        // SAFETY: the caller has 32 bytes of shared memory at `to`, aligned to 16.
        unsafe {
            s.store_shared(to, [a, b]);
            s.store_shared(to + 16, [c, d]);
        }
    }
    #[inline(always)]
    unsafe fn load_shared<S: Simt>(s: &S, from: u32) -> [Self; 4] {
        // SAFETY: the caller has 32 bytes of shared memory at `from`, aligned to 16 and written before a barrier.
        let [[a, b], [c, d]] = unsafe { [s.load_shared(from), s.load_shared(from + 16)] };
        [a, b, c, d]
    }
    #[inline(always)]
    fn factor(self) -> Factor {
        let bits = self.to_bits();
        Factor([bits as u32, (bits >> 32) as u32])
    }
    #[inline(always)]
    fn of_factor(Factor([low, high]): Factor) -> Self {
        Self::from_bits(u64::from(low) | u64::from(high) << 32)
    }
}

/// # Safety
/// As for [`Simt::store`].
#[inline(always)]
unsafe fn put<S: Simt, T: Word>(s: &S, to: GlobalPtr<T>, x: T, streaming: bool) {
    // SAFETY: the caller has room for `x` at `to`, aligned to it, which no other thread touches.
    unsafe { if streaming { s.store_streaming(to, x) } else { s.store(to, x) } }
}

/// Moves an f64 as two words.
#[inline(always)]
fn by_halves(x: f64, mut moved: impl FnMut(u32) -> u32) -> f64 {
    let bits = x.to_bits();
    let (low, high) = (moved(bits as u32), moved((bits >> 32) as u32));
    f64::from_bits(u64::from(low) | u64::from(high) << 32)
}

/// `a + b`, of each.
#[inline(always)]
pub(crate) fn add4<T: Real>(mut a: [T; 4], b: [T; 4]) -> [T; 4] {
    each4(|i| a[i] = a[i] + b[i]);
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_what_was_put_in() {
        for x in [0.0, -0.0, 1.5, f64::MIN_POSITIVE / 8.0, f64::MAX, f64::NEG_INFINITY, 1.0 + f64::EPSILON] {
            assert_eq!(Factor::new(x).get::<f64>().to_bits(), x.to_bits());
        }
        for x in [0.0f32, -0.0, 1.5, f32::MIN_POSITIVE / 8.0, f32::MAX, f32::INFINITY] {
            assert_eq!(Factor::new(x).get::<f32>().to_bits(), x.to_bits());
        }
    }
}
