//! Rows or entries of a matrix that is on the GPU, divided between tiles and CUDA cores: what
//! [`tile_stream`](crate::spmm::tile_stream) leaves to [`short_rows`](crate::spmm::short_rows) or to
//! [`row_split`](crate::spmm::row_split).
//!
//! ```text
//! rows with entries --JudgeRows-->                    whether each is in tiles: Algorithm 1 of RSH-SpMM
//! row_offsets --KeyRows, sort-->                      rows by length, those in tiles last
//! sorted rows --MarkShort, scans, SumShort-->         where entries and blocks of short rows begin, and how many
//! sorted rows --ListShort-->                          rows, blocks, columns and sources of the short rows
//! entries outside of tiles --MeasureRest-->           the longest row of them, and how many there are
//! their offsets --CountRest, SumRest, CutRest-->      their segments, and the rows that are cut or summed apart
//! ```
//!
//! The arrays are those of the host, byte for byte: whatever is counted is a sum or a maximum of integers.

mod judge;
mod rest;
mod short;

pub use judge::{CHUNK_ROWS, JudgeRows, JudgeRowsParams};
pub use rest::{
    CountRest, CutRest, MeasureRest, MeasureRestParams, REST_ROWS, RestParams, RestTotals, SumRest,
};
pub use short::{KeyRows, KeyRowsParams, ListShort, MarkShort, ShortTotals, SortedRowsParams, SumShort};

/// Threads of a block of all kernels here but [`JudgeRows`].
const THREADS: u32 = 256;
