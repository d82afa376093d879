//! Element types of `A` and `B`: how their bits become the numbers that kernels multiply.

use windrow_simt::{GlobalPtr, HalfElement, Simt, Word};

use crate::output::Summed;
use crate::real::Real;

/// Element type, as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE binary16: 11 significant bits, at most 65504.
    F16,
    /// The upper half of an f32: its range, 8 significant bits.
    Bf16,
    /// IEEE binary32, 24 significant bits.
    F32,
    /// f32 in memory, 11 significant bits of it in products.
    Tf32,
    /// IEEE binary64, 53 significant bits; products are summed in f64.
    F64,
}

impl Dtype {
    /// Size of one element.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::Tf32 => 4,
            Self::F64 => 8,
        }
    }

    /// Size of a sum of products of such elements.
    #[must_use]
    pub const fn sum_bytes(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 | Self::F32 | Self::Tf32 => 4,
            Self::F64 => 8,
        }
    }
}

/// An element type of `A` and `B`, as a type.
pub trait Element: 'static {
    /// The same, as a value.
    const DTYPE: Dtype;
    /// The word of as many bits that holds an element in memory.
    type Bits: Word;
    /// The type in which products are formed and added.
    type Sum: Summed;
    /// Elements in a 16-byte vector.
    const PER_VECTOR: usize = 16 / Self::DTYPE.bytes() as usize;

    /// One element, as products take it.
    fn widen<S: Simt>(s: &S, bits: Self::Bits) -> Self::Sum;

    /// The elements of a vector, `PER_VECTOR` of them; the rest is zero.
    fn widen_vector<S: Simt>(s: &S, vector: [u32; 4]) -> [Self::Sum; 8];
}

/// IEEE binary16 elements, summed in f32.
pub struct F16;
/// The upper halves of f32.
pub struct Bf16;
/// IEEE binary32 elements, used as they are.
pub struct F32;
/// f32 elements that are rounded to tf32 when they are used: to nearest, ties away from zero.
///
/// Tensor Cores would cut the low bits off instead. Rounding here, in every kernel, makes all kernels of the
/// precision multiply the same numbers; what is rounded already stays as it is.
pub struct Tf32;
/// IEEE binary64 elements, whose products are added in f64.
pub struct F64;

impl Element for F16 {
    const DTYPE: Dtype = Dtype::F16;
    type Bits = u16;
    type Sum = f32;

    #[inline(always)]
    fn widen<S: Simt>(s: &S, bits: u16) -> f32 {
        s.f16_to_f32(bits)
    }

    #[inline(always)]
    fn widen_vector<S: Simt>(s: &S, vector: [u32; 4]) -> [f32; 8] {
        eight(vector.map(|pair| s.f16x2_to_f32(pair)))
    }
}

impl Element for Bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
    type Bits = u16;
    type Sum = f32;

    #[inline(always)]
    fn widen<S: Simt>(_: &S, bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn widen_vector<S: Simt>(_: &S, vector: [u32; 4]) -> [f32; 8] {
        eight(vector.map(|pair| [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)]))
    }
}

impl HalfElement for F16 {
    const BF16: bool = false;
}

impl HalfElement for Bf16 {
    const BF16: bool = true;
}

impl Element for F32 {
    const DTYPE: Dtype = Dtype::F32;
    type Bits = u32;
    type Sum = f32;

    #[inline(always)]
    fn widen<S: Simt>(_: &S, bits: u32) -> f32 {
        f32::from_bits(bits)
    }

    #[inline(always)]
    fn widen_vector<S: Simt>(_: &S, vector: [u32; 4]) -> [f32; 8] {
        four(vector.map(f32::from_bits))
    }
}

impl Element for Tf32 {
    const DTYPE: Dtype = Dtype::Tf32;
    type Bits = u32;
    type Sum = f32;

    #[inline(always)]
    fn widen<S: Simt>(s: &S, bits: u32) -> f32 {
        f32::from_bits(s.f32_to_tf32(f32::from_bits(bits)))
    }

    #[inline(always)]
    fn widen_vector<S: Simt>(s: &S, vector: [u32; 4]) -> [f32; 8] {
        four(vector.map(|bits| Self::widen(s, bits)))
    }
}

impl Element for F64 {
    const DTYPE: Dtype = Dtype::F64;
    type Bits = u64;
    type Sum = f64;

    #[inline(always)]
    fn widen<S: Simt>(_: &S, bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    #[inline(always)]
    fn widen_vector<S: Simt>(_: &S, [a, b, c, d]: [u32; 4]) -> [f64; 8] {
        let number = |low, high| f64::from_bits(u64::from(low) | u64::from(high) << 32);
        [number(a, b), number(c, d), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    }
}

/// The elements of a vector of four words with a pair in each.
#[inline(always)]
const fn eight([a, b, c, d]: [[f32; 2]; 4]) -> [f32; 8] {
    [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]
}

/// The elements of a vector of four words with one in each.
#[inline(always)]
const fn four([a, b, c, d]: [f32; 4]) -> [f32; 8] {
    [a, b, c, d, 0.0, 0.0, 0.0, 0.0]
}

/// How a lane reads its columns of a row of `B`: a 16-byte vector, or one element.
pub trait Gather: 'static {
    /// The type of the elements of `B`.
    type Element: Element;
    /// Neighbouring columns that a lane has: elements of a vector, or 1.
    const WIDTH: u32;
    /// Whether `B` is read in vectors.
    const VECTORS: bool;
    /// What is in flight between the load and its use.
    type Raw: Copy;
    /// A value of `Raw` whose elements are all zero.
    const ZERO: Self::Raw;

    /// Reads `WIDTH` elements at element `at` of `b`.
    ///
    /// # Safety
    /// As for [`Simt::load_readonly`].
    unsafe fn fetch<S: Simt>(s: &S, b: GlobalPtr<u32>, at: u64) -> Self::Raw;

    /// `raw` with the elements from number `present` on replaced by zero.
    fn keep_first(raw: Self::Raw, present: u32) -> Self::Raw;

    /// The `WIDTH` elements; the rest is zero.
    fn elements<S: Simt>(s: &S, raw: Self::Raw) -> [Sum<Self>; 8];

    /// `sum[i] += weight · raw[i]`.
    fn accumulate<S: Simt>(s: &S, weight: Sum<Self>, raw: Self::Raw, sum: &mut [Sum<Self>; 8]);
}

/// The type in which products with a `B` so read are added.
pub type Sum<G> = <<G as Gather>::Element as Element>::Sum;

/// Sixteen bytes a lane.
pub struct Vectors<E>(core::marker::PhantomData<E>);
/// One element a lane, for a `B` of any alignment.
pub struct Scalars<E>(core::marker::PhantomData<E>);

impl<E: Element> Gather for Vectors<E> {
    type Element = E;
    const WIDTH: u32 = E::PER_VECTOR as u32;
    const VECTORS: bool = true;
    type Raw = [u32; 4];
    const ZERO: [u32; 4] = [0; 4];

    #[inline(always)]
    unsafe fn fetch<S: Simt>(s: &S, b: GlobalPtr<u32>, at: u64) -> [u32; 4] {
        // SAFETY: the caller has a vector of `b` at element `at`, aligned to 16 bytes, which nothing writes meanwhile.
        unsafe { s.load_readonly(b.cast::<E::Bits>().at_wide(at).cast::<[u32; 4]>()) }
    }

    #[inline(always)]
    fn keep_first(raw: [u32; 4], present: u32) -> [u32; 4] {
        keep_first(raw, present, E::DTYPE.bytes())
    }

    #[inline(always)]
    fn elements<S: Simt>(s: &S, raw: [u32; 4]) -> [E::Sum; 8] {
        E::widen_vector(s, raw)
    }

    #[inline(always)]
    fn accumulate<S: Simt>(s: &S, weight: E::Sum, raw: [u32; 4], sum: &mut [E::Sum; 8]) {
        let elements = E::widen_vector(s, raw);
        let mut i = 0;
        while i < E::PER_VECTOR {
            sum[i] = E::Sum::fma(s, weight, elements[i], sum[i]);
            i += 1;
        }
    }
}

impl<E: Element> Gather for Scalars<E> {
    type Element = E;
    const WIDTH: u32 = 1;
    const VECTORS: bool = false;
    type Raw = E::Sum;
    const ZERO: E::Sum = E::Sum::ZERO;

    #[inline(always)]
    unsafe fn fetch<S: Simt>(s: &S, b: GlobalPtr<u32>, at: u64) -> E::Sum {
        // SAFETY: the caller has an element of `b` at `at`, which nothing writes meanwhile.
        E::widen(s, unsafe { s.load_readonly(b.cast::<E::Bits>().at_wide(at)) })
    }

    #[inline(always)]
    fn keep_first(raw: E::Sum, present: u32) -> E::Sum {
        if present == 0 { E::Sum::ZERO } else { raw }
    }

    #[inline(always)]
    fn elements<S: Simt>(_: &S, raw: E::Sum) -> [E::Sum; 8] {
        let mut elements = [E::Sum::ZERO; 8];
        elements[0] = raw;
        elements
    }

    #[inline(always)]
    fn accumulate<S: Simt>(s: &S, weight: E::Sum, raw: E::Sum, sum: &mut [E::Sum; 8]) {
        sum[0] = E::Sum::fma(s, weight, raw, sum[0]);
    }
}

/// A vector of elements of `bytes` bytes each, those from number `present` on replaced by zero.
#[inline(always)]
pub(crate) const fn keep_first(vector: [u32; 4], present: u32, bytes: u32) -> [u32; 4] {
    let kept = present * bytes;
    let mut out = vector;
    let mut i = 0;
    while i < 4 {
        let word = kept.saturating_sub(4 * i as u32); // bytes of this word
        if word < 4 {
            out[i] &= (1 << (8 * word)) - 1;
        }
        i += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_elements_of_a_vector_are_kept() {
        let vector = [0x2222_1111, 0x4444_3333, 0x6666_5555, 0x8888_7777];
        assert_eq!(keep_first(vector, 8, 2), vector);
        assert_eq!(keep_first(vector, 9, 2), vector);
        assert_eq!(keep_first(vector, 3, 2), [0x2222_1111, 0x3333, 0, 0]);
        assert_eq!(keep_first(vector, 4, 2), [0x2222_1111, 0x4444_3333, 0, 0]);
        assert_eq!(keep_first(vector, 0, 2), [0; 4]);
        assert_eq!(keep_first(vector, 3, 4), [0x2222_1111, 0x4444_3333, 0x6666_5555, 0]);
        assert_eq!(keep_first(vector, 1, 8), [0x2222_1111, 0x4444_3333, 0, 0]);
        assert_eq!(keep_first(vector, 2, 8), vector);
    }
}
