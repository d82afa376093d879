//! What a product asks of a vector unit and of the elements of `B` and `C`.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use windrow_formats::Value;

use super::doubles::Doubles;
use super::unit::Unit;
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};
use crate::tf32;

/// A register of lanes.
///
/// # Safety
/// Callers of any method run on a machine that has the unit, inside a function compiled for it. Pointers
/// are valid for [`LANES`](Self::LANES) elements, or for as many as the mask counts.
pub(crate) trait Vector: Copy {
    /// What a lane holds.
    type Scalar: Value;
    const LANES: usize;
    /// Which of the first lanes take part.
    type Mask: Copy;

    /// Lanes `0..count`; `count ≤ LANES`.
    unsafe fn mask(count: usize) -> Self::Mask;
    /// How many lanes these are.
    fn count(mask: Self::Mask) -> usize;
    /// `x` in every lane.
    unsafe fn splat(x: Self::Scalar) -> Self;
    /// `self · factor + addend`, fused where the unit can.
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self;
    /// `self · factor`, rounded once a lane.
    unsafe fn multiply(self, factor: Self) -> Self;
    /// Brings the line of `at` nearer, if the unit can; `at` need not be valid.
    unsafe fn prefetch<T>(at: *const T);

    /// Reads [`LANES`](Self::LANES) elements; `from` need not be aligned to the register.
    unsafe fn load(from: *const Self::Scalar) -> Self;
    /// Reads the lanes of the mask, zero elsewhere.
    unsafe fn load_part(from: *const Self::Scalar, mask: Self::Mask) -> Self;
    /// Writes [`LANES`](Self::LANES) elements; `to` need not be aligned to the register.
    unsafe fn store(self, to: *mut Self::Scalar);
    /// Writes the lanes of the mask.
    unsafe fn store_part(self, to: *mut Self::Scalar, mask: Self::Mask);
    /// Writes every lane past the caches, if the unit can; `to` is a multiple of 16 bytes. Other threads
    /// see it only after [`finish_streams`](Self::finish_streams).
    unsafe fn stream(self, to: *mut Self::Scalar);
    /// Makes what this thread has streamed visible to those that it synchronises with.
    unsafe fn finish_streams();
}

/// A register of f32 lanes, which come from and go to elements of 16 bits.
///
/// # Safety
/// As for [`Vector`].
pub(crate) trait Halves: Vector<Scalar = f32> {
    /// Reads [`LANES`](Vector::LANES) elements and widens them to f32, which is exact.
    unsafe fn load_f16(from: *const f16) -> Self;
    /// Reads the lanes of the mask, zero elsewhere.
    unsafe fn load_part_f16(from: *const f16, mask: Self::Mask) -> Self;
    /// Writes every lane, rounded to nearest, ties to even.
    unsafe fn store_f16(self, to: *mut f16);
    /// Writes the lanes of the mask, rounded to nearest, ties to even.
    unsafe fn store_part_f16(self, to: *mut f16, mask: Self::Mask);

    /// Reads [`LANES`](Vector::LANES) elements and widens them to f32, which is exact.
    unsafe fn load_bf16(from: *const bf16) -> Self;
    /// Reads the lanes of the mask, zero elsewhere.
    unsafe fn load_part_bf16(from: *const bf16, mask: Self::Mask) -> Self;
    /// Writes the first `count` lanes, rounded to nearest, ties to even.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16, count: usize) {
        let mut lanes = [0.0; Unit::MOST_LANES];
        // SAFETY: there are at most so many lanes; `to` is valid for `count` elements, as the caller promises.
        unsafe {
            self.store(lanes.as_mut_ptr());
            for (i, &lane) in lanes[..count].iter().enumerate() {
                to.add(i).write(bf16::from_f32(lane));
            }
        }
    }
    /// Every lane rounded to tf32, to nearest, ties away from zero; NaN stays NaN.
    unsafe fn round_tf32(self) -> Self;
}

/// A type that products are summed in, and the registers that hold it on each unit.
pub(crate) trait Lanes: Value {
    /// What every machine of the target has.
    type Portable: Vector<Scalar = Self>;
    /// For AVX2 with FMA and F16C.
    type Avx2: Vector<Scalar = Self>;
    /// For AVX-512 F, BW and VL, and what AVX2 needs.
    type Avx512: Vector<Scalar = Self>;
}

impl Lanes for f32 {
    type Portable = Portable;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = Avx2;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = Avx512;
    #[cfg(not(target_arch = "x86_64"))]
    type Avx2 = Portable;
    #[cfg(not(target_arch = "x86_64"))]
    type Avx512 = Portable;
}

impl Lanes for f64 {
    type Portable = Doubles<FUSED>;
    type Avx2 = Doubles<true>;
    type Avx512 = Doubles<true>;
}

/// An element type that fills the lanes of `V`.
///
/// # Safety
/// The method has the obligations of [`Vector`]'s.
pub(crate) trait Load<V: Vector>: Pod {
    /// Reads every lane, or those of the mask.
    unsafe fn load(from: *const Self, mask: Option<V::Mask>) -> V;
}

/// An element type that the lanes of `V` are stored in.
///
/// # Safety
/// The methods have the obligations of [`Vector`]'s.
pub(crate) trait Store<V: Vector>: Load<V> {
    /// Writes every lane, or those of the mask.
    unsafe fn store(lanes: V, to: *mut Self, mask: Option<V::Mask>);
    /// Writes every lane, past the caches if the type has that; `to` is a multiple of 16 bytes.
    #[inline(always)]
    unsafe fn stream(lanes: V, to: *mut Self) {
        // SAFETY: `to` is valid for all lanes, by the caller's promise.
        unsafe { Self::store(lanes, to, None) }
    }
}

/// The type that products with an element are summed in.
pub(crate) trait Summed: Pod + Send + Sync {
    /// f64 for an f64, else f32.
    type In: Lanes;
}

/// An element type that `B` may be stored in.
pub(crate) trait Operand:
    Summed
    + Load<<<Self as Summed>::In as Lanes>::Portable>
    + Load<<<Self as Summed>::In as Lanes>::Avx2>
    + Load<<<Self as Summed>::In as Lanes>::Avx512>
{
}

/// An element type that `C` may be stored in.
pub(crate) trait Storage:
    Operand
    + Store<<<Self as Summed>::In as Lanes>::Portable>
    + Store<<<Self as Summed>::In as Lanes>::Avx2>
    + Store<<<Self as Summed>::In as Lanes>::Avx512>
{
}

macro_rules! summed_in {
    ($($element:ty => $sum:ty: $($kind:ident)+;)+) => {$(
        impl Summed for $element {
            type In = $sum;
        }
        $(impl $kind for $element {})+
    )+};
}
summed_in! {
    f32 => f32: Operand Storage;
    Tf32 => f32: Operand;
    f16 => f32: Operand Storage;
    bf16 => f32: Operand Storage;
    f64 => f64: Operand Storage;
}

macro_rules! as_they_are {
    ($($scalar:ty),+) => {$(
        impl<V: Vector<Scalar = $scalar>> Load<V> for $scalar {
            #[inline(always)]
            unsafe fn load(from: *const Self, mask: Option<V::Mask>) -> V {
                // SAFETY: `from` is valid for all lanes, or for those of the mask, by the caller's promise.
                unsafe {
                    match mask {
                        None => V::load(from),
                        Some(mask) => V::load_part(from, mask),
                    }
                }
            }
        }

        impl<V: Vector<Scalar = $scalar>> Store<V> for $scalar {
            #[inline(always)]
            unsafe fn store(lanes: V, to: *mut Self, mask: Option<V::Mask>) {
                // SAFETY: `to` is valid for all lanes, or for those of the mask, by the caller's promise.
                unsafe {
                    match mask {
                        None => lanes.store(to),
                        Some(mask) => lanes.store_part(to, mask),
                    }
                }
            }
            #[inline(always)]
            unsafe fn stream(lanes: V, to: *mut Self) {
                // SAFETY: `to` is valid for all lanes and a multiple of 16 bytes, by the caller's promise.
                unsafe { lanes.stream(to) }
            }
        }
    )+};
}
as_they_are!(f32, f64);

/// An f32 of `B` that is rounded to tf32 when it is read.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Tf32(f32);

impl<V: Halves> Load<V> for Tf32 {
    #[inline(always)]
    unsafe fn load(from: *const Self, mask: Option<V::Mask>) -> V {
        // SAFETY: the caller's promise; a `Tf32` is an f32 in memory.
        unsafe { <f32 as Load<V>>::load(from.cast(), mask).round_tf32() }
    }
}

impl<V: Halves> Load<V> for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const Self, mask: Option<V::Mask>) -> V {
        // SAFETY: `from` is valid for all lanes, or for those of the mask, by the caller's promise.
        unsafe {
            match mask {
                None => V::load_bf16(from),
                Some(mask) => V::load_part_bf16(from, mask),
            }
        }
    }
}

impl<V: Halves> Store<V> for bf16 {
    #[inline(always)]
    unsafe fn store(lanes: V, to: *mut Self, mask: Option<V::Mask>) {
        // SAFETY: `to` is valid for all lanes, or for as many as the mask counts, by the caller's promise.
        unsafe { lanes.store_bf16(to, mask.map_or(V::LANES, V::count)) }
    }
}

impl<V: Halves> Load<V> for f16 {
    #[inline(always)]
    unsafe fn load(from: *const Self, mask: Option<V::Mask>) -> V {
        // SAFETY: `from` is valid for all lanes, or for those of the mask, by the caller's promise.
        unsafe {
            match mask {
                None => V::load_f16(from),
                Some(mask) => V::load_part_f16(from, mask),
            }
        }
    }
}

impl<V: Halves> Store<V> for f16 {
    #[inline(always)]
    unsafe fn store(lanes: V, to: *mut Self, mask: Option<V::Mask>) {
        // SAFETY: `to` is valid for all lanes, or for those of the mask, by the caller's promise.
        unsafe {
            match mask {
                None => lanes.store_f16(to),
                Some(mask) => lanes.store_part_f16(to, mask),
            }
        }
    }
}

/// Eight lanes as an array: the compiler finds the target's own vectors for it, two of NEON for instance.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; 8]);

/// Whether the target multiplies and adds in one instruction; elsewhere `mul_add` would be a call.
const FUSED: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

/// `x` as f32, exactly, without the branches that would keep the compiler from using vectors.
///
/// Moved to f32's place, exponent and significand read as a number 2¹¹² too small, subnormals included;
/// the largest exponent stands for infinities and NaN and becomes f32's largest.
#[inline(always)]
fn widen(x: f16) -> f32 {
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = u32::from(x.to_bits() & 0x7fff) << 13;
    let scaled = (f32::from_bits(magnitude) * SCALE).to_bits();
    let exponent = if magnitude >= 0x7c00 << 13 { 0xff << 23 } else { 0 };
    let sign = u32::from(x.to_bits() & 0x8000) << 16;
    f32::from_bits(scaled | exponent | sign)
}

/// `x` as f32, without the test for NaN that `half` has.
#[inline(always)]
fn widen_bf16(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

impl Vector for Portable {
    type Scalar = f32;
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
    unsafe fn splat(x: f32) -> Self {
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
    unsafe fn multiply(self, Self(factor): Self) -> Self {
        let mut lanes = factor;
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane *= self.0[i];
        }
        Self(lanes)
    }
    #[inline(always)]
    unsafe fn prefetch<T>(_: *const T) {}

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: valid for eight elements, as the caller promises; an array is aligned like its elements.
        Self(unsafe { from.cast::<[f32; 8]>().read() })
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, count: usize) -> Self {
        let mut lanes = [0.0; 8];
        // SAFETY: valid for `count ≤ 8` elements, as the caller promises.
        unsafe { lanes.as_mut_ptr().copy_from_nonoverlapping(from, count) };
        Self(lanes)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as for the load.
        unsafe { to.cast::<[f32; 8]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, count: usize) {
        // SAFETY: as for the load.
        unsafe { to.copy_from_nonoverlapping(self.0.as_ptr(), count) };
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: as for the store.
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn finish_streams() {}
}

impl Halves for Portable {
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: valid for eight elements, as the caller promises; an array is aligned like its elements.
        Self(unsafe { from.cast::<[f16; 8]>().read() }.map(widen))
    }
    #[inline(always)]
    unsafe fn load_part_f16(from: *const f16, count: usize) -> Self {
        let mut lanes = [f16::ZERO; 8];
        // SAFETY: valid for `count ≤ 8` elements, as the caller promises.
        unsafe { lanes.as_mut_ptr().copy_from_nonoverlapping(from, count) };
        Self(lanes.map(widen))
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: as for the load.
        unsafe { to.cast::<[f16; 8]>().write(self.0.map(f16::from_f32)) }
    }
    #[inline(always)]
    unsafe fn store_part_f16(self, to: *mut f16, count: usize) {
        let lanes = self.0.map(f16::from_f32);
        // SAFETY: as for the load.
        unsafe { to.copy_from_nonoverlapping(lanes.as_ptr(), count) };
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: valid for eight elements, as the caller promises; an array is aligned like its elements.
        Self(unsafe { from.cast::<[bf16; 8]>().read() }.map(widen_bf16))
    }
    #[inline(always)]
    unsafe fn load_part_bf16(from: *const bf16, count: usize) -> Self {
        let mut lanes = [bf16::ZERO; 8];
        // SAFETY: valid for `count ≤ 8` elements, as the caller promises.
        unsafe { lanes.as_mut_ptr().copy_from_nonoverlapping(from, count) };
        Self(lanes.map(widen_bf16))
    }
    #[inline(always)]
    unsafe fn round_tf32(self) -> Self {
        Self(self.0.map(tf32::round))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_exactly() {
        for bits in 0..=u16::MAX {
            let x = f16::from_bits(bits);
            if x.is_nan() {
                assert!(widen(x).is_nan(), "{bits:#06x}");
            } else {
                assert_eq!(widen(x).to_bits(), x.to_f32().to_bits(), "{bits:#06x}");
            }
        }
    }
}
