//! Compares a product on the device with a reference of twice f64's precision, entry by entry.
//!
//! For `C = A·B` (α = 1, β = 0) with the values as stored, each thread computes
//! `want = Σ a·b` of one element as the unevaluated sum of two f64, `scale = Σ |a·b|` in f64, and the ratio
//!
//! ```text
//! |C − want| / (γ(len)·scale + u_out·|want| + tiny),   γ(t) = t·u / (1 − t·u), t = len + 2
//! ```
//!
//! (Higham 2002, section 3.1; `u_out` covers the rounding of a 16-bit result, `tiny` its subnormal
//! spacing; products and sums are compensated as in Ogita, Rump and Oishi 2005, algorithm 5.3). The largest ratio of
//! the launch and where it is are kept by one atomic maximum of `ratio's f32 bits · 2³² + position`, the entries above
//! 1 are counted. Where the reference is not finite the result must be the same infinity, or any NaN. One thread per
//! element and no blocking: slow, and simple enough to be believed; it is itself tested against the host reference.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::element::Element;
use crate::kernel::Kernel;
use crate::output::{OutputType, Span, Summed};
use crate::variant::Variant;

/// Arguments of [`Check`].
///
/// # Obligations
/// CSR arrays of an `m × k` matrix with u32 offsets; `b` is `k × n` with leading dimension `ldb`,
/// `c` is `m × n` with leading dimension `ldc`; both of any alignment.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CheckParams {
    /// `m + 1` offsets.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Value of each entry, in the element type's bits.
    pub values: GlobalPtr<u32>,
    /// `B`, cast to words.
    pub b: GlobalPtr<u32>,
    /// `C`, cast to words.
    pub c: GlobalPtr<u32>,
    /// `[worst, failures]`: zeroed before the launch.
    pub outcome: GlobalPtr<u64>,
    /// Rows of `A` and of `C`.
    pub m: u32,
    /// Columns of `B` and of `C`.
    pub n: u32,
    /// Leading dimension of `B`, in elements.
    pub ldb: u32,
    /// Leading dimension of `C`, in elements.
    pub ldc: u32,
    /// Type of `C`: [`OutputType::code`].
    pub c_type: u32,
    /// Unit roundoff of the accumulation.
    pub unit: f32,
}

/// The kernel: a thread per element, 32 columns a warp, rows along the grid's fast axis.
pub struct Check<E>(PhantomData<E>);

impl<E: Element<Sum: Into<f64>>> Check<E> {
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = 32;
    /// Rows per block: a warp has one.
    pub const ROWS_PER_BLOCK: u32 = Self::BLOCK_THREADS / 32;
}

impl<E: Element<Sum: Into<f64>>> Kernel for Check<E> {
    type Params = CheckParams;
    const FILE: &'static str = "check";
    const VARIANT: Variant = Variant::Check { dtype: E::DTYPE };
    const BLOCK_THREADS: u32 = 256;
    const UNITS_PER_BLOCK: u32 = Self::ROWS_PER_BLOCK;
    const COLUMNS_PER_BLOCK: u32 = Self::SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CheckParams) {
        let row = s.block_idx() * Self::ROWS_PER_BLOCK + s.warp();
        let column = s.block_idx_y() * Self::SLICE + s.lane();
        if row >= p.m || column >= p.n {
            return; // no collectives below
        }
        let element = |ld: u32, r: u32| u64::from(r) * u64::from(ld) + u64::from(column);
        // SAFETY: row < m and column < n; the arrays are as the params promise.
        unsafe {
            let begin = s.load_readonly(p.row_offsets.at(row));
            let end = s.load_readonly(p.row_offsets.at(row + 1));
            let (mut want, mut scale) = (Double { high: 0.0, low: 0.0 }, 0.0f64);
            let mut entry = begin;
            while entry < end {
                let value = E::widen(s, s.load_readonly(p.values.cast::<E::Bits>().at(entry)));
                let at = element(p.ldb, s.load_readonly(p.col_indices.at(entry)));
                let b = E::widen(s, s.load_readonly(p.b.cast::<E::Bits>().at_wide(at)));
                scale += want.add_product(s, value.into(), b.into()).abs();
                entry += 1;
            }
            let [got] = E::Sum::read(s, p.c, &Span::one(element(p.ldc, row), p.c_type));
            let rounding = Rounding::of(p.c_type, E::DTYPE.sum_bytes());
            let t = (f64::from(end - begin) + 2.0) * f64::from(p.unit);
            let bound = t / (1.0 - t) * scale + rounding.unit * want.value().abs() + rounding.tiny;
            let ratio = ratio(got.into(), want, bound, rounding.largest);
            if ratio > 1.0 {
                s.atomic_add_u32(p.outcome.at(1).cast(), 1);
            }
            let position = (u64::from(row) * u64::from(p.n) + u64::from(column)) & 0xffff_ffff;
            s.reduce_max_u64(p.outcome, u64::from(ratio.to_bits()) << 32 | position);
        }
    }
}

/// A sum with twice f64's precision: `high + low`.
#[derive(Clone, Copy)]
struct Double {
    high: f64,
    low: f64,
}

impl Double {
    /// Adds `a·b`, and returns it rounded.
    #[inline(always)]
    fn add_product<S: Simt>(&mut self, s: &S, a: f64, b: f64) -> f64 {
        let product = a * b;
        let product_error = s.fma_f64(a, b, -product);
        let sum = self.high + product;
        let of_product = sum - self.high;
        let sum_error = (self.high - (sum - of_product)) + (product - of_product);
        *self = Self { high: sum, low: self.low + (product_error + sum_error) };
        product
    }

    /// The sum, rounded; not finite where a plain sum is not.
    #[inline(always)]
    fn value(self) -> f64 {
        if self.high.is_finite() { self.high + self.low } else { self.high }
    }
}

/// What storing does to a result.
struct Rounding {
    /// Relative error of a rounding to nearest: the type's unit roundoff.
    unit: f64,
    /// Error where the type's spacing ends: half the distance of subnormals, and a little.
    tiny: f64,
    /// The largest number that may not become infinite.
    largest: f64,
}

impl Rounding {
    #[inline(always)]
    const fn of(c_type: u32, sum_bytes: u32) -> Self {
        const F16: u32 = OutputType::F16.code();
        const BF16: u32 = OutputType::Bf16.code();
        match c_type {
            F16 => Self { unit: 4.9e-4, tiny: 6.0e-8, largest: 65504.0 },
            BF16 => Self { unit: 1.96e-3, tiny: 1e-40, largest: 3.389_531_389_251_535_5e38 },
            _ if sum_bytes == 4 => Self { unit: 0.0, tiny: 1e-44, largest: f64::INFINITY },
            _ => Self { unit: 0.0, tiny: 1e-323, largest: f64::INFINITY },
        }
    }
}

/// `|got − want| / bound`; infinite where a finite result stands for a non-finite one or the other
/// way round.
#[inline(always)]
fn ratio(got: f64, want: Double, bound: f64, largest: f64) -> f32 {
    let value = want.value();
    if value.is_nan() {
        return if got.is_nan() { 0.0 } else { f32::INFINITY };
    }
    if value.is_infinite() || (value.abs() > largest && got.is_infinite()) {
        let same = got.is_infinite() && (got > 0.0) == (value > 0.0);
        return if same { 0.0 } else { f32::INFINITY };
    }
    // `got − high` is nearly always exact, so that little is lost of what `low` adds.
    let ratio = (((got - want.high) - want.low).abs() / bound) as f32;
    if ratio.is_nan() { f32::INFINITY } else { ratio }
}
