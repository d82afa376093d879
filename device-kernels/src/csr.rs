//! A CSR matrix that is on the GPU already: read, checked and counted, and its rows cut into segments.
//!
//! ```text
//! offsets, columns, values  --ReadCsr-->                    the same in 32 bits and in the plan's type, and a record
//! columns of some rows --MarkColumns-->                     in the record: how many distinct ones there are
//! row_offsets --CountCuts, SumCuts-->                       how many segments there will be, and where
//! row_offsets --CutRows-->                                  segments of rows, and the rows that are cut
//! segments, an order --CountOrdered, OrderSegments-->       the segments in that order of the rows
//! columns of listed rows --MarkOrdered-->                   how many distinct ones there are
//! offsets, columns, values  --SpreadCsr-->                  entries and segments of a checked matrix, with gaps
//! offsets, columns --TransposeFew-->                        the transpose of a matrix with few entries
//! offsets, columns --SortCount, SortScan, SplitEntries-->   entries and rows by ranges of columns
//! ranges --CountParts, TransposeParts-->                    the transpose
//! offsets --ExpandRows-->                                   the row of each entry, where columns have more bits
//! rows, sorted columns --TransposeEntries-->                the transpose then; values in its order at any time
//! entries sorted by place --MarkDistinct, SumEntries-->     canonical form
//! ```
//!
//! Without gaps, the arrays are those of the host, byte for byte; whatever is counted is a sum or a maximum of
//! integers, so that nothing depends on the order in which threads run.

mod canonical;
mod columns;
mod ordered;
mod ranges;
mod read;
mod segments;
mod split;
mod spread;
mod transpose;

pub use canonical::{CanonicalParams, MarkDistinct, SumEntries};
pub use columns::{MarkColumns, MarkColumnsParams};
pub use ordered::{CountOrdered, MarkOrdered, MarkOrderedParams, OrderSegments, OrderSegmentsParams};
pub use ranges::{
    CountParts, MOST_RANGE_BITS, MOST_RANGES, RANGE_TILE, TransposeFew, TransposeFewParams, TransposeOut,
    TransposeParts, TransposePartsParams,
};
pub use read::{COLUMNS_IN_USE_AT, CsrRecord, ReadCsr, ReadCsrParams};
pub(crate) use read::{index, value_of};
pub use segments::{CUT_ROWS, CountCuts, CutRows, CutRowsParams, SumCuts};
pub(crate) use segments::{Counts, add};
pub use split::{SplitEntries, SplitEntriesParams};
pub use spread::{SpreadCsr, SpreadCsrParams};
pub use transpose::{ExpandRows, ExpandRowsParams, TransposeEntries, TransposeEntriesParams};

/// Threads of a block of all kernels here.
const THREADS: u32 = 256;
