//! Eight lanes of f64 as an array, which the compiler maps to the unit's registers.

use super::vector::Vector;

/// Eight lanes as an array, which the compiler spreads over the registers of the unit that the function around is
/// compiled for. `FUSED` if that unit multiplies and adds in one instruction; elsewhere `mul_add` would be a call.
#[derive(Clone, Copy)]
pub(crate) struct Doubles<const FUSED: bool>([f64; 8]);

impl<const FUSED: bool> Vector for Doubles<FUSED> {
    type Scalar = f64;
    const LANES: usize = 8;
    type Mask = usize;

    #[inline(always)]
    unsafe fn mask(count: usize) -> usize {
        count
    }
    #[inline(always)]
    fn count(mask: usize) -> usize {
        mask
    }
    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        Self([x; 8])
    }
    #[inline(always)]
    unsafe fn multiply_add(self, Self(factor): Self, Self(addend): Self) -> Self {
        let mut lanes = addend;
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = if FUSED { self.0[i].mul_add(factor[i], *lane) } else { self.0[i] * factor[i] + *lane };
        }
        Self(lanes)
    }
    #[inline(always)]
    unsafe fn multiply(self, factor: Self) -> Self {
        let mut lanes = factor.0;
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane *= self.0[i];
        }
        Self(lanes)
    }
    #[inline(always)]
    unsafe fn prefetch<T>(at: *const T) {
        #[cfg(target_arch = "x86_64")]
        super::x86::prefetch(at);
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: valid for eight elements, as the caller promises; an array is aligned like its elements.
        Self(unsafe { from.cast::<[f64; 8]>().read() })
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f64, count: usize) -> Self {
        let mut lanes = [0.0; 8];
        // SAFETY: valid for `count ≤ 8` elements, as the caller promises.
        unsafe { lanes.as_mut_ptr().copy_from_nonoverlapping(from, count) };
        Self(lanes)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: as for the load.
        unsafe { to.cast::<[f64; 8]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f64, count: usize) {
        // SAFETY: as for the load.
        unsafe { to.copy_from_nonoverlapping(self.0.as_ptr(), count) };
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: valid for eight elements and aligned to two, as the caller promises.
        unsafe {
            super::x86::stream_doubles(self.0, to);
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: as for the store.
        unsafe {
            self.store(to);
        }
    }
    #[inline(always)]
    unsafe fn finish_streams() {
        #[cfg(target_arch = "x86_64")]
        super::x86::finish_streams();
    }
}
