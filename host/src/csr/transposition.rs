//! The launches of a transposition.

use windrow_kernels::Variant;
use windrow_kernels::csr::{
    ExpandRowsParams, MOST_RANGE_BITS, RANGE_TILE, SplitEntriesParams, TransposeEntriesParams,
    TransposeFewParams, TransposeOut, TransposePartsParams,
};
use windrow_kernels::sort::MOST_DIGIT_BITS;
use windrow_simt::GlobalPtr;

use super::DeviceIndices;
use super::receive::entry_of;
use crate::device::{Device, Queue};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::start;
use crate::sort::Sort;
use crate::spmm::Scratch;

/// What arrays that live as long as a transposition are called where there is no memory for them.
const WHAT: &str = "a transposition";
/// Entries of the largest matrix of which every block reads all columns. None of these numbers is fitted to anything
/// measured.
const MOST_OF_FEW: usize = 1 << 16;
/// Entries of a block that does so, on average.
const EACH_OF_FEW: usize = 1 << 10;
/// Blocks that do so, at most.
const MOST_BLOCKS_OF_FEW: usize = 1 << 9;
/// Entries of a range of columns, on average, where there are not too many ranges: half a tile, so that few ranges have
/// more than one.
const RANGE_ENTRIES: usize = RANGE_TILE as usize / 2;

/// How the entries of a transpose are brought into their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By blocks that read all columns and take a range of them each.
    Few { range_columns: u32, ranges: u32 },
    /// Divided among 2 to the power `digit_bits` ranges of 2 to the power `bits` columns, then range by range.
    Ranges { digit_bits: u32, bits: u32 },
    /// By a sort of all bits of columns.
    Sorted,
}

impl Way {
    /// That of a matrix with so many columns and entries.
    pub(super) fn of(cols: usize, nnz: usize) -> Self {
        let ranges = nnz.div_ceil(EACH_OF_FEW).max(cols.div_ceil(1 << MOST_RANGE_BITS));
        if nnz <= MOST_OF_FEW && ranges <= MOST_BLOCKS_OF_FEW {
            let range_columns = cols.div_ceil(ranges.max(1)).max(1);
            let ranges = cols.div_ceil(range_columns).max(1);
            return Self::Few { range_columns: narrow(range_columns), ranges: narrow(ranges) };
        }
        let of_columns = Sort::bits_below(cols).max(1);
        let least = of_columns.saturating_sub(MOST_RANGE_BITS).max(1);
        if least > MOST_DIGIT_BITS {
            return Self::Sorted;
        }
        let digit_bits = Sort::bits_below(nnz / RANGE_ENTRIES).clamp(least, MOST_DIGIT_BITS).min(of_columns);
        Self::Ranges { digit_bits, bits: of_columns - digit_bits }
    }
}

/// A matrix on a device that runs kernels, and where its transpose goes.
pub(super) struct Transposition<'a> {
    pub(super) device: &'a Device,
    pub(super) own: &'a dyn Queue,
    pub(super) rows: u32,
    pub(super) cols: usize,
    pub(super) nnz: usize,
    pub(super) offsets: DeviceIndices<'a>,
    pub(super) columns: DeviceIndices<'a>,
    /// Null: there are none.
    pub(super) values: GlobalPtr<u32>,
    pub(super) value_bytes: u32,
    pub(super) out: TransposeOut,
}

impl Transposition<'_> {
    /// Queues the launches.
    ///
    /// # Safety
    /// The arrays have the lengths of the matrix, any content, and live until the work is done; there is a row if there
    /// are entries; the way is one for the matrix.
    pub(super) unsafe fn queue(&self, way: Way) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe {
            match way {
                Way::Few { range_columns, ranges } => self.queue_few(range_columns, ranges),
                Way::Ranges { digit_bits, bits } => self.queue_ranges(digit_bits, bits),
                Way::Sorted => self.queue_sorted(),
            }
        }
    }

    /// # Safety
    /// As for [`queue`](Self::queue).
    unsafe fn queue_few(&self, range_columns: u32, ranges: u32) -> Result<(), DeviceError> {
        let params = TransposeFewParams {
            offsets: GlobalPtr::from_address(self.offsets.address()),
            columns: GlobalPtr::from_address(self.columns.address()),
            values: self.values,
            out: self.out,
            rows: self.rows,
            cols: narrow(self.cols),
            entries: narrow(self.nnz),
            range_columns,
            column_words: self.column_words(),
            wide_offsets: self.offsets.is_wide().into(),
            value_bytes: self.value_bytes,
            reserved: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { start(self.own, entry_of(Variant::TransposeFew)?, ranges.into(), 1, &params) }
    }

    /// # Safety
    /// As for [`queue`](Self::queue).
    unsafe fn queue_ranges(&self, digit_bits: u32, bits: u32) -> Result<(), DeviceError> {
        let (entries, ranges) = (narrow(self.nnz), 1 << digit_bits);
        let blocks = wide(self.nnz) / u64::from(RANGE_TILE) + u64::from(ranges);
        let count_words = blocks << bits.max(2);
        let sort_words = Sort::count_words(entries, digit_bits);
        // Each array begins where an allocation would, so that there may be some bytes more.
        let scratch = Scratch::new(self.device, 4 * (3 * wide(self.nnz) + sort_words + count_words) + 2048)?;
        let array = || scratch.array::<u32>(self.nnz, WHAT);
        let sort = Sort { out_keys: array()?, out_payloads: array()?, ..self.sort_of_columns() };
        let rows = array()?;
        let memory = scratch.array(index(sort_words), WHAT)?;
        let counts = scratch.array(index(count_words), WHAT)?;
        // SAFETY: the caller's promise. Whatever columns there are, the totals of their digits add up to the entries,
        // and no more blocks than that have parts of ranges.
        unsafe {
            let sort = sort.count(self.own, (bits, digit_bits), memory)?;
            let split = SplitEntriesParams {
                sort,
                offsets: GlobalPtr::from_address(self.offsets.address()),
                out_rows: rows,
                rows: self.rows,
                wide_offsets: self.offsets.is_wide().into(),
            };
            start(self.own, entry_of(Variant::SplitEntries)?, sort.blocks.into(), 1, &split)?;
            let parts = TransposePartsParams {
                totals: sort.totals,
                columns: sort.out_keys,
                order: sort.out_payloads,
                rows,
                values: self.values,
                counts,
                out: self.out,
                cols: narrow(self.cols),
                entries,
                ranges,
                bits,
                value_bytes: self.value_bytes,
                reserved: 0,
            };
            start(self.own, entry_of(Variant::CountParts)?, blocks, 1, &parts)?;
            start(self.own, entry_of(Variant::TransposeParts)?, blocks, 1, &parts)
        }
    }

    /// # Safety
    /// As for [`queue`](Self::queue).
    unsafe fn queue_sorted(&self) -> Result<(), DeviceError> {
        let (entries, units) = (narrow(self.nnz), wide(self.nnz.max(self.cols + 1)));
        let sort = self.sort_of_columns();
        let sort_words = Sort::memory_words(entries, sort.bits);
        // As above.
        let scratch = Scratch::new(self.device, 4 * (2 * wide(self.nnz) + sort_words) + 1024)?;
        let (rows, columns) = (scratch.array(self.nnz, WHAT)?, scratch.array(self.nnz, WHAT)?);
        let memory = scratch.array(index(sort_words), WHAT)?;
        let params = TransposeEntriesParams {
            order: self.out.order,
            columns,
            rows,
            values: self.values,
            out_offsets: self.out.offsets,
            out_rows: self.out.rows,
            out_values: self.out.values,
            entries,
            cols: narrow(self.cols),
            value_bytes: self.value_bytes,
            reserved: 0,
        };
        // SAFETY: the caller's promise. Columns that are none are sorted by their low bits: they may be out of order
        // then, and offsets of columns wrong, which nobody sees.
        unsafe {
            expand_rows(self.own, self.offsets, self.rows, entries, rows)?;
            Sort { out_keys: columns, out_payloads: self.out.order, ..sort }.queue(self.own, memory)?;
            start(self.own, entry_of(Variant::TransposeEntries)?, units, 1, &params)
        }
    }

    /// A sort by column, of which what comes out has no place yet.
    fn sort_of_columns(&self) -> Sort {
        Sort {
            keys: GlobalPtr::from_address(self.columns.address()),
            key_words: self.column_words(),
            payloads: GlobalPtr::NULL,
            out_keys: GlobalPtr::NULL,
            keys_wanted: true,
            out_payloads: GlobalPtr::NULL,
            len: narrow(self.nnz),
            bits: Sort::bits_below(self.cols),
        }
    }

    fn column_words(&self) -> u32 {
        if self.columns.is_wide() { 2 } else { 1 }
    }
}

/// Queues the writing of the row of each entry.
///
/// # Safety
/// `out` has room for all entries; there are `rows + 1` offsets, of any content, and a row if there are entries.
pub(super) unsafe fn expand_rows(
    own: &dyn Queue,
    offsets: DeviceIndices<'_>,
    rows: u32,
    entries: u32,
    out: GlobalPtr<u32>,
) -> Result<(), DeviceError> {
    let params = ExpandRowsParams {
        offsets: GlobalPtr::from_address(offsets.address()),
        labels: GlobalPtr::NULL,
        out,
        rows,
        entries,
        wide_offsets: offsets.is_wide().into(),
        reserved: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { start(own, entry_of(Variant::ExpandRows)?, entries.into(), 1, &params) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_follows_columns_and_entries() {
        let ranges = |digit_bits, bits| Way::Ranges { digit_bits, bits };
        for (cols, nnz, way) in [
            (0, 0, Way::Few { range_columns: 1, ranges: 1 }),
            (1, 50_000, Way::Few { range_columns: 1, ranges: 1 }),
            (100, 3000, Way::Few { range_columns: 34, ranges: 3 }),
            (1 << 20, 10, Way::Few { range_columns: 2048, ranges: 512 }),
            (1 << 20, 1 << 17, ranges(9, 11)),
            ((1 << 20) + 1, 10, Way::Sorted),
            (1, 1 << 17, ranges(1, 0)),
            (40, 1 << 20, ranges(6, 0)),
            (5000, 300_000, ranges(8, 5)),
            (100_000, 1 << 21, ranges(9, 8)),
            (1 << 31, 1 << 22, Way::Sorted),
        ] {
            assert_eq!(Way::of(cols, nnz), way, "{cols} columns, {nnz} entries");
        }
    }
}
