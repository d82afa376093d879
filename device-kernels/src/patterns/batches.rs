//! Rows cut into batches of a few entries, and the row of each entry.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::THREADS;
use crate::kernel::Kernel;
use crate::preprocess::{item, part_of};
use crate::sddmm::BATCH;
use crate::variant::Variant;

/// Arguments of [`CountBatches`] and [`ListBatches`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements, the first 0, the last at most
///   [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS); `rows` is no more;
/// - unless `listed` is null, it has an element for each entry and one more, and `listed[e]` is the number of entries
///   before `e` that are in batches; else all are;
/// - `batches` has `rows + 1` elements; for [`ListBatches`] they are the exclusive sums of what [`CountBatches`] wrote,
///   of which `count` is the last, `batch_rows` has `count` elements and `batch_begins` one more.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct BatchesParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Entries before each that are in batches; null: all are.
    pub listed: GlobalPtr<u32>,
    /// Batches of each row, then of the rows before it.
    pub batches: GlobalPtr<u32>,
    /// The row that each batch is of.
    pub batch_rows: GlobalPtr<u32>,
    /// Where each batch begins among the entries that are in batches, and the end.
    pub batch_begins: GlobalPtr<u32>,
    /// Rows of the pattern.
    pub rows: u32,
    /// How many batches there are.
    pub count: u32,
}

impl BatchesParams {
    /// Where a row begins among the entries that are in batches.
    ///
    /// # Safety
    /// The obligations of the params, and `row ≤ rows`.
    #[inline(always)]
    unsafe fn begin<S: Simt>(&self, s: &S, row: u32) -> u32 {
        // SAFETY: the caller's promise; there is an element behind that of the last entry.
        unsafe {
            let entry = s.load_readonly(self.row_offsets.at(row));
            if self.listed == GlobalPtr::NULL { entry } else { s.load_readonly(self.listed.at(entry)) }
        }
    }
}

/// `batches[i] = ⌈entries of row i / 8⌉`, a thread for each row.
pub struct CountBatches;

impl Kernel for CountBatches {
    type Params = BatchesParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::CountBatches;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &BatchesParams) {
        let row = item(s);
        // SAFETY: the obligations of the params; `row < rows` where it is used.
        unsafe {
            if row < p.rows {
                let length = p.begin(s, row + 1) - p.begin(s, row);
                s.store(p.batches.at(row), length.div_ceil(BATCH));
            }
        }
    }
}

/// Row and beginning of each batch, a thread for each, and one more for the end.
pub struct ListBatches;

impl Kernel for ListBatches {
    type Params = BatchesParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::ListBatches;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &BatchesParams) {
        let batch = item(s);
        // SAFETY: the obligations of the params: a batch below `count` is one of a row's.
        unsafe {
            if batch < p.count {
                let row = part_of(s, p.batches, p.rows, batch);
                let of_row = batch - s.load_readonly(p.batches.at(row));
                s.store(p.batch_rows.at(batch), row);
                s.store(p.batch_begins.at(batch), p.begin(s, row) + of_row * BATCH);
            } else if batch == p.count {
                s.store(p.batch_begins.at(batch), p.begin(s, p.rows));
            }
        }
    }
}
