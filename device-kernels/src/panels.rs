//! Panels of rows, as kernels share them: [`row_panels`](crate::spmm::row_panels) for products with a dense matrix,
//! [`sddmm::panels`](crate::sddmm::panels) for sampled ones.
//!
//! A *panel* is [`PANEL_ROWS`] rows. Its distinct columns, ascending, are cut into *chunks*, whose rows of the dense
//! operand come to shared memory once for the whole panel, each to a *slot*. Four rows are a *bundle*; a *vector* is
//! what a bundle has in one column, one to four entries. A chunk has *names*, which say what must be brought for it,
//! and a *record*, which says what is to be done with that.
//!
//! # Laid out on the GPU
//!
//! What a panel has depends on its rows alone, and the rows in order are sorted, so that columns are merged twice: of 8
//! rows to a window ([`preprocess`](crate::preprocess)), then, by the same kernels, of 8 windows to a panel. A *span*
//! is 32 successive columns of a panel, for each of whose rows it is one word.
//!
//! ```text
//! vectors of windows --MergeColumns, scan, ListVectors-->  columns      [column, first position] of each panel
//! columns     --CountSpans, scan-->                        panel_spans
//! columns     --MarkRows-->                                words        a bit for each row and column
//! words       --BundleRows-->                              panel_rows   four rows that have most in common, by turns
//! words       --MeasureRecords, scan-->                    units, work  where records begin; the host cuts pieces
//! words       --WriteRecords-->                            names, records, and the places of values
//! ```
//!
//! Of sampled products [`MeasurePositions`] and [`WritePositions`] take the place of the last two. Every array is that
//! of the host, byte for byte.

mod bundle_rows;
mod position_records;
mod spans;
mod value_records;

pub use bundle_rows::{BundleRows, BundleRowsParams};
pub use position_records::{MeasurePositions, PositionRecordsParams, WritePositions};
pub use spans::{BLOCK_SPANS, CountSpans, MarkRows, SpansParams};
pub use value_records::{MeasureRecords, ValueRecordsParams, WriteRecords};

/// Rows of a panel.
pub const PANEL_ROWS: u32 = 64;
/// Rows of a bundle, of which a column has one vector.
pub const BUNDLE_ROWS: u32 = 4;
/// Warps of a block.
pub const PANEL_WARPS: u32 = 8;
/// Bundles of a warp.
pub const WARP_BUNDLES: u32 = PANEL_ROWS / BUNDLE_ROWS / PANEL_WARPS;

/// Words of the names of a chunk of so many slots: its columns, and the beginning and the length of its record, padded.
#[must_use]
pub const fn name_words(slots: u32) -> u32 {
    slots + 4
}

/// Words in front of which a record may begin.
const UNIT: u32 = 4;

/// A word of a chunk's names behind its columns, of a record that begins at so many units and is so many long.
#[inline(always)]
const fn tail_word(at: u32, [start, units]: [u32; 2]) -> u32 {
    match at {
        0 => start,
        1 => units,
        _ => 0,
    }
}
