//! The arrays of a CSR matrix as somebody else keeps them, brought to the form of plans and checked on the way.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::THREADS;
use crate::element::Dtype;
use crate::kernel::Kernel;
use crate::place_values::{code, round};
use crate::real::Real;
use crate::variant::Variant;

/// Rows and entries that a thread takes, a block's threads side by side.
const EACH: u32 = 4;

/// What is wrong with a matrix, and what decides how it is multiplied. Made of zeros, and added to by every warp.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CsrRecord {
    /// Entries of the longest row.
    pub longest: u64,
    /// Offsets that are wrong: the first is not 0, one is below the one before or beyond the entries, or the last is
    /// not their number.
    pub wrong_offsets: u32,
    /// Columns that are not below their number.
    pub wrong_columns: u32,
    /// Entries whose column is not above that of the entry before.
    pub breaks: u32,
    /// Rows that begin with such an entry. Columns ascend in all rows if these are all.
    pub breaks_of_rows: u32,
    /// Rows of the matrix without entries.
    pub empty_rows: u32,
    /// Values that are finite, and infinite when they are rounded.
    pub overflowed: u32,
    /// Values that are infinite or not a number when they are rounded.
    pub non_finite: u32,
    /// Those that are not a number.
    pub not_numbers: u32,
    /// What [`MarkColumns`](super::MarkColumns) counted, if it was asked.
    pub columns_in_use: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Where [`CsrRecord::columns_in_use`] is in a record, in bytes.
pub const COLUMNS_IN_USE_AT: u64 = 40;

impl CsrRecord {
    /// Whether the arrays are those of a matrix in canonical form.
    #[must_use]
    pub const fn is_canonical(&self) -> bool {
        self.wrong_offsets == 0 && self.wrong_columns == 0 && self.breaks == self.breaks_of_rows
    }
}

/// Arguments of [`ReadCsr`].
///
/// # Obligations
/// - `offsets` has `rows + 1` elements, `columns` and, unless it is null, `values` have `entries`: of 8 bytes where
///   `wide_indices` says so, of 4 otherwise, and of the type that `given` is the [`code`] of (f32 where they are
///   null); any content;
/// - `rows` and `entries` are at most [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS), `padded ≥ entries` too;
/// - `out_offsets` has `rows + 1` elements, `out_columns` and `out_values` have `padded`, of the type that `dtype` is
///   the code of, or all three are null;
/// - `record` was zeroed; nothing overlaps what is written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ReadCsrParams {
    /// First entry of each row, and the end.
    pub offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub columns: GlobalPtr<u32>,
    /// Value of each entry; null: they are 1.
    pub values: GlobalPtr<u32>,
    /// The offsets in 32 bits.
    pub out_offsets: GlobalPtr<u32>,
    /// The columns in 32 bits, and zeros behind.
    pub out_columns: GlobalPtr<u32>,
    /// The values rounded, and zeros behind.
    pub out_values: GlobalPtr<u32>,
    /// What was found, added to what is there.
    pub record: GlobalPtr<CsrRecord>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Columns of the matrix.
    pub cols: u32,
    /// Entries of the matrix.
    pub entries: u32,
    /// Entries and zeros behind.
    pub padded: u32,
    /// [`WIDE_OFFSETS`](Self::WIDE_OFFSETS), [`WIDE_COLUMNS`](Self::WIDE_COLUMNS), both or none.
    pub wide_indices: u32,
    /// Type of the values.
    pub given: u32,
    /// Type that they are rounded to.
    pub dtype: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl ReadCsrParams {
    /// In [`wide_indices`](Self::wide_indices): offsets have 8 bytes.
    pub const WIDE_OFFSETS: u32 = 1;
    /// In [`wide_indices`](Self::wide_indices): columns have 8 bytes.
    pub const WIDE_COLUMNS: u32 = 2;

    /// Bytes of a value as it is given.
    #[inline(always)]
    pub(super) const fn given_bytes(&self) -> u32 {
        match self.given {
            F64 => 8,
            F16 | BF16 => 2,
            _ => 4,
        }
    }
}

/// One pass over a matrix: four rows and four entries a thread. Whatever the arrays hold, no access leaves them.
pub struct ReadCsr;

impl ReadCsr {
    /// Rows, and entries, of a block.
    pub const PER_BLOCK: u32 = THREADS * EACH;
}

impl Kernel for ReadCsr {
    type Params = ReadCsrParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::ReadCsr;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = Self::PER_BLOCK;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ReadCsrParams) {
        // 1. Locate.
        let first = s.block_idx() * Self::PER_BLOCK + s.thread_idx();
        let mut found = CsrRecord::zeroed();
        let mut i = 0;
        // SAFETY: the obligations of the params; each row and entry is one thread's, and all lanes of a warp come to
        // the sums.
        unsafe {
            // 2. to 5. Rows and entries, one after the other.
            while i < EACH {
                let at = first + i * THREADS;
                if at <= p.rows {
                    read_row(s, p, at, &mut found);
                }
                if at < p.padded {
                    read_entry(s, p, at, &mut found);
                }
                i += 1;
            }
            add(s, p.record, found);
        }
    }
}

/// An index of 4 or 8 bytes.
#[inline(always)]
pub(crate) unsafe fn index<S: Simt>(s: &S, from: GlobalPtr<u32>, at: u32, wide: bool) -> u64 {
    // SAFETY: the caller has such an element.
    unsafe {
        match wide {
            true => s.load_readonly(from.cast::<u64>().at(at)),
            false => u64::from(s.load_readonly(from.at(at))),
        }
    }
}

/// Offset `row`, and the row that begins there.
#[inline(always)]
unsafe fn read_row<S: Simt>(s: &S, p: &ReadCsrParams, row: u32, found: &mut CsrRecord) {
    let wide = p.wide_indices & ReadCsrParams::WIDE_OFFSETS != 0;
    let entries = u64::from(p.entries);
    // SAFETY: the obligations of the params; `row ≤ rows`, and columns are read below `entries`.
    unsafe {
        let begin = index(s, p.offsets, row, wide);
        let is_last = row == p.rows;
        let end = if is_last { entries } else { index(s, p.offsets, row + 1, wide) };
        let wrong = begin > end || begin > entries || row == 0 && begin != 0 || is_last && begin != entries;
        found.wrong_offsets += u32::from(wrong);
        if p.out_offsets != GlobalPtr::NULL {
            s.store(p.out_offsets.at(row), begin as u32);
        }
        if !is_last && begin <= end && end <= entries {
            let length = end - begin;
            found.empty_rows += u32::from(length == 0);
            if length > found.longest {
                found.longest = length;
            }
            if length > 0 && begin > 0 {
                found.breaks_of_rows += u32::from(breaks(s, p, begin as u32));
            }
        }
    }
}

/// Whether the column of an entry that is not the first is not above that of the one before.
#[inline(always)]
unsafe fn breaks<S: Simt>(s: &S, p: &ReadCsrParams, entry: u32) -> bool {
    let wide = p.wide_indices & ReadCsrParams::WIDE_COLUMNS != 0;
    // SAFETY: the caller has entries `entry - 1` and `entry`.
    unsafe { index(s, p.columns, entry, wide) <= index(s, p.columns, entry - 1, wide) }
}

/// Column and value of an entry, or of a zero behind the last.
#[inline(always)]
unsafe fn read_entry<S: Simt>(s: &S, p: &ReadCsrParams, entry: u32, found: &mut CsrRecord) {
    let exists = entry < p.entries;
    // SAFETY: the obligations of the params; what is given is read below `entries`, places are below `padded`.
    unsafe {
        let mut column = 0;
        if exists {
            let wide = p.wide_indices & ReadCsrParams::WIDE_COLUMNS != 0;
            let given = index(s, p.columns, entry, wide);
            found.wrong_columns += u32::from(given >= u64::from(p.cols));
            if entry > 0 {
                found.breaks += u32::from(breaks(s, p, entry));
            }
            column = given as u32;
        }
        if p.out_columns != GlobalPtr::NULL {
            s.store(p.out_columns.at(entry), column);
            read_value(s, p, entry, found);
        }
    }
}

const F64: u32 = code(Dtype::F64);
const F32: u32 = code(Dtype::F32);
const F16: u32 = code(Dtype::F16);
const BF16: u32 = code(Dtype::Bf16);

/// Whether values are there, of the type that they are wanted in.
#[inline(always)]
pub(super) fn copies_values(p: &ReadCsrParams) -> bool {
    p.values != GlobalPtr::NULL && p.given == p.dtype
}

/// Rounds the value of an entry, or a zero behind the last, and counts what becomes of it.
#[inline(always)]
pub(super) unsafe fn read_value<S: Simt>(s: &S, p: &ReadCsrParams, entry: u32, found: &mut CsrRecord) {
    // SAFETY: the caller's entry is below `padded`; what is given is read below `entries`.
    let (was_finite, is_finite, is_nan) = unsafe {
        if p.given == F64 {
            let value =
                if entry < p.entries { s.load_readonly(p.values.cast::<f64>().at(entry)) } else { 0.0 };
            let is_finite = if p.dtype == F64 {
                s.store(p.out_values.cast::<f64>().at(entry), value);
                value.is_finite()
            } else {
                round(s, p.dtype, p.out_values, entry, narrowed(value, p.dtype == F32)).is_finite()
            };
            (value.is_finite(), is_finite, value.is_nan())
        } else {
            let value = if entry < p.entries { given(s, p, entry) } else { 0.0 };
            let rounded = if p.dtype == F64 {
                s.store(p.out_values.cast::<f64>().at(entry), f64::from(value));
                value
            } else {
                round(s, p.dtype, p.out_values, entry, value)
            };
            (value.is_finite(), rounded.is_finite(), value.is_nan())
        }
    };
    found.overflowed += u32::from(was_finite && !is_finite);
    found.non_finite += u32::from(!is_finite);
    found.not_numbers += u32::from(is_nan);
}

/// An f64 on its way to a narrower type: the nearest f32 where that is the type; otherwise the one next to it, towards
/// zero or away from it, of which the last bit is set. A type with at least two bits fewer is rounded to from there as
/// from the value itself.
///
/// Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to
/// odd", IEEE Transactions on Computers 57(4), 2008.
#[inline(always)]
fn narrowed(value: f64, to_nearest: bool) -> f32 {
    if value.is_nan() {
        // As processors do, whose NaN keeps what there is room for; a GPU's would not.
        let bits = value.to_bits();
        let (sign, rest) = ((bits >> 32) as u32 & 0x8000_0000, (bits >> 29) as u32 & 0x3f_ffff);
        return f32::from_bits(sign | 0x7fc0_0000 | rest);
    }
    let nearest = value as f32;
    let widened = f64::from(nearest);
    if to_nearest || widened == value {
        return nearest;
    }
    // A step towards zero, from infinity too, is one less in the bits.
    let away = u32::from(widened.abs() > value.abs());
    f32::from_bits((nearest.to_bits() - away) | 1)
}

/// A value that is no wider than f32.
#[inline(always)]
unsafe fn given<S: Simt>(s: &S, p: &ReadCsrParams, entry: u32) -> f32 {
    if p.values == GlobalPtr::NULL {
        return 1.0;
    }
    // SAFETY: the caller has such an entry.
    unsafe {
        match p.given {
            F16 => s.f16_to_f32(s.load_readonly(p.values.cast::<u16>().at(entry))),
            BF16 => f32::from_bits(u32::from(s.load_readonly(p.values.cast::<u16>().at(entry))) << 16),
            _ => s.load_readonly(p.values.cast::<f32>().at(entry)),
        }
    }
}

/// A value as it is given, in the type of sums.
///
/// # Safety
/// The obligations of [`ReadCsrParams`], and `entry` is one of the matrix.
#[inline(always)]
pub(crate) unsafe fn value_of<T: Real, S: Simt>(s: &S, p: &ReadCsrParams, entry: u32) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        match p.given == F64 && p.values != GlobalPtr::NULL {
            true => T::from_f64(s.load_readonly(p.values.cast::<f64>().at(entry))),
            false => T::from_f32(given(s, p, entry)),
        }
    }
}

/// Adds what the lanes of a warp have found to the record.
#[inline(always)]
pub(super) unsafe fn add<S: Simt>(s: &S, record: GlobalPtr<CsrRecord>, found: CsrRecord) {
    let counts = [
        found.wrong_offsets,
        found.wrong_columns,
        found.breaks,
        found.breaks_of_rows,
        found.empty_rows,
        found.overflowed,
        found.non_finite,
        found.not_numbers,
    ];
    // SAFETY: the caller promises that all lanes are here; counters are added to atomically.
    unsafe {
        let mut longest = found.longest as u32; // at most the entries
        let mut mask = 16;
        while mask > 0 {
            let other = s.shuffle_xor(longest, mask);
            longest = if other > longest { other } else { longest };
            mask /= 2;
        }
        if s.lane() == 0 && longest > 0 {
            s.reduce_max_u64(record.cast(), u64::from(longest));
        }
        let first = record.byte_add(8).cast::<u32>();
        let mut i = 0;
        while i < counts.len() {
            let mut sum = counts[i];
            let mut mask = 16;
            while mask > 0 {
                sum += s.shuffle_xor(sum, mask);
                mask /= 2;
            }
            if s.lane() == 0 && sum > 0 {
                s.atomic_add_u32(first.at(i as u32), sum);
            }
            i += 1;
        }
    }
}
