//! Compares a product on the device with an f64 reference, entry by entry.
//!
//! For `C = A·B` (α = 1, β = 0) with the values as stored, each thread computes
//! `want = Σ a·b` and `scale = Σ |a·b|` of one element in f64 and the ratio
//!
//! ```text
//! |C − want| / (γ(len)·scale + u_out·|want| + tiny),   γ(t) = t·u / (1 − t·u), t = len + 2
//! ```
//!
//! (Higham 2002, section 3.1; `u_out` covers the rounding of an f16 result, `tiny` its subnormal
//! spacing). The largest ratio of the launch and where it is are kept by one atomic maximum of
//! `ratio's f32 bits · 2³² + position`, the entries above 1 are counted. Where the reference is not
//! finite the result must be the same infinity, or any NaN. One thread per element and no blocking:
//! slow, and simple enough to be believed; it is itself tested against the host reference.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::element::Element;
use crate::kernel::Kernel;
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
    /// Rows of `A`.
    pub m: u32,
    /// Columns of `B`.
    pub n: u32,
    /// Leading dimension of `B`, in elements.
    pub ldb: u32,
    /// Leading dimension of `C`, in elements.
    pub ldc: u32,
    /// 0: `C` is f32; 1: `C` is f16.
    pub c_is_half: u32,
    /// Unit roundoff of the accumulation.
    pub unit: f32,
}

/// The kernel: a thread per element, 32 columns a warp, rows along the grid's fast axis.
pub struct Check<E>(PhantomData<E>);

impl<E: Element> Check<E> {
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = 32;
    /// Rows per block.
    pub const ROWS_PER_BLOCK: u32 = Self::BLOCK_THREADS / 32;
}

impl<E: Element> Kernel for Check<E> {
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
            let (mut want, mut scale) = (0.0f64, 0.0f64);
            let mut entry = begin;
            while entry < end {
                let value = E::widen(s, s.load_readonly(p.values.cast::<E::Bits>().at(entry)));
                let at = element(p.ldb, s.load_readonly(p.col_indices.at(entry)));
                let term = f64::from(value)
                    * f64::from(E::widen(s, s.load_readonly(p.b.cast::<E::Bits>().at_wide(at))));
                want += term;
                scale += term.abs();
                entry += 1;
            }
            let at = element(p.ldc, row);
            let (got, output_error) = if p.c_is_half == 0 {
                (f64::from(s.load(p.c.cast::<f32>().at_wide(at))), 1e-44)
            } else {
                let got = s.f16_to_f32(s.load(p.c.cast::<u16>().at_wide(at)));
                (f64::from(got), want.abs() * 4.9e-4 + 6.0e-8)
            };
            let t = (f64::from(end - begin) + 2.0) * f64::from(p.unit);
            let bound = t / (1.0 - t) * scale + output_error;
            let ratio = ratio(got, want, bound, p.c_is_half != 0);
            if ratio > 1.0 {
                s.atomic_add_u32(p.outcome.at(1).cast(), 1);
            }
            let position = (u64::from(row) * u64::from(p.n) + u64::from(column)) & 0xffff_ffff;
            s.reduce_max_u64(p.outcome, u64::from(ratio.to_bits()) << 32 | position);
        }
    }
}

/// `|got − want| / bound`; infinite where a finite result stands for a non-finite one or the other
/// way round.
#[inline(always)]
fn ratio(got: f64, want: f64, bound: f64, half: bool) -> f32 {
    let overflows = half && want.abs() > 65504.0;
    if want.is_nan() {
        return if got.is_nan() { 0.0 } else { f32::INFINITY };
    }
    if want.is_infinite() || (overflows && got.is_infinite()) {
        let same = got.is_infinite() && (got > 0.0) == (want > 0.0);
        return if same { 0.0 } else { f32::INFINITY };
    }
    let ratio = ((got - want).abs() / bound) as f32;
    if ratio.is_nan() { f32::INFINITY } else { ratio }
}
