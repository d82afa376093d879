//! A CSR matrix that is on the GPU already: read, checked and counted, and its rows cut into segments.
//!
//! ```text
//! offsets, columns, values  --ReadCsr-->                    the same in 32 bits and in the plan's type, and a record
//! row_offsets --CountPieces, scans, WriteSegments-->        segments of rows, and the rows that are cut
//! columns of some rows --MarkColumns, scan-->               how many distinct ones there are
//! ends of scans --Collect-->                                one copy to the host
//! ```
//!
//! The arrays are those of the host, byte for byte; whatever is counted is a sum or a maximum of integers, so that
//! nothing depends on the order in which threads run.

mod read;
mod segments;

pub use read::{CsrRecord, ReadCsr, ReadCsrParams};
pub use segments::{
    Collect, CollectParams, CountPieces, CountPiecesParams, MarkColumns, MarkColumnsParams, WriteSegments,
    WriteSegmentsParams,
};

/// Threads of a block of all kernels here.
const THREADS: u32 = 256;
