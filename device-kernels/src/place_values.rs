//! New values of a sparse matrix, rounded and put where a plan keeps them, on CUDA cores.
//!
//! ```text
//! in place:  out[i]        = round(values[i])
//! gathers:   out[i]        = round(values[index[i]])
//! scatters:  out[index[e]] = round(values[e])          index[e] = NOWHERE: e is kept elsewhere
//! ```
//!
//! The values come in the order of the matrix's entries; a plan has them in its own order, in one array or in the
//! records of tiles, of which they are elements like any other: an element's number is all that a kernel has to know.
//! Memory is what counts: four successive elements of a block are in flight for each thread. Rounding is to nearest,
//! ties to even (tf32: away from zero), once; a NaN keeps its sign and the upper bits of its payload, as on the host.
//! Finite values that become infinite are counted.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, Word};

use crate::element::Dtype;
use crate::kernel::Kernel;
use crate::variant::Variant;

/// In an index: the value is kept elsewhere.
pub const NOWHERE: u32 = u32::MAX;
/// Values that a thread has in flight.
const HELD: u32 = 4;

/// How [`PlaceValuesParams::index`] is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// There is no index: value `i` belongs to element `i`.
    InPlace,
    /// Number of the value of each element.
    Gather,
    /// Number of the element of each value.
    Scatter,
}

impl Placing {
    /// As the params have it.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// Arguments of [`PlaceValues`].
///
/// # Obligations
/// - `placing` is a [`Placing::code`], `dtype` a [`code`], f64 where values are, and only there;
/// - [`Placing::InPlace`]: `values` and `out` have `count` elements, and `index` is not read;
/// - [`Placing::Gather`]: `index` and `out` have `count` elements, every element of `index` is that of a value;
/// - [`Placing::Scatter`]: `values` and `index` have `count` elements, every element of `index` is that of an element
///   of `out`, no two the same, or [`NOWHERE`];
/// - `out` overlaps none of the others; `count ≤ 2³² − 1024`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct PlaceValuesParams {
    /// The new values, of the instance's type, cast to words.
    pub values: GlobalPtr<u32>,
    /// Where values belong, as `placing` says.
    pub index: GlobalPtr<u32>,
    /// Elements as `dtype` has them; those that no value is for are left alone.
    pub out: GlobalPtr<u32>,
    /// Where finite values that become infinite are counted, or null.
    pub overflowed: GlobalPtr<u32>,
    /// Number of elements where values are gathered, else of values.
    pub count: u32,
    /// Meaning of `index`: a [`Placing::code`].
    pub placing: u32,
    /// What values are rounded to.
    pub dtype: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The kernel: four values a thread, given as `V` and stored as any type that is no wider. That type is no variant: it
/// is one branch for all threads alike, and memory is what a launch takes time for.
pub struct PlaceValues<V>(PhantomData<V>);

impl<V: Given> PlaceValues<V> {
    /// Values that a block takes.
    pub const PER_BLOCK: u32 = Self::BLOCK_THREADS * HELD;
}

/// An element type as the params have it.
#[must_use]
pub const fn code(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F16 => 0,
        Dtype::Bf16 => 1,
        Dtype::F32 => 2,
        Dtype::Tf32 => 3,
        Dtype::F64 => 4,
    }
}

const F16: u32 = code(Dtype::F16);
const BF16: u32 = code(Dtype::Bf16);
const TF32: u32 = code(Dtype::Tf32);
const GATHER: u32 = Placing::Gather.code();
const SCATTER: u32 = Placing::Scatter.code();

impl<V: Given> Kernel for PlaceValues<V> {
    type Params = PlaceValuesParams;
    const FILE: &'static str = "place_values";
    const VARIANT: Variant = Variant::PlaceValues { value_bytes: V::BYTES };
    const BLOCK_THREADS: u32 = 256;
    const UNITS_PER_BLOCK: u32 = Self::PER_BLOCK;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PlaceValuesParams) {
        // 1. Locate.
        let first = s.block_idx() * Self::PER_BLOCK + s.thread_idx();
        let position = |i: u32| Some(first + i * Self::BLOCK_THREADS).filter(|&at| at < p.count);
        // SAFETY: positions are below `count`, and what the index says is in range, by the obligations of the params;
        // no two threads have the same element. There are no collectives.
        unsafe {
            // 2. Gather: all loads before any store.
            let mut places = [NOWHERE; HELD as usize];
            let mut i = 0;
            while i < HELD {
                if let Some(at) = position(i) {
                    places[i as usize] = match p.placing {
                        GATHER | SCATTER => s.load_readonly_once(p.index.at(at)),
                        _ => at,
                    };
                }
                i += 1;
            }
            let mut values = [V::zeroed(); HELD as usize];
            let mut i = 0;
            while i < HELD {
                if let Some(at) = position(i) {
                    let from = if p.placing == GATHER { places[i as usize] } else { at };
                    values[i as usize] = s.load_readonly(p.values.cast::<V>().at(from));
                }
                i += 1;
            }
            // 5. Registers -> global.
            let mut overflowed = 0;
            let mut i = 0;
            while i < HELD {
                if let Some(at) = position(i) {
                    let place = if p.placing == GATHER { at } else { places[i as usize] };
                    if p.placing != SCATTER || place != NOWHERE {
                        overflowed += u32::from(values[i as usize].place(s, p, place));
                    }
                }
                i += 1;
            }
            if overflowed > 0 && p.overflowed != GlobalPtr::NULL {
                s.atomic_add_u32(p.overflowed, overflowed);
            }
        }
    }
}

/// A type in which values are given.
pub trait Given: Word {
    /// Rounds the value and stores it as element `place`; whether it was finite and no longer is.
    ///
    /// # Safety
    /// `place` is one of `out`, and this thread's alone.
    unsafe fn place<S: Simt>(self, s: &S, p: &PlaceValuesParams, place: u32) -> bool;
}

impl Given for f32 {
    #[inline(always)]
    unsafe fn place<S: Simt>(self, s: &S, p: &PlaceValuesParams, place: u32) -> bool {
        // SAFETY: the caller has this place of `out` to itself.
        let stored = unsafe { round(s, p.dtype, p.out, place, self) };
        !stored.is_finite() && self.is_finite()
    }
}

impl Given for f64 {
    #[inline(always)]
    unsafe fn place<S: Simt>(self, s: &S, p: &PlaceValuesParams, place: u32) -> bool {
        // SAFETY: the caller has this place of `out` to itself, and `out` is f64 where values are.
        unsafe { s.store(p.out.cast::<Self>().at(place), self) };
        false
    }
}

/// An element of an array of f32, f16 or bf16, as the [`code`] says, as an f32.
///
/// # Safety
/// There is one.
#[inline(always)]
pub(crate) unsafe fn load<S: Simt>(s: &S, dtype: u32, from: GlobalPtr<u32>, at: u64) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            F16 => s.f16_to_f32(s.load_readonly(from.cast::<u16>().at_wide(at))),
            BF16 => f32::from_bits(u32::from(s.load_readonly(from.cast::<u16>().at_wide(at))) << 16),
            _ => s.load_readonly(from.cast::<f32>().at_wide(at)),
        }
    }
}

/// Element `at` of an array of the type of a [`code`], not f64.
#[inline(always)]
pub(crate) fn element(dtype: u32, array: GlobalPtr<u32>, at: u64) -> GlobalPtr<u32> {
    array.byte_add(at * if is_half(dtype) { 2 } else { 4 })
}

/// Rounds an f32 to the type of a [`code`], not f64, and stores it as element `place` of `out`; returns what it became.
///
/// # Safety
/// `place` is one of `out`, and this thread's alone.
#[inline(always)]
pub(crate) unsafe fn round<S: Simt>(s: &S, dtype: u32, out: GlobalPtr<u32>, place: u32, value: f32) -> f32 {
    // SAFETY: the caller has this place of `out` to itself, of the type that `dtype` says.
    unsafe {
        match dtype {
            F16 => {
                let half = nearest_half(s, dtype, value);
                s.store(out.cast::<u16>().at(place), half);
                s.f16_to_f32(half)
            }
            BF16 => {
                let half = nearest_half(s, dtype, value);
                s.store(out.cast::<u16>().at(place), half);
                f32::from_bits(u32::from(half) << 16)
            }
            dtype => {
                let word = nearest_word(s, dtype, value);
                s.store(out.at(place), word);
                f32::from_bits(word)
            }
        }
    }
}

/// The bits of the nearest bf16, or of the nearest f16 for its [`code`]; a NaN keeps what it can of its payload.
#[inline(always)]
pub(crate) fn nearest_half<S: Simt>(s: &S, dtype: u32, value: f32) -> u16 {
    let bits = value.to_bits();
    if dtype == F16 {
        let quiet = (bits >> 16 & 0x8000 | 0x7e00 | bits >> 13 & 0x1ff) as u16;
        if value.is_nan() { quiet } else { s.f32_to_f16(value) }
    } else {
        if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { s.f32_to_bf16(value) }
    }
}

/// The bits of an f32, rounded for the [`code`] of tf32.
#[inline(always)]
pub(crate) fn nearest_word<S: Simt>(s: &S, dtype: u32, value: f32) -> u32 {
    if dtype == TF32 && !value.is_nan() { s.f32_to_tf32(value) } else { value.to_bits() }
}

/// Whether elements of a [`code`] have 16 bits.
#[inline(always)]
pub(crate) const fn is_half(dtype: u32) -> bool {
    dtype == F16 || dtype == BF16
}
