//! `C = α·A·B + β·C` with a sparse `A`: one module an algorithm, and what they share.
//!
//! - [`row_split`], [`short_rows`]: row segments on CUDA cores;
//! - [`row_panels`]: CUDA cores, rows that share columns beside each other;
//! - [`tile_stream`], [`matricized_rows`]: Tensor Cores;
//! - [`segment_group`]: few columns of `B`; MTTKRP, which is the same product with a second factor;
//! - [`merge_path`]: one column, rows merged by path;
//! - [`merge_based`]: a matrix as somebody else keeps it, without a plan;
//! - [`combine`]: the sums of rows that were cut, and `C` in f16 where sums need f32;
//! - [`Dense`](dense::Dense): where `B` lies, and how sums reach `C`.

pub mod combine;
pub mod dense;
pub mod matricized_rows;
pub mod merge_based;
pub mod merge_path;
pub mod row_panels;
pub mod row_split;
pub mod segment_group;
pub mod short_rows;
pub mod tile_stream;
