//! Preprocessing on the GPU: from CSR to the records of a [tile stream](crate::spmm::tile_stream), after Libra (section
//! 4.5).
//!
//! What a plan needs of a matrix depends on its structure alone, and every part of it can be computed entry by entry
//! once it is known where the entry goes. Each place is a prefix sum ([`scan`](crate::scan)) or a rank, so that nothing
//! depends on the order in which threads run and the arrays are those of the host, byte for byte. Libra marks entries
//! with atomics and one thread a window; here the longest row costs no thread more than a search.
//!
//! ```text
//! row_offsets --RowLengths, scan, PlaceRows-->  window_rows    8 slots a window, empty rows dealt out among the others
//! window_rows --RowLengths, scan-->             slot_begins    entries of the slots before: the matrix in plan order
//! row_offsets --PlaceAllRows-->                 both           where rows keep their order and none is empty
//! col_indices --MergeColumns-->                 sources, masks entries by (window, column, slot); a mask where a
//!                                                              column begins
//! masks       --scan, ListVectors-->            vectors        [column, first entry] of each column of each window
//! vectors     --host deals windows out, ListStreamPieces, scan, ListWorkers-->  pieces, and the steps of each worker;
//!                                                              where all are whole, by the kernels of `deal`
//! pieces      --TileSteps-->                    step_cols, bitmaps, first entry and length of each step
//! sources     --TileRecords-->                  records        values, rows and slot of each step
//! ```
//!
//! | kernel | a thread is |
//! | --- | --- |
//! | [`RowLengths`], [`PlaceRows`], [`PlaceAllRows`] | a row |
//! | [`MergeColumns`], [`ListVectors`] | an entry |
//! | [`ListStreamPieces`], [`ListWorkers`] | a piece, a worker |
//! | [`TileSteps`] | a condensed column of a step |
//! | [`TileRecords`] | four elements of a step, a warp the step |
//! | [`DistributeVectors`] | a column vector, a block the window |
//! | [`DistributeEntries`], [`KeepEntries`], [`GatherValues`] | an entry |
//! | [`PlaceWindows`] | a slot |
//!
//! Where entries are divided by column vectors, [`DistributeVectors`] decides for the vectors that [`ListVectors`]
//! lists; the entries of those that are taken go on as above, the others make segments of rows.

mod distribute;
mod merge;
mod pieces;
mod records;
mod rows;
mod steps;

pub use distribute::{
    DistributeEntries, DistributeEntriesParams, DistributeVectors, DistributeVectorsParams, KeepEntries,
    NO_WINDOW, PlaceWindows, PlaceWindowsParams,
};
pub use merge::{ListVectors, ListVectorsParams, MergeColumns, MergeColumnsParams};
pub use pieces::{ListStreamPieces, ListStreamPiecesParams, ListWorkers, ListWorkersParams};
pub use records::{GatherValues, GatherValuesParams, TileRecords, TileRecordsParams};
pub use rows::{PlaceAllRows, PlaceAllRowsParams, PlaceRows, PlaceRowsParams, RowLengths, RowLengthsParams};
pub use steps::{TileSteps, TileStepsParams};

use windrow_simt::{GlobalPtr, Simt};

/// Threads of a block of all kernels here.
const THREADS: u32 = 256;
/// Rows of a window.
const WINDOW_ROWS: u32 = 8;
/// Rows, entries or steps that there may be, so that no count of a thread beyond the last exceeds 32 bits.
pub const MOST_ITEMS: u32 = 1 << 31;

/// The thread's number in the grid.
#[inline(always)]
pub(crate) fn item<S: Simt>(s: &S) -> u32 {
    s.block_idx() * THREADS + s.thread_idx()
}

/// The last of `count` ascending begins that is not above `x`, where the first is not: whose part `x` belongs to.
///
/// # Safety
/// `begins` has `count > 0` elements that nothing writes in this launch.
#[inline(always)]
pub(crate) unsafe fn part_of<S: Simt>(s: &S, begins: GlobalPtr<u32>, count: u32, x: u32) -> u32 {
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        // SAFETY: `middle < count`.
        match unsafe { s.load_readonly(begins.at(middle)) } <= x {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}
