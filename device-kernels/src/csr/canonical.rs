//! Entries that are sorted by row and column, those of one place made one.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::THREADS;
use super::read::index;
use crate::element::Dtype;
use crate::kernel::Kernel;
use crate::place_values::code;
use crate::variant::Variant;

/// Arguments of [`MarkDistinct`] and [`SumEntries`].
///
/// # Obligations
/// - `order` has `entries` elements below their number, `rows` has `entries`, and `columns` likewise, of
///   `column_words` words of which the first is the column: those of a matrix without faults, `rows` in its sorted
///   order and `columns` in its own; `values` has `entries` of the type that `given` is the [`code`] of, or is null;
/// - `marks` has `entries` elements; for [`SumEntries`] they are what [`MarkDistinct`] stored, and `places` has
///   `entries + 1`, which count the marks before each; for [`SumEntries`] of a matrix in canonical form, `order`,
///   `marks` and `places` are null;
/// - for [`SumEntries`], `offsets` has `row_count + 1` elements, of 8 bytes if `wide_offsets` is not 0 and of 4
///   otherwise, none above `entries`; `out_offsets` has as many, `out_columns` has an element for each mark, and
///   `out_values` likewise, of the type `given`, or is null: there are no values then;
/// - `entries` and `row_count` are below [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS) less a block; nothing overlaps
///   what is written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CanonicalParams {
    /// Which entry comes at each place; null: the entries are in their order, each at a place of its own.
    pub order: GlobalPtr<u32>,
    /// Row of each, in that order.
    pub rows: GlobalPtr<u32>,
    /// Column of each entry, in the matrix's own order.
    pub columns: GlobalPtr<u32>,
    /// Value of each, likewise; null: they are 1.
    pub values: GlobalPtr<u32>,
    /// 1 for the first entry of each row and column, else 0.
    pub marks: GlobalPtr<u32>,
    /// How many of those come before.
    pub places: GlobalPtr<u32>,
    /// Where the rows of the matrix begin, and the end.
    pub offsets: GlobalPtr<u32>,
    /// The same of the rows of sums.
    pub out_offsets: GlobalPtr<u64>,
    /// Column of each sum.
    pub out_columns: GlobalPtr<u32>,
    /// The sums, place by place.
    pub out_values: GlobalPtr<u32>,
    /// Entries of the matrix.
    pub entries: u32,
    /// Rows of the matrix.
    pub row_count: u32,
    /// Words from one column to the next, 1 or 2.
    pub column_words: u32,
    /// Whether offsets have 8 bytes.
    pub wide_offsets: u32,
    /// Type of the values.
    pub given: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl CanonicalParams {
    /// Whether the entries are as they are to be.
    #[inline(always)]
    fn is_copy(&self) -> bool {
        self.order == GlobalPtr::NULL
    }

    /// The entry at a place, which is below `entries`.
    #[inline(always)]
    unsafe fn entry<S: Simt>(&self, s: &S, place: u32) -> u32 {
        // SAFETY: the obligations of the params.
        if self.is_copy() { place } else { unsafe { s.load_readonly(self.order.at(place)) } }
    }

    /// The column of that entry.
    #[inline(always)]
    unsafe fn column<S: Simt>(&self, s: &S, place: u32) -> u32 {
        // SAFETY: the obligations of the params.
        unsafe {
            let entry = self.entry(s, place);
            s.load_readonly(self.columns.at_wide(u64::from(entry) * u64::from(self.column_words)))
        }
    }

    /// Whether the entry at a place that is below `entries` begins a sum.
    #[inline(always)]
    unsafe fn is_first<S: Simt>(&self, s: &S, place: u32) -> bool {
        // SAFETY: the obligations of the params.
        self.is_copy() || unsafe { s.load_readonly(self.marks.at(place)) } != 0
    }

    /// The sums that begin before a place, which is at most `entries`.
    #[inline(always)]
    unsafe fn sums_before<S: Simt>(&self, s: &S, place: u32) -> u32 {
        // SAFETY: the obligations of the params.
        if self.is_copy() { place } else { unsafe { s.load_readonly(self.places.at(place)) } }
    }
}

/// Marks the entries that are not of the place of the one before: a thread for each.
pub struct MarkDistinct;

impl Kernel for MarkDistinct {
    type Params = CanonicalParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::MarkDistinct;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CanonicalParams) {
        let at = s.block_idx() * THREADS + s.thread_idx();
        // SAFETY: the obligations of the params; entries are read at `at` and before.
        unsafe {
            if at < p.entries {
                let repeats = at > 0
                    && s.load_readonly(p.rows.at(at)) == s.load_readonly(p.rows.at(at - 1))
                    && p.column(s, at) == p.column(s, at - 1);
                s.store(p.marks.at(at), u32::from(!repeats));
            }
        }
    }
}

/// The sums of the entries of each place, in their order, and where rows begin: a thread for each entry and row.
pub struct SumEntries;

impl Kernel for SumEntries {
    type Params = CanonicalParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::SumEntries;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CanonicalParams) {
        // 1. Locate.
        let at = s.block_idx() * THREADS + s.thread_idx();
        // SAFETY: the obligations of the params; each row and each sum is one thread's.
        unsafe {
            if at <= p.row_count {
                let begin = index(s, p.offsets, at, p.wide_offsets != 0) as u32;
                s.store(p.out_offsets.at(at), u64::from(p.sums_before(s, begin)));
            }
            if at < p.entries && p.is_first(s, at) {
                // 2. to 5. The entries of one place.
                let place = p.sums_before(s, at);
                s.store(p.out_columns.at(place), p.column(s, at));
                if p.out_values != GlobalPtr::NULL {
                    sum_of_type(s, p, at, place);
                }
            }
        }
    }
}

const F64: u32 = code(Dtype::F64);
const F16: u32 = code(Dtype::F16);
const BF16: u32 = code(Dtype::Bf16);

/// Stores the sum of the entries from `at` on that are of one place, in the type of the values.
#[inline(always)]
unsafe fn sum_of_type<S: Simt>(s: &S, p: &CanonicalParams, at: u32, place: u32) {
    // SAFETY: the caller's obligations; entries are below their number, and the sum is the thread's.
    unsafe {
        let half = |entry| s.load_readonly(p.values.cast::<u16>().at(entry));
        match p.given {
            F64 => {
                let value = |entry| s.load_readonly(p.values.cast::<f64>().at(entry));
                s.store(p.out_values.cast::<f64>().at(place), sum(s, p, at, value, |a, b| a + b));
            }
            F16 => {
                let add = |a, b| s.f32_to_f16(s.f16_to_f32(a) + s.f16_to_f32(b));
                s.store(p.out_values.cast::<u16>().at(place), sum(s, p, at, half, add));
            }
            BF16 => {
                let widened = |bits: u16| f32::from_bits(u32::from(bits) << 16);
                let add = |a, b| s.f32_to_bf16(widened(a) + widened(b));
                s.store(p.out_values.cast::<u16>().at(place), sum(s, p, at, half, add));
            }
            _ => {
                let value = |entry| match p.values == GlobalPtr::NULL {
                    true => 1.0,
                    false => s.load_readonly(p.values.cast::<f32>().at(entry)),
                };
                s.store(p.out_values.cast::<f32>().at(place), sum(s, p, at, value, |a, b| a + b));
            }
        }
    }
}

/// The sum of the entries from `first` on that are of one place, added in their order.
#[inline(always)]
unsafe fn sum<S: Simt, T>(
    s: &S,
    p: &CanonicalParams,
    first: u32,
    value: impl Fn(u32) -> T,
    add: impl Fn(T, T) -> T,
) -> T {
    // SAFETY: the caller's obligations; places are below `entries`.
    unsafe {
        let mut sum = value(p.entry(s, first));
        let mut at = first + 1;
        while at < p.entries && !p.is_first(s, at) {
            sum = add(sum, value(p.entry(s, at)));
            at += 1;
        }
        sum
    }
}
