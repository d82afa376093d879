//! Plans of sampled products and of softmax over rows, from a pattern that is on the GPU already.
//!
//! ```text
//! row_offsets --CountBatches, scan, ListBatches-->  batches of up to eight entries of a row
//! row_offsets --csr::ExpandRows-->                  the row of each entry
//! columns of windows --CountTiles, scan, SampleTiles-->  records of tiles of 8 rows × 16 columns
//! columns of windows --RankVectors, scans-->        which of them are in tiles, the fullest first
//!                    --SampleTiles-->               records of those, and the entries of each
//! entries     --MarkRest, scan, ListRest-->         the others, which go into batches
//! row_offsets --CountClasses, scan, PlaceClasses--> rows by the steps of a softmax
//! ```
//!
//! The columns of windows are those that [`preprocess`](crate::preprocess) condenses. The arrays are those of the host,
//! byte for byte: each place is a prefix sum or a rank, and what is counted are sums of integers, so that nothing
//! depends on the order in which threads run.

mod batches;
mod classes;
mod rank;
mod tiles;

pub use batches::{BatchesParams, CountBatches, ListBatches};
pub use classes::{CLASS_ROWS, CLASSES, ClassesParams, CountClasses, PlaceClasses};
pub use rank::{ListRest, MarkRest, RankVectors, RankVectorsParams, RestParams};
pub use tiles::{CountTiles, SampleTiles, SampleTilesParams, TileCounts};

/// Threads of a block of all kernels here.
const THREADS: u32 = 256;
